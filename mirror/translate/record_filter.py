"""Decides which records of the source a translate link carries, for every fetched response and for
reads after a crash alike.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kio.schema.errors import ErrorCode

from clients.reader.core.committed import skipped_batches
from clients.reader.single_fetches import fetch_at_leader, records_of
from mirror.link.ports import FetchAnswer, Unreachable
from mirror.sites.kafka_site import reached
from mirror.translate.provenance import Provenance
from wire.batches.record_batch import BatchHeader, Buffer, InvalidBatch, iterate_headers
from wire.client.client_errors import BrokerError, KafkaClientError, error_code
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import EARLIEST_TIMESTAMP, READ_COMMITTED, TopicPartition
from wire.protocol.messages.fetch_codec import PartitionFetched

_NOTHING = memoryview(b"")


class SourceFilter:
    """The RecordFilter of fetchers; `read` serves the comparisons after a crash."""

    def __init__(
        self,
        provenance: Provenance,
        *,
        target_alias: str,
        isolation_level: int,
        have_producers: Callable[[], Awaitable[None]],
    ) -> None:
        self._provenance = provenance
        self._have_producers = have_producers
        self._target_alias = target_alias
        self.isolation_level = isolation_level

    async def sift(self, topic: str, partition: PartitionFetched) -> FetchAnswer:
        """The answer for one partition. Raises Unreachable when the source does not answer about
        the origin of the records.
        """
        records = partition.records if isinstance(partition.records, memoryview) else _NOTHING
        error = error_code(partition.error_code)
        skipped: frozenset[int] = frozenset()
        try:
            skipped = await self._skipped(records, partition)
        except InvalidBatch:
            error = ErrorCode.corrupt_message
        is_committed = self.isolation_level == READ_COMMITTED and partition.last_stable_offset >= 0
        return FetchAnswer(
            key=TopicPartition(topic, partition.partition_index),
            error=error,
            high_watermark=partition.last_stable_offset if is_committed else partition.high_watermark,
            log_start_offset=partition.log_start_offset,
            records=records,
            skipped=skipped,
        )

    async def read(
        self, client: KafkaClient, key: TopicPartition, offset: int, *, max_bytes: int
    ) -> tuple[Buffer, frozenset[int]]:
        """The source's batches from `offset` on with those that are not carried; from the log's
        start if it begins later.

        Nothing at the log's end. Unreachable.
        """
        place = (key.topic, key.partition)
        try:
            fetched = await fetch_at_leader(
                client, place, offset, max_bytes=max_bytes, max_wait_ms=100, isolation_level=self.isolation_level
            )
        except BrokerError as error:
            if error.code is ErrorCode.offset_out_of_range:
                # The error does not name the log's start (Kafka answers -1).
                start = (await reached(client.offsets_at([place], EARLIEST_TIMESTAMP)))[place]
                if start > offset:
                    return await self.read(client, key, start, max_bytes=max_bytes)
            raise Unreachable(str(error)) from error
        except KafkaClientError as error:
            raise Unreachable(str(error)) from error
        records = records_of(fetched)
        return records, await self._skipped(records, fetched)

    async def _skipped(self, records: memoryview, fetched: PartitionFetched) -> frozenset[int]:
        if not records:
            return frozenset()
        await self._provenance.learn(
            header.producer_id for _, header in iterate_headers(records, may_end_in_partial=True)
        )
        await self._have_producers()
        return skipped_batches(
            records,
            aborted=fetched.aborted_transactions or (),
            is_unwanted=self.came_from_target,
        )

    def came_from_target(self, header: BatchHeader) -> bool:
        """True if a mirror brought the batch from our target, by the records read so far."""
        return self._provenance.origins.get(header.producer_id) == self._target_alias
