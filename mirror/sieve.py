"""What of the source a translate link carries: decides it for every fetched answer, and for reads after a crash alike."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kio.schema.errors import ErrorCode

from mirror.core.partitions import PartitionKey
from mirror.core.renumbering import batches_left_out
from mirror.kafka_site import reached
from mirror.ports import FetchAnswer, Unreachable
from mirror.provenance import Provenance
from wire.broker_requests import EARLIEST_TIMESTAMP
from wire.client import KafkaClient
from wire.client_errors import error_code
from wire.fetch_codec import PartitionFetched
from wire.fetch_requests import FetchRequest, PartitionToFetch, TopicToFetch
from wire.record_batch import Buffer, InvalidBatch, iterate_headers

READ_COMMITTED = 1
READ_UNCOMMITTED = 0

_NOTHING = memoryview(b"")


class SourceSieve:
    """The Sieve of fetchers; `read` for those who look back."""

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
        """The answer for one partition. Unreachable when the source cannot be asked whose records they are."""
        records = partition.records if isinstance(partition.records, memoryview) else _NOTHING
        error = error_code(partition.error_code)
        left_out: frozenset[int] = frozenset()
        try:
            left_out = await self._left_out(records, partition)
        except InvalidBatch:
            error = ErrorCode.corrupt_message
        is_committed = self.isolation_level == READ_COMMITTED and partition.last_stable_offset >= 0
        return FetchAnswer(
            key=PartitionKey(topic, partition.partition_index),
            error=error,
            high_watermark=partition.last_stable_offset if is_committed else partition.high_watermark,
            log_start_offset=partition.log_start_offset,
            records=records,
            left_out=left_out,
        )

    async def read(
        self, client: KafkaClient, key: PartitionKey, offset: int, *, max_bytes: int
    ) -> tuple[Buffer, frozenset[int]]:
        """The source's batches from `offset` on with those that are not carried; from the log's start if it begins later.

        Nothing at the log's end. Unreachable.
        """
        leader = await reached(client.leader(key.topic, key.partition))
        known = client.cluster.topics.get(key.topic)
        topic_id = known.topic_id if known is not None else None
        wanted = TopicToFetch(key.topic, topic_id, [PartitionToFetch(key.partition, offset, max_bytes)])
        request = FetchRequest([wanted], max_wait_ms=100, isolation_level=self.isolation_level)
        response = await reached(client.fetch(leader, request))
        code = error_code(response.error_code)
        if code is ErrorCode.none and response.topics:
            fetched = response.topics[0].partitions[0]
            code = error_code(fetched.error_code)
            if code is ErrorCode.offset_out_of_range:
                # The error does not say where the log starts (Kafka answers -1).
                place = (key.topic, key.partition)
                start = (await reached(client.offsets_at([place], EARLIEST_TIMESTAMP)))[place]
                if start > offset:
                    return await self.read(client, key, start, max_bytes=max_bytes)
            if code is ErrorCode.none:
                records = fetched.records if isinstance(fetched.records, memoryview) else _NOTHING
                return records, await self._left_out(records, fetched)
        client.forget_leaders([key.topic])
        raise Unreachable(f"{key} cannot be read at offset {offset} of the source: {code.name}")

    async def _left_out(self, records: memoryview, fetched: PartitionFetched) -> frozenset[int]:
        if not records:
            return frozenset()
        await self._provenance.learn(
            header.producer_id for _, header in iterate_headers(records, may_end_in_partial=True)
        )
        await self._have_producers()
        return batches_left_out(
            records,
            aborted=fetched.aborted_transactions or (),
            origins=self._provenance.origins,
            target_alias=self._target_alias,
        )
