"""Writes the rows of one task: into a transaction that is left open, or as an idempotent producer.
One batch of a partition is under way at a time.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Final, TypeVar

from kio.schema.errors import ErrorCode

from spark_jobs.connector.core.options import WriteOptions
from spark_jobs.connector.core.sink_leftovers import Leftovers
from spark_jobs.connector.core.sink_rows import Divider, InvalidRows, Rows, joined, topics_of
from spark_jobs.connector.sink_leftovers import read_leftovers
from spark_jobs.connector.transaction_coordinator import TransactionCoordinator
from wire.batches.record_batch import TRANSACTIONAL_BIT, Compression
from wire.batches.records import seal_batch
from wire.client.client_errors import BrokerError
from wire.client.raw_client import KafkaClient
from wire.client.requests.transaction_requests import (
    ProducerIdentity,
    request_partitions,
)
from wire.protocol.ids import PartitionKey

PARTITIONS_AT_ONCE: Final = 8
Answer = TypeVar("Answer")


class SinkProducer:
    """One task's writer. `ends` are the offsets behind its rows."""

    def __init__(self, client: KafkaClient, options: WriteOptions, *, task: int) -> None:
        self._client = client
        self._options = options
        self._coordinator = TransactionCoordinator(client)
        self._transactional_id: str | None = None
        self._leftovers: Leftovers | None = None
        self._divider = Divider(task, options.topic)
        self._compression = Compression[options.compression.upper()]
        self._identity = ProducerIdentity(-1, -1)
        self._sequences: dict[PartitionKey, int] = {}
        self._counts: dict[str, int] = {}
        self._sending: dict[PartitionKey, asyncio.Task[None]] = {}
        self.ends: dict[PartitionKey, int] = {}

    async def write(self, rows: Iterable[Rows]) -> int:
        """Write all rows without a transaction; how many. InvalidRows, KafkaClientError."""
        self._identity = ProducerIdentity(await self._client.new_producer_id(), 0)
        return await self._produce(rows)

    async def prepare(
        self, rows: Iterable[Rows], transactional_id: str, leftovers: Leftovers | None = None
    ) -> ProducerIdentity | None:
        """Write all rows into a transaction and leave it open; None if nothing was to be written.
        Earlier attempts under the same id are fenced, and their open transactions are aborted. Rows
        that `leftovers` has are not written again. InvalidRows, BatchNotWhole, KafkaClientError.
        """
        self._transactional_id = transactional_id
        self._leftovers = leftovers
        await self._produce(rows)
        # a task without rows ends what an earlier attempt has begun
        await self._begin(transactional_id)
        if leftovers is not None:
            leftovers.check_used()
        return self._identity if self._sequences else None

    async def _begin(self, transactional_id: str) -> None:
        """Take a producer id for the transaction. It comes after the look at the topics, because
        until then the coordinator knows which producer id the task had at another site.
        """
        if self._identity.producer_id < 0:
            timeout_ms = self._options.transaction_timeout_ms
            self._identity = await self._coordinator.identity(transactional_id, timeout_ms)

    async def _produce(self, rows: Iterable[Rows]) -> int:
        count_of_rows = 0
        try:
            for piece in joined(rows):
                now_ms = time.time_ns() // 1_000_000
                count_of_rows += len(piece)
                counts = {topic: await self._partition_count(topic) for topic in topics_of(piece, self._options.topic)}
                for place, batch in self._divider.batches(piece, counts):
                    await self._send(place, batch, now_ms)
            await asyncio.gather(*self._sending.values())
        finally:
            for task in self._sending.values():
                # A failed batch fails the task, so the other requests in flight are cancelled.
                task.cancel()
        return count_of_rows

    async def _send(self, place: PartitionKey, rows: Rows, now_ms: int) -> None:
        """Begin to write a batch, once the partition's earlier one is written."""
        if self._leftovers is not None and self._leftovers.has(place):
            self._leftovers.use(place, rows.contents())
            self.ends[place] = self._leftovers.ends[place]
            return
        # Only one batch of a partition in flight, so that a retry never reorders records.
        earlier = self._sending.pop(place, None)
        if earlier is not None:
            await earlier
        while len(self._sending) >= PARTITIONS_AT_ONCE:
            await self._sending.pop(next(iter(self._sending)))
        if place not in self._sequences and self._transactional_id is not None:
            name = self._transactional_id
            await self._begin(name)
            await self._coordinator.at(name, lambda at: request_partitions(at, name, self._identity, [place]))
        self._sending[place] = asyncio.get_running_loop().create_task(self._write_batch(place, rows, now_ms))
        await asyncio.sleep(0)  # Yield to the loop, so that the request is sent before the next rows are encoded.

    async def _write_batch(self, place: PartitionKey, rows: Rows, now_ms: int) -> None:
        sequence = self._sequences.get(place, 0)
        # The sequence is reserved before the answer, because the next batch is encoded while this
        # one is in flight.
        self._sequences[place] = sequence + len(rows)
        self.ends[place] = await self._append(place, rows, now_ms, sequence)

    async def _append(self, place: PartitionKey, rows: Rows, now_ms: int, sequence: int) -> int:
        """Append the rows as one batch, or in halves where that is too large for the topic; the
        offset behind them.
        """
        batch = seal_batch(
            rows.encoded(),
            record_count=len(rows),
            base_timestamp=now_ms,
            max_timestamp=now_ms,
            compression=self._compression,
            producer_id=self._identity.producer_id,
            producer_epoch=self._identity.producer_epoch,
            base_sequence=sequence,
            attributes=TRANSACTIONAL_BIT if self._transactional_id is not None else 0,
        )
        try:
            produced = await self._client.produce(*place, batch, transactional_id=self._transactional_id)
        except BrokerError as error:
            if error.code is not ErrorCode.message_too_large or len(rows) == 1:
                raise
        else:
            return produced.base_offset + len(rows)
        first, second = rows.halves()
        await self._append(place, first, now_ms, sequence)
        return await self._append(place, second, now_ms, sequence + len(first))

    async def _partition_count(self, topic: str) -> int:
        if topic in self._counts:
            return self._counts[topic]
        metadata = (await self._client.metadata([topic])).topics.get(topic)
        if metadata is None or metadata.error_code:
            raise InvalidRows(f"topic {topic} is not there; accepted: a topic that has been created")
        self._counts[topic] = len(metadata.partitions)
        if self._leftovers is not None:
            await read_leftovers(self._client, topic, self._counts[topic], self._leftovers)
        return self._counts[topic]
