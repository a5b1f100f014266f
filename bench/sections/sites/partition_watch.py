"""Watches the partitions of a site as a client sees them: their leaders, their in-sync replicas,
and whether each accepts a record.

Each check covers all partitions at once: one Metadata, ListOffsets or Produce request to each
leader.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

from kio.schema.errors import ErrorCode

from bench.peers.systems import MeasuredSite
from runtime.process import OperationalFailure
from wire.batches.records import Record, encode_batch
from wire.client.client_errors import BrokerError, RequestTimedOut, Unreachable
from wire.client.cluster_metadata import PartitionMetadata
from wire.client.raw_client import KafkaClient, NewTopic, call_client
from wire.client.requests.broker_requests import OffsetQuery
from wire.protocol.ids import LATEST_TIMESTAMP, PartitionKey
from wire.protocol.messages.produce_codec import PartitionRecords, ProduceRequest, TopicRecords

WITHIN_S = 120
POLL_S = 0.02
REPLICAS = 3
PRODUCE_TIMEOUT_MS = 10_000
RECORD_BYTES = 100
_FAILURES = (BrokerError, Unreachable, RequestTimedOut)


def created_s(site: MeasuredSite, topic: str, partition_count: int) -> tuple[float, float, float]:
    """Create a topic; return the seconds until the call is answered, until each leader answers for
    each partition, and until each partition accepted a record with acks=all. Raises
    OperationalFailure with the broker's answer.
    """

    async def create(client: KafkaClient) -> tuple[float, float, float]:
        await client.metadata([])
        began = time.monotonic()
        wanted = NewTopic(name=topic, partition_count=partition_count, replication_factor=REPLICAS)
        (outcome,) = await client.create_topics([wanted])
        if outcome.error_code is not ErrorCode.none:
            raise OperationalFailure(f"topic {topic} cannot be created: {outcome.error_code.name}")
        answered_s = time.monotonic() - began
        await client.offsets_at([(topic, index) for index in range(partition_count)], LATEST_TIMESTAMP)
        led_s = time.monotonic() - began
        await _produce_to_each(client, topic, partition_count, began)
        return answered_s, led_s, time.monotonic() - began

    return call_client(site.bootstrap_servers, create)


async def _produce_to_each(client: KafkaClient, topic: str, partition_count: int, began: float) -> None:
    left = set(range(partition_count))
    record = Record(key=None, value=bytes(RECORD_BYTES), timestamp_ms=time.time_ns() // 1_000_000)
    batch = encode_batch([record])

    async def send(node_id: int, indexes: list[int]) -> None:
        records = [PartitionRecords(index, batch) for index in indexes]
        request = ProduceRequest(None, -1, PRODUCE_TIMEOUT_MS, [TopicRecords(topic, None, records)])
        response = await client.produce_to(node_id, request)
        assert response is not None  # acks are asked for
        left.difference_update(done.partition_index for done in response.topics[0].partitions if not done.error_code)

    while left:
        by_leader: dict[int, list[int]] = {}
        metadata = await client.metadata([topic])
        for index in left:
            by_leader.setdefault(metadata.leader_of(topic, index), []).append(index)
        by_leader.pop(-1, None)
        await asyncio.gather(*(send(node_id, indexes) for node_id, indexes in by_leader.items()))
        if left:
            _check_time(began, f"{len(left)} partitions of {topic} take no record")
            await asyncio.sleep(POLL_S)


def led_again_s(site: MeasuredSite, topics: Sequence[str], *, without: int, began: float) -> float:
    """Seconds since `began` until each partition has a leader other than `without`, and that leader
    answers for it.
    """
    return _until(
        site,
        topics,
        lambda partition: partition.leader_id not in (without, -1),
        began=began,
        is_asked=True,
    )


def in_sync_s(site: MeasuredSite, topics: Sequence[str], *, began: float) -> float:
    """Seconds since `began` until every replica is in sync."""
    return _until(site, topics, lambda found: len(found.isr) == len(found.replicas), began=began, is_asked=False)


def _until(
    site: MeasuredSite,
    topics: Sequence[str],
    is_so: Callable[[PartitionMetadata], bool],
    *,
    began: float,
    is_asked: bool,
) -> float:
    async def watch(client: KafkaClient) -> float:
        while True:
            try:
                metadata = await client.metadata(topics)
                found = [at for topic in metadata.topics.values() for at in topic.partitions.values()]
                is_done = bool(found) and all(is_so(partition) for partition in found)
                if is_done and (not is_asked or await _is_each_led(client, topics)):
                    return time.monotonic() - began
            except _FAILURES:
                is_done = False
            _check_time(began, "the partitions of the site are not as they should be")
            await asyncio.sleep(POLL_S)

    return call_client(_living(site), watch)


async def _is_each_led(client: KafkaClient, topics: Sequence[str]) -> bool:
    by_leader: dict[int, dict[PartitionKey, OffsetQuery]] = {}
    for topic in topics:
        for index, partition in client.cluster.topics[topic].partitions.items():
            by_leader.setdefault(partition.leader_id, {})[topic, index] = OffsetQuery(LATEST_TIMESTAMP)
    answers = await asyncio.gather(*(client.list_offsets(node, queries) for node, queries in by_leader.items()))
    return not any(listed.error_code for answer in answers for listed in answer.values())


def _living(site: MeasuredSite) -> str:
    """Node ids of brokers whose process runs: a client that first contacts a stopped broker would
    measure its own timeouts.
    """
    return ",".join(site.addresses[node_id] for node_id, child in site.children.items() if child.pid() is not None)


def _check_time(began: float, complaint: str) -> None:
    if time.monotonic() - began > WITHIN_S:
        raise OperationalFailure(f"after {WITHIN_S} s {complaint}")
