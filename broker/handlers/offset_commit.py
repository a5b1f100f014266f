"""OffsetCommit: keep a group's offsets; answered when they are in the log of every in-sync replica.

Behaviour: partitions that no site knows get UNKNOWN_TOPIC_OR_PARTITION, metadata that is too long OFFSET_METADATA_TOO_LARGE, the others are
kept. Without member and generation: for groups without members. Versions: 2 to 10; 2 to 4 may name a retention time, 10 names topics by
their ids (UNKNOWN_TOPIC_ID when there is none).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from broker.core.group_messages import CommitOffsets, CommittedOffset, TopicPartition
from broker.entities import builder, topic_id_bytes
from broker.services import BrokerServices, RequestContext
from broker.state_shard import CoordinatorRefusal

API_KEY = 8
MIN_VERSION = 2
MAX_VERSION = 10

_TOPIC_IDS_FROM = 10

BROKERS_RETENTION_MS = -1


async def handle(services: BrokerServices, context: RequestContext, request: Any) -> Any:
    """Answer an OffsetCommit request."""
    image = services.image
    names = image.topic_names if context.api_version >= _TOPIC_IDS_FROM else None

    def is_known(partition: TopicPartition) -> bool:
        routed = image.routed_topic(partition.topic)
        return routed is not None and partition.partition in routed.topic.partitions

    command = CommitOffsets(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=getattr(request, "group_instance_id", None),
        generation=request.generation_id_or_member_epoch,
        offsets=named_offsets(request, is_known, names),
    )
    try:
        reply = await services.groups.commit(command)
        return response(API_KEY, context, request, reply.error, reply.errors, names)
    except CoordinatorRefusal as refusal:
        return response(API_KEY, context, request, refusal.code, {}, names)


def _name_of(topic: Any, names: Mapping[bytes, str] | None) -> str:
    """The topic's name; that behind its id where requests name ids, empty for an unknown one."""
    name: str = topic.name if names is None else names.get(topic_id_bytes(topic.topic_id), "")
    return name


def named_offsets(
    request: Any, is_known: Callable[[TopicPartition], bool], names: Mapping[bytes, str] | None = None
) -> Mapping[TopicPartition, CommittedOffset]:
    """The request's offsets of partitions that are known; `names` by topic id for a request that names ids."""
    retention_ms = retention_of(request)
    offsets = {}
    for topic in request.topics:
        for named in topic.partitions:
            partition = TopicPartition(_name_of(topic, names), named.partition_index)
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
    api_key: int,
    context: RequestContext,
    request: Any,
    error: ErrorCode,
    errors: Mapping[TopicPartition, ErrorCode],
    names: Mapping[bytes, str] | None = None,
) -> Any:
    """The outcome by partition, in the request's order; `error` stands for all when it is one."""
    build = builder(api_key, context.api_version)
    kind = "TxnOffsetCommit" if build.has("TxnOffsetCommitResponseTopic") else "OffsetCommit"

    def outcome(partition: TopicPartition) -> ErrorCode:
        if error is not ErrorCode.none:
            return error
        unknown = ErrorCode.unknown_topic_or_partition if partition.topic else ErrorCode.unknown_topic_id
        return errors.get(partition, unknown)

    return build.response(
        topics=tuple(
            build.part(
                f"{kind}ResponseTopic",
                **({"name": topic.name} if names is None else {"topic_id": topic.topic_id}),
                partitions=tuple(
                    build.part(
                        f"{kind}ResponsePartition",
                        partition_index=named.partition_index,
                        error_code=outcome(TopicPartition(_name_of(topic, names), named.partition_index)),
                    )
                    for named in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )
