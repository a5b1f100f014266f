"""OffsetDelete: removes a group's offsets of some partitions.

Behaviour: GROUP_SUBSCRIBED_TO_TOPIC for topics that a member subscribes to; partitions without an
offset succeed, those that no site knows get UNKNOWN_TOPIC_OR_PARTITION (their offsets are removed
when the topic is deleted). Versions: 0. Not done: nothing.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.coordination.state_shard import CoordinatorRefusal
from broker.groups.coordinator import GroupCoordinator
from broker.groups.core.group_messages import DeleteOffsets, PartitionsReply
from broker.metadata.cluster import Cluster
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from wire.protocol.ids import TopicPartition

API_KEY = 47
MIN_VERSION = 0
MAX_VERSION = 0


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    cluster: Cluster
    groups: GroupCoordinator


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer an OffsetDelete request."""
    image = doors.cluster.image
    partitions = tuple(
        TopicPartition(topic.name, named.partition_index)
        for topic in request.topics
        if (routed := image.routed_topic(topic.name)) is not None
        for named in topic.partitions
        if named.partition_index in routed.topic.partitions
    )
    try:
        reply = await doors.groups.delete_offsets(DeleteOffsets(group_id=request.group_id, partitions=partitions))
    except CoordinatorRefusal as refusal:
        reply = PartitionsReply(error=refusal.code)
    build = builder(API_KEY, context.api_version)
    if reply.error is not ErrorCode.none:
        return build.response(error_code=reply.error, topics=())
    return build.response(
        error_code=ErrorCode.none,
        topics=tuple(
            build.part(
                "OffsetDeleteResponseTopic",
                name=topic.name,
                partitions=tuple(_outcome(build, reply, topic.name, named) for named in topic.partitions),
            )
            for topic in request.topics
        ),
    )


def _outcome(build: Any, reply: PartitionsReply, topic: str, named: Any) -> Any:
    partition = TopicPartition(topic, named.partition_index)
    return build.part(
        "OffsetDeleteResponsePartition",
        partition_index=named.partition_index,
        error_code=reply.errors.get(partition, ErrorCode.unknown_topic_or_partition),
    )
