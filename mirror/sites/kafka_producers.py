"""The ports of `mirror/groups/transactional_ids.py` over the raw-batch client: the source's
`__transaction_state`, the target's coordinators.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Any

from kio.schema.errors import ErrorCode

from mirror.link.ports import ProducerUpdates, TransactionalProducer, Unreachable
from mirror.sites.kafka_site import reached
from runtime.logs import get_logger
from wire.batches.record_batch import InvalidBatch, iterate_headers
from wire.batches.records import Record, decode_records
from wire.batches.transaction_records import TRANSACTIONS_TOPIC, decode_transaction_key, decode_transaction_value
from wire.client.client_errors import BrokerError, error_code
from wire.client.raw_client import KafkaClient
from wire.client.requests.fetch_requests import FetchRequest, PartitionToFetch, TopicToFetch
from wire.protocol.byte_reader import Malformed
from wire.protocol.ids import EARLIEST_TIMESTAMP
from wire.protocol.messages.fetch_codec import PartitionFetched

FETCH_BYTES = 1 << 20
PARTITION_BYTES = 1 << 18
LOOKUPS_AT_ONCE = 16

_log = get_logger("mirror.transactional_ids")


class KafkaProducersOfSource:
    """ProducersOfSource: every partition from its beginning on, one fetch a broker at a time."""

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._positions: dict[int, int] = {}
        self._problems: dict[int, str] = {}

    def begin_anew(self) -> None:
        """Read from the beginning."""
        self._positions.clear()

    async def news(self) -> ProducerUpdates:
        """The changes from the next fetch of each broker. Raises Unreachable when a fetch failed
        and no change came; changes that came are never lost.
        """
        found: dict[str, TransactionalProducer | None] = {}
        is_all, problem = True, ""
        for node_id, partitions in (await self._leaders()).items():
            try:
                for fetched in await self._fetch(node_id, partitions):
                    before = self._positions.get(fetched.partition_index, 0)
                    found |= await self._taken(fetched)
                    after = self._positions.get(fetched.partition_index, 0)
                    # a partition without progress is retried in the next round, so it does not
                    # count as unfinished
                    is_all = is_all and not before < after < fetched.high_watermark
            except Unreachable as error:
                problem = str(error)
                self._client.forget_leaders([TRANSACTIONS_TOPIC])
        if problem and not found:
            raise Unreachable(problem)
        # with a problem the round ends: its partitions are read in the next one
        return ProducerUpdates(found, is_all or bool(problem))

    async def _leaders(self) -> Mapping[int, list[int]]:
        """Partitions by leader; none while the source has no transactions."""
        known = self._client.cluster.topics.get(TRANSACTIONS_TOPIC)
        if known is None or any(partition.leader_id < 0 for partition in known.partitions.values()):
            known = (await reached(self._client.metadata([TRANSACTIONS_TOPIC]))).topics.get(TRANSACTIONS_TOPIC)
        leaders: dict[int, list[int]] = {}
        for index, partition in ({} if known is None else known.partitions).items():
            if partition.leader_id >= 0:
                leaders.setdefault(partition.leader_id, []).append(index)
        if known is None or not known.partitions:
            self._client.forget_leaders([TRANSACTIONS_TOPIC])
        return leaders

    async def _fetch(self, node_id: int, partitions: Sequence[int]) -> list[PartitionFetched]:
        known = self._client.cluster.topics.get(TRANSACTIONS_TOPIC)
        wanted = [PartitionToFetch(index, self._positions.get(index, 0), PARTITION_BYTES) for index in partitions]
        topic = TopicToFetch(TRANSACTIONS_TOPIC, None if known is None else known.topic_id, wanted)
        request = FetchRequest([topic], max_wait_ms=0, min_bytes=0, max_bytes=FETCH_BYTES)
        response = await reached(self._client.fetch(node_id, request))
        return [partition for topic in response.topics for partition in topic.partitions]

    async def _taken(self, fetched: PartitionFetched) -> Mapping[str, TransactionalProducer | None]:
        """The producers of one partition's answer; its position moves behind them."""
        index, code = fetched.partition_index, error_code(fetched.error_code)
        key = (TRANSACTIONS_TOPIC, index)
        if code is ErrorCode.offset_out_of_range:  # The log was created again, or retention has moved its start.
            self._positions[index] = (await reached(self._client.offsets_at([key], EARLIEST_TIMESTAMP)))[key]
            return {}
        if code is not ErrorCode.none:
            self._client.forget_leaders([TRANSACTIONS_TOPIC])
            return self._passed_over(index, code.name)
        raw = fetched.records
        if not isinstance(raw, bytes | bytearray | memoryview) or not raw:
            return {}
        try:
            headers = list(iterate_headers(raw, may_end_in_partial=True))
            # the last batch of a response may be incomplete; its records come with the next fetch
            end = headers[-1][0] + headers[-1][1].size_bytes if headers else 0
            found = producers_in(decode_records(memoryview(raw)[:end]), index)
        except InvalidBatch as error:
            return self._passed_over(index, str(error))
        self._problems.pop(index, None)
        if headers:
            self._positions[index] = headers[-1][1].next_offset
        return found

    def _passed_over(self, index: int, reason: str) -> Mapping[str, TransactionalProducer | None]:
        """The partition is asked again in the next round; the others are not kept waiting for
        it.
        """
        if self._problems.get(index) != reason:
            _log.warning("cannot read the producers of the source", partition=index, reason=reason)
        self._problems[index] = reason
        return {}


def producers_in(records: Iterable[Record], partition: int) -> dict[str, TransactionalProducer | None]:
    """The last record of each transactional id; records that a mirror wrote there are left out."""
    found: dict[str, TransactionalProducer | None] = {}
    for record in records:
        # a damaged record must not stop the producers behind it
        try:
            name = None if record.key is None else decode_transaction_key(record.key)
            value = None if record.value is None else decode_transaction_value(record.value)
        except Malformed as error:
            _log.warning("skipped a transaction record", partition=partition, offset=record.offset, reason=str(error))
            continue
        if name is None:
            continue
        # a mirrored producer belongs to the other site: mirroring it back would make a circle
        if value is None or value.is_carried:
            found[name] = None
        else:
            found[name] = TransactionalProducer(value.producer_id, value.producer_epoch, value.timeout_ms)
    return found


class KafkaProducersOfTarget:
    """ProducersOfTarget: the coordinators, looked up once for each id, and again after a
    refusal.
    """

    def __init__(self, client: KafkaClient) -> None:
        self._client = client
        self._coordinators: dict[str, int] = {}

    async def carry(
        self, producers: Mapping[str, TransactionalProducer], *, link: str, link_epoch: int
    ) -> Mapping[str, ErrorCode]:
        """Carry the producers with one request to each coordinator."""
        turns = asyncio.Semaphore(LOOKUPS_AT_ONCE)
        outcomes: dict[str, ErrorCode] = {}

        async def locate(name: str) -> None:
            async with turns:
                try:
                    self._coordinators[name] = await self._client.transaction_coordinator(name)
                except BrokerError as error:
                    outcomes[name] = error.code

        await reached(_all(locate(name) for name in producers if name not in self._coordinators))
        by_node: dict[int, list[str]] = {}
        for name in producers:
            if name in self._coordinators:
                by_node.setdefault(self._coordinators[name], []).append(name)
        for node_id, names in by_node.items():
            fields = [{"transactional_id": name, **producers[name]._asdict()} for name in names]
            request = self._client.mirror_transactional_ids(node_id, fields, link=link, link_epoch=link_epoch)
            try:
                outcomes |= await reached(request)
            except Unreachable:
                outcomes |= dict.fromkeys(names, ErrorCode.coordinator_not_available)
        # the coordinator may have moved: look it up again before the next attempt
        for name in producers:
            if outcomes.get(name) is not ErrorCode.none:
                self._coordinators.pop(name, None)
        return outcomes


async def _all(calls: Iterable[Coroutine[Any, Any, None]]) -> None:
    await asyncio.gather(*calls)
