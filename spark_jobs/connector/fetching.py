"""Reads a range of one log in a worker, as raw batches: at the leader, or at the replica in the
worker's rack that the leader names (KIP-392).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, Iterator, Sequence
from typing import Final, NamedTuple

from kio.schema.errors import ErrorCode

from runtime.retries import jittered_backoff
from spark_jobs.connector.core.options import READ_COMMITTED
from spark_jobs.connector.core.planning import DataLost, OffsetRange
from spark_jobs.logs.cluster_client import RETRY_BUDGET_MS, open_client, replica_id_of
from spark_jobs.logs.core.cluster_options import ClusterOptions
from spark_jobs.logs.iteration import iterated
from spark_jobs.logs.request_ahead import RequestAhead
from wire.batches.record_batch import BatchHeader, iterate_headers
from wire.client.client_errors import TRANSIENT, broker_error, error_code
from wire.client.raw_client import KafkaClient
from wire.client.requests.fetch_requests import FetchRequest, PartitionToFetch, TopicToFetch
from wire.protocol.ids import EARLIEST_TIMESTAMP
from wire.protocol.messages.fetch_codec import PartitionFetched

RACK_VARIABLE: Final = "ANTIPODE_RACK"
"""Environment variable with a worker's own rack; it takes precedence over the option, which is the
same for all workers.
"""
MAX_WAIT_MS: Final = 500
BEHIND_MS: Final = 10_000
"""Time for a replica to reach an end that was planned: a follower has the leader's high watermark
later, and a new leader learns it after its election.
"""
_ASK_AGAIN_S: Final = 0.1


class Chunk(NamedTuple):
    """Whole batches, the first of which may begin below the wanted offset: their bytes, and the
    position and header of each; `aborted` are producer ids and first offsets of aborted
    transactions in them.
    """

    records: memoryview
    batches: Sequence[tuple[int, BatchHeader]]
    aborted: Sequence[tuple[int, int]]


class RangeReader:
    """Reads one range. `node_ids` are the brokers that answered, in the order of their first
    answer.
    """

    def __init__(
        self,
        options: ClusterOptions,
        wanted: OffsetRange,
        *,
        fetch_bytes: int,
        isolation_level: int = 0,
        is_failing_on_loss: bool = True,
    ) -> None:
        self._options = options
        self._wanted = wanted
        self._fetch_bytes = fetch_bytes
        self._isolation_level = isolation_level
        self._is_failing_on_loss = is_failing_on_loss
        self._rack = os.environ.get(RACK_VARIABLE, "") or options.rack
        self._replica: int | None = None
        self._behind_until_s: float | None = None
        self.node_ids: list[int] = []
        self.read_bytes = 0

    def chunks(self) -> Iterator[Chunk]:
        """The range in order. Raises KafkaClientError when the site does not answer; DataLost."""
        return iterated(self._chunks())

    async def _chunks(self) -> AsyncGenerator[Chunk]:
        until_offset = self._wanted.until_offset
        offset = self._wanted.first_offset
        async with await open_client(self._options) as client, RequestAhead[PartitionFetched]() as ahead:
            while offset < until_offset:
                if not ahead.is_under_way:
                    await ahead.begin(self._fetch(client, offset))
                fetched = await ahead.result()
                records = fetched.records if isinstance(fetched.records, memoryview) else memoryview(b"")
                if not records:
                    offset = await self._after_nothing(client, fetched, offset)
                    continue
                self.read_bytes += len(records)
                self._behind_until_s = None
                batches = []
                for position, header in iterate_headers(records, may_end_in_partial=True):
                    batches.append((position, header))
                    if header.next_offset >= until_offset:
                        break
                until = batches[-1][0] + batches[-1][1].size_bytes if batches else 0
                offset = max(batches[-1][1].next_offset if batches else 0, offset)
                if offset < until_offset:
                    await ahead.begin(self._fetch(client, offset))
                yield Chunk(records[:until], batches, fetched.aborted_transactions or ())

    async def _after_nothing(self, client: KafkaClient, fetched: PartitionFetched, offset: int) -> int:
        """The offset at which the read continues after an answer without a batch."""
        place = self._wanted.place
        start = (await client.offsets_at([place], EARLIEST_TIMESTAMP, replica_id=replica_id_of(self._options)))[place]
        where = f"{place[0]}-{place[1]} at offset {offset}"
        if start > offset:
            if self._is_failing_on_loss and start < self._wanted.until_offset:
                raise DataLost(f"{where}: the records were deleted meanwhile, the log starts at {start}")
            return start
        readable = fetched.last_stable_offset if self._isolation_level == READ_COMMITTED else fetched.high_watermark
        if fetched.error_code == ErrorCode.offset_out_of_range or readable < self._wanted.until_offset:
            if self._may_be_behind():
                await asyncio.sleep(_ASK_AGAIN_S)
                return offset
            if self._is_failing_on_loss:
                raise DataLost(f"{where}: the log ends before offset {self._wanted.until_offset}, which was planned")
            return self._wanted.until_offset
        return offset

    def _may_be_behind(self) -> bool:
        """True while a replica may still reach the planned end."""
        now_s = asyncio.get_running_loop().time()
        if self._behind_until_s is None:
            self._behind_until_s = now_s + BEHIND_MS / 1000
        return now_s < self._behind_until_s

    async def _fetch(self, client: KafkaClient, offset: int) -> PartitionFetched:
        async def once() -> PartitionFetched:
            try:
                return await self._fetch_once(client, offset)
            except TRANSIENT:
                client.forget_leaders([self._wanted.topic])
                self._replica = None
                raise

        result: PartitionFetched = await jittered_backoff(retry_on=TRANSIENT, budget_ms=RETRY_BUDGET_MS)(once)
        return result

    async def _fetch_once(self, client: KafkaClient, offset: int) -> PartitionFetched:
        topic, partition = self._wanted.place
        leader = await client.leader(topic, partition)
        known = client.cluster.topics.get(topic)
        request = FetchRequest(
            [
                TopicToFetch(
                    topic, known.topic_id if known else None, [PartitionToFetch(partition, offset, self._fetch_bytes)]
                )
            ],
            max_wait_ms=MAX_WAIT_MS,
            max_bytes=self._fetch_bytes,
            isolation_level=self._isolation_level,
            replica_id=replica_id_of(self._options),
            rack_id=self._rack,
        )
        while True:
            node = leader if self._replica is None else self._replica
            response = await client.fetch(node, request)
            if response.throttle_time_ms and not response.topics and not response.error_code:
                await asyncio.sleep(response.throttle_time_ms / 1000)
                continue
            fetched = response.topics[0].partitions[0] if response.topics else PartitionFetched(partition)
            code = error_code(response.error_code or fetched.error_code)
            if code is ErrorCode.offset_out_of_range and self._replica is not None:
                self._replica = None  # A follower may lag behind its leader, so an empty answer is not an end.
                continue
            if code and code is not ErrorCode.offset_out_of_range:
                message = f"{topic}-{partition} at offset {offset}"
                raise broker_error(code, message=message, node=f"node {node}", api_key=1)
            if self._replica is None and fetched.preferred_read_replica not in (-1, node):
                self._replica = fetched.preferred_read_replica
                continue
            if node not in self.node_ids:
                self.node_ids.append(node)
            return fetched
