"""Asks brokers how many bytes the logs of partitions have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Final

from wire.client.client_errors import TRANSIENT, TransientBrokerError, UnsupportedApi
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import PartitionKey

DESCRIBE_LOG_DIRS: Final = 35


async def log_bytes(client: KafkaClient, partitions: Iterable[PartitionKey]) -> dict[PartitionKey, int]:
    """The size of each log at its leader, in bytes; without the logs that have no leader, or whose
    broker does not report it. Unreachable.
    """
    by_leader: dict[int, dict[str, list[int]]] = {}
    for topic, partition in partitions:
        with suppress(TransientBrokerError):
            at_leader = by_leader.setdefault(await client.leader(topic, partition), {})
            at_leader.setdefault(topic, []).append(partition)
    found: dict[PartitionKey, int] = {}
    for node, topics in by_leader.items():
        found |= await _at_node(client, node, topics)
    return found


async def _at_node(client: KafkaClient, node: int, topics: Mapping[str, list[int]]) -> dict[PartitionKey, int]:
    asked = [{"topic": topic, "partitions": tuple(partitions)} for topic, partitions in topics.items()]
    try:
        answer = await (await client.connection(node)).call(DESCRIBE_LOG_DIRS, {"topics": asked})
    except (UnsupportedApi, *TRANSIENT):
        return {}
    return {
        (topic.name, partition.partition_index): int(partition.partition_size)
        for directory in answer.results
        for topic in directory.topics
        for partition in topic.partitions
        # the copy in the directory to which a replica moves is not whole
        if not partition.is_future_key
    }
