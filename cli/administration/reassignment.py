"""Reassigns partitions between the brokers of one site over the Kafka protocol: reads assignments,
requests moves, sets and removes throttles. Requests go to any broker of that site, never to the
other site of a link. Called by cli/administration/reassign.py and cli/administration/elect.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from cli.administration.reassignment_plan import Plan
from cli.shared.failures import missing_topic
from runtime.process import OperationalFailure
from wire.client.client_errors import Unreachable
from wire.protocol.ids import TopicPartition

if TYPE_CHECKING:
    from wire.client.cluster_metadata import ClusterMetadata
    from wire.client.connection import Connection
    from wire.client.raw_client import KafkaClient

ELECT_LEADERS, INCREMENTAL_ALTER_CONFIGS, ALTER_REASSIGNMENTS, LIST_REASSIGNMENTS = 43, 44, 45, 46
TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
LEADER_RATE, FOLLOWER_RATE = "leader.replication.throttled.rate", "follower.replication.throttled.rate"
LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_REPLICAS, FOLLOWER_REPLICAS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"
TIMEOUT_MS = 30_000
Changes = Mapping[str, str | None]
"""Configs to set, or with None to remove."""


class Ongoing(NamedTuple):
    """A reassignment in progress."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class Outcome(NamedTuple):
    """The outcome for one partition; `error` is empty if the controller accepted the request."""

    place: TopicPartition
    error: str
    message: str


async def site_metadata(client: KafkaClient, topics: Sequence[str] | None = None) -> ClusterMetadata:
    """The brokers of the site, and its topics or those named. OperationalFailure when one of these
    is not there.
    """
    found = await client.metadata(topics)
    for topic in topics or ():
        if topic not in found.topics or found.topics[topic].error_code:
            raise missing_topic(topic)
    return found


def assignment(
    metadata: ClusterMetadata, places: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, tuple[int, ...]]:
    """Replicas by partition, of the given ones or of all. OperationalFailure when one of the given
    ones is not there.
    """
    known = {
        TopicPartition(name, index): tuple(partition.replicas)
        for name, topic in metadata.topics.items()
        for index, partition in topic.partitions.items()
    }
    if places is None:
        return known
    missing = [place for place in places if place not in known]
    if missing:
        raise OperationalFailure(f"partition {missing[0]} is not there")
    return {place: known[place] for place in places}


async def any_broker(client: KafkaClient) -> Connection:
    """A connection to any broker of the site, which forwards requests to the controller."""
    brokers = client.cluster.brokers or (await client.metadata([])).brokers
    for node in sorted(brokers):
        try:
            return await client.connection(node)
        except Unreachable as error:
            refusal = error
    raise refusal


async def ongoing(client: KafkaClient) -> dict[TopicPartition, Ongoing]:
    """Every reassignment in progress."""
    response = await (await any_broker(client)).call(LIST_REASSIGNMENTS, {"topics": None})
    _check(response, "reassignments cannot be listed")
    return {
        TopicPartition(topic.name, partition.partition_index): Ongoing(
            tuple(partition.replicas), tuple(partition.adding_replicas), tuple(partition.removing_replicas)
        )
        for topic in response.topics
        for partition in topic.partitions
    }


async def order(client: KafkaClient, plan: Mapping[TopicPartition, tuple[int, ...] | None]) -> list[Outcome]:
    """Request these replicas; None cancels a reassignment in progress."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for place, replicas in sorted(plan.items()):
        topics.setdefault(place.topic, []).append({"partition_index": place.partition, "replicas": replicas})
    asked = {"topics": [{"name": name, "partitions": partitions} for name, partitions in topics.items()]}
    response = await (await any_broker(client)).call(ALTER_REASSIGNMENTS, asked, timeout_ms=TIMEOUT_MS)
    _check(response, "partitions cannot be reassigned")
    return [
        _outcome(TopicPartition(topic.name, partition.partition_index), partition)
        for topic in response.responses
        for partition in topic.partitions
    ]


async def elect(client: KafkaClient, places: Iterable[TopicPartition] | None, *, is_unclean: bool) -> list[Outcome]:
    """Elect leaders of these partitions, or of all."""
    topics: dict[str, list[int]] = {}
    for place in places or ():
        topics.setdefault(place.topic, []).append(place.partition)
    named = [{"topic": name, "partitions": indexes} for name, indexes in topics.items()]
    asked = {"election_type": int(is_unclean), "topic_partitions": None if places is None else named}
    response = await (await any_broker(client)).call(ELECT_LEADERS, asked, timeout_ms=TIMEOUT_MS)
    _check(response, "no leader can be elected")
    return [
        _outcome(TopicPartition(topic.topic, partition.partition_id), partition)
        for topic in response.replica_election_results
        for partition in topic.partition_result
    ]


async def throttle(client: KafkaClient, before: Plan, plan: Plan, bytes_per_second: int) -> None:
    """Throttle the moves: each broker sends and receives at most this many bytes per second for
    them.

    The same settings as those of kafka-reassign-partitions.sh, so either tool can remove a throttle
    that the other one set.
    """
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    for place, replicas in sorted(plan.items()):
        added = [node for node in replicas if node not in before[place]]
        if added:
            leaders.setdefault(place.topic, []).extend(f"{place.partition}:{node}" for node in before[place])
            followers.setdefault(place.topic, []).extend(f"{place.partition}:{node}" for node in added)
    for topic, sending in leaders.items():
        await _alter(client, topic, {LEADER_REPLICAS: ",".join(sending), FOLLOWER_REPLICAS: ",".join(followers[topic])})
    rate = str(bytes_per_second)
    for node in sorted({node for replicas in (*before.values(), *plan.values()) for node in replicas}):
        await _alter(client, node, {LEADER_RATE: rate, FOLLOWER_RATE: rate})


async def throttle_directories(client: KafkaClient, nodes: Collection[int], bytes_per_second: int) -> None:
    """Throttle moves between the log directories of each of these brokers."""
    for node in sorted(nodes):
        await _alter(client, node, {LOG_DIRS_RATE: str(bytes_per_second)})


async def remove_throttle(client: KafkaClient, topics: Collection[str], *, movers: Collection[int] = ()) -> None:
    """Remove the configs that `throttle` set at topics and live brokers, and those of
    `throttle_directories` at `movers`.
    """
    for node in sorted(movers):
        await _alter(client, node, {LOG_DIRS_RATE: None})
    for topic in sorted(topics):
        await _alter(client, topic, {LEADER_REPLICAS: None, FOLLOWER_REPLICAS: None})
    for node in sorted((await client.metadata([])).brokers):
        await _alter(client, node, {LEADER_RATE: None, FOLLOWER_RATE: None})


async def _alter(client: KafkaClient, entity: str | int, changes: Changes) -> None:
    is_broker = isinstance(entity, int)
    connection = await (client.connection(int(entity)) if is_broker else any_broker(client))
    configs = [
        {"name": name, "config_operation": DELETE if value is None else SET, "value": value}
        for name, value in changes.items()
    ]
    resource = {"resource_type": BROKER if is_broker else TOPIC, "resource_name": str(entity), "configs": configs}
    response = await connection.call(INCREMENTAL_ALTER_CONFIGS, {"resources": [resource], "validate_only": False})
    what = f"broker {entity}" if is_broker else f"topic {entity}"
    _check(response.responses[0], f"the throttle of {what} cannot be changed")


def _check(answer: Any, what: str) -> None:
    if getattr(answer, "error_code", 0):
        raise OperationalFailure(f"{what}: {answer.error_code.name.upper()}: {answer_message(answer)}")


def _outcome(place: TopicPartition, answer: Any) -> Outcome:
    if not answer.error_code:
        return Outcome(place, "", "")
    return Outcome(place, answer.error_code.name.upper(), answer_message(answer))


def answer_message(answer: Any) -> str:
    """A broker's message beside an error code."""
    return getattr(answer, "error_message", None) or "no reason given"
