"""OffsetCommit: keep a group's offsets; answered when they are in the log of every in-sync replica.

Behaviour: partitions that no site knows get UNKNOWN_TOPIC_OR_PARTITION, metadata that is too long OFFSET_METADATA_TOO_LARGE, the others are
kept. Without member and generation: for groups without members. Versions: 2 to 9; 2 to 4 may name a retention time.
Not done: version 10 (topic ids).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from broker.core.group_messages import CommitOffsets, CommittedOffset, TopicPartition
from broker.entities import builder
from broker.services import BrokerServices, RequestContext
from broker.state_shard import CoordinatorRefusal

API_KEY = 8
MIN_VERSION = 2
MAX_VERSION = 9

BROKERS_RETENTION_MS = -1


async def handle(services: BrokerServices, context: RequestContext, request: Any) -> Any:
    """Answer an OffsetCommit request."""
    image = services.image

    def is_known(partition: TopicPartition) -> bool:
        routed = image.routed_topic(partition.topic)
        return routed is not None and partition.partition in routed.topic.partitions

    command = CommitOffsets(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=getattr(request, "group_instance_id", None),
        generation=request.generation_id_or_member_epoch,
        offsets=named_offsets(request, is_known),
    )
    try:
        reply = await services.groups.commit(command)
        return response(API_KEY, context, request, reply.error, reply.errors)
    except CoordinatorRefusal as refusal:
        return response(API_KEY, context, request, refusal.code, {})


def named_offsets(request: Any, is_known: Callable[[TopicPartition], bool]) -> Mapping[TopicPartition, CommittedOffset]:
    """The request's offsets of partitions that are known."""
    retention_ms = retention_of(request)
    offsets = {}
    for topic in request.topics:
        for named in topic.partitions:
            partition = TopicPartition(topic.name, named.partition_index)
            if is_known(partition):
                offsets[partition] = CommittedOffset(
                    named.committed_offset,
                    getattr(named, "committed_leader_epoch", -1),
                    named.committed_metadata or "",
                    retention_ms,
                )
    return offsets


def retention_of(request: Any) -> int:
    """The retention that the client asks for (ms), -1 for the broker's."""
    duration = getattr(request, "retention_time", None)
    return BROKERS_RETENTION_MS if duration is None else round(duration.total_seconds() * 1000)


def response(
    api_key: int, context: RequestContext, request: Any, error: ErrorCode, errors: Mapping[TopicPartition, ErrorCode]
) -> Any:
    """The outcome by partition, in the request's order; `error` stands for all when it is one."""
    build = builder(api_key, context.api_version)
    kind = "TxnOffsetCommit" if build.has("TxnOffsetCommitResponseTopic") else "OffsetCommit"

    def outcome(partition: TopicPartition) -> ErrorCode:
        return error if error is not ErrorCode.none else errors.get(partition, ErrorCode.unknown_topic_or_partition)

    return build.response(
        topics=tuple(
            build.part(
                f"{kind}ResponseTopic",
                name=topic.name,
                partitions=tuple(
                    build.part(
                        f"{kind}ResponsePartition",
                        partition_index=named.partition_index,
                        error_code=outcome(TopicPartition(topic.name, named.partition_index)),
                    )
                    for named in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )
