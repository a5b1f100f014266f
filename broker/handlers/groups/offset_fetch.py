"""OffsetFetch: a group's committed offsets.

Behaviour: null topics mean all partitions with an offset (an empty list means none, from version 2
on); a partition without an offset is answered with -1 and no error. With require_stable a partition
whose offset an open transaction may still change gets UNSTABLE_OFFSET_COMMIT, and the client asks
again (KIP-447). Versions: 1 to 10; from 8 on several groups at once, 10 names topics by their ids
(UNKNOWN_TOPIC_ID when there is none; a deleted topic is left out if all topics are requested). A
member of a KIP-848 group names itself with its epoch (version 9).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import groupby
from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.coordination.state_shard import CoordinatorRefusal
from broker.groups.coordinator import GroupCoordinator
from broker.groups.core.consumer_protocol.consumer_group_offsets import fetch_error
from broker.groups.core.group_offsets import Offsets
from broker.metadata.cluster import Cluster
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder, topic_id_bytes, topic_uuid
from wire.protocol.ids import NO_EPOCH, NO_OFFSET, TopicPartition

API_KEY = 9
MIN_VERSION = 1
MAX_VERSION = 10

_SEVERAL_GROUPS_FROM = 8
_TOPIC_IDS_FROM = 10
_GROUP_ERROR_FROM = 2


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    cluster: Cluster
    groups: GroupCoordinator


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer an OffsetFetch request."""
    build = builder(API_KEY, context.api_version)
    if context.api_version >= _SEVERAL_GROUPS_FROM:
        groups = tuple(_group(doors, context, group, is_stable=request.require_stable) for group in request.groups)
        return build.response(groups=groups)
    error, offsets = _offsets(doors, context, request.group_id)
    unstable = _unstable(doors, request.group_id, is_stable=getattr(request, "require_stable", False))
    names = "OffsetFetchResponseTopic", "OffsetFetchResponsePartition"
    if error is not ErrorCode.none and context.api_version >= _GROUP_ERROR_FROM:
        return build.response(topics=(), error_code=error)
    return build.response(
        topics=_topics(build, names, wanted=request.topics, offsets=offsets, error=error, is_unstable=unstable),
        error_code=error,
    )


def _unstable(doors: Doors, group_id: str, *, is_stable: bool) -> Callable[[TopicPartition], bool]:
    """A function that returns True if the client must wait for the end of a transaction."""
    return lambda partition: is_stable and doors.groups.has_pending_offset(group_id, partition)


def _group(doors: Doors, context: RequestContext, group: Any, *, is_stable: bool) -> Any:
    build = builder(API_KEY, context.api_version)
    error, offsets = _offsets(doors, context, group.group_id)
    if error is ErrorCode.none:
        error = _member_error(doors, group)
    names = "OffsetFetchResponseTopics", "OffsetFetchResponsePartitions"
    unstable = _unstable(doors, group.group_id, is_stable=is_stable)
    topics: tuple[Any, ...] = ()
    if error is ErrorCode.none and context.api_version >= _TOPIC_IDS_FROM:
        topics = _topics_by_id(doors, build, names=names, wanted=group.topics, offsets=offsets, is_unstable=unstable)
    elif error is ErrorCode.none:
        topics = _topics(build, names, wanted=group.topics, offsets=offsets, error=error, is_unstable=unstable)
    return build.part("OffsetFetchResponseGroup", group_id=group.group_id, topics=topics, error_code=error)


def _member_error(doors: Doors, group: Any) -> ErrorCode:
    """The error for a member of a KIP-848 group, which sends its id and epoch (version 9)."""
    consumers = doors.groups.describe_consumers(group.group_id, is_own_tool=True)
    if consumers is None:
        return ErrorCode.none
    return fetch_error(consumers, getattr(group, "member_id", None), getattr(group, "member_epoch", NO_EPOCH))


def _offsets(doors: Doors, context: RequestContext, group_id: str) -> tuple[ErrorCode, Offsets]:
    try:
        return ErrorCode.none, doors.groups.offsets_of(group_id, is_own_tool=context.is_own_tool)
    except CoordinatorRefusal as refusal:
        return refusal.code, {}


def _topics_by_id(
    doors: Doors,
    build: Any,
    names: tuple[str, str],
    wanted: Any,
    offsets: Offsets,
    is_unstable: Callable[[TopicPartition], bool],
) -> tuple[Any, ...]:
    image, (topic_name, partition_name) = doors.cluster.image, names
    if wanted is None:
        asked = [
            (topic_uuid(image.topics[name].topic_id), name, indexes)
            for name, indexes in _wanted(None, offsets)
            if name in image.topics
        ]
    else:
        asked = [
            (topic.topic_id, image.topic_names.get(topic_id_bytes(topic.topic_id), ""), topic.partition_indexes)
            for topic in wanted
        ]

    def outcome(partition: TopicPartition) -> ErrorCode:
        if not partition.topic:
            return ErrorCode.unknown_topic_id
        return ErrorCode.unstable_offset_commit if is_unstable(partition) else ErrorCode.none

    return tuple(
        build.part(
            topic_name,
            topic_id=topic_id,
            partitions=tuple(
                _partition(build, partition_name, partition, offsets, outcome(partition))
                for partition in (TopicPartition(name, index) for index in indexes)
            ),
        )
        for topic_id, name, indexes in asked
    )


def _topics(
    build: Any,
    names: tuple[str, str],
    wanted: Any,
    offsets: Offsets,
    error: ErrorCode,
    is_unstable: Callable[[TopicPartition], bool],
) -> tuple[Any, ...]:
    topic_name, partition_name = names

    def outcome(partition: TopicPartition) -> ErrorCode:
        is_waiting = error is ErrorCode.none and is_unstable(partition)
        return ErrorCode.unstable_offset_commit if is_waiting else error

    return tuple(
        build.part(
            topic_name,
            name=topic,
            partitions=tuple(
                _partition(build, partition_name, partition, offsets, outcome(partition))
                for partition in (TopicPartition(topic, index) for index in indexes)
            ),
        )
        for topic, indexes in _wanted(wanted, offsets)
    )


def _wanted(wanted: Any, offsets: Offsets) -> Iterable[tuple[str, Iterable[int]]]:
    if wanted is not None:
        return [(topic.name, topic.partition_indexes) for topic in wanted]
    by_topic = groupby(sorted(offsets), key=lambda partition: partition.topic)
    return [(topic, [partition.partition for partition in partitions]) for topic, partitions in by_topic]


def _partition(build: Any, name: str, partition: TopicPartition, offsets: Offsets, error: ErrorCode) -> Any:
    value = offsets.get(partition) if error is not ErrorCode.unstable_offset_commit else None
    return build.part(
        name,
        partition_index=partition.partition,
        committed_offset=NO_OFFSET if value is None else value.offset,
        committed_leader_epoch=NO_EPOCH if value is None else value.leader_epoch,
        metadata="" if value is None else value.metadata,
        error_code=error,
    )
