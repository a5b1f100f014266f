"""The offsets that a commit names, and the outcome of each partition.

Shared by OffsetCommit, TxnOffsetCommit and MirrorOffsetCommit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from kio.schema.errors import ErrorCode

from broker.groups.core.group_messages import CommittedOffset
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder, topic_id_bytes
from wire.protocol.ids import NO_EPOCH, TopicPartition
from wire.protocol.messages.offset_commit_codec import BROKERS_RETENTION_MS

Names = Mapping[bytes, str]


def outcome_of(partition: TopicPartition, error: ErrorCode, errors: Mapping[TopicPartition, ErrorCode]) -> ErrorCode:
    """The error of one partition; `error` applies to the whole request."""
    if error is not ErrorCode.none:
        return error
    unknown = ErrorCode.unknown_topic_or_partition if partition.topic else ErrorCode.unknown_topic_id
    return errors.get(partition, unknown)


def name_of(topic: Any, names: Names | None) -> str:
    """The topic's name; for requests with ids, the name of that id, empty if it is unknown."""
    name: str = topic.name if names is None else names.get(topic_id_bytes(topic.topic_id), "")
    return name


def named_offsets(
    request: Any,
    is_known: Callable[[TopicPartition], bool],
    names: Names | None = None,
    *,
    retention_ms: int = BROKERS_RETENTION_MS,
) -> Mapping[TopicPartition, CommittedOffset]:
    """The request's offsets for known partitions; `names` by topic id for a request with ids."""
    offsets = {}
    for topic in request.topics:
        name = name_of(topic, names)
        for named in topic.partitions:
            partition = TopicPartition(name, named.partition_index)
            if is_known(partition):
                offsets[partition] = CommittedOffset(
                    named.committed_offset,
                    getattr(named, "committed_leader_epoch", NO_EPOCH),
                    named.committed_metadata or "",
                    retention_ms,
                )
    return offsets


def response(
    api_key: int,
    context: RequestContext,
    request: Any,
    error: ErrorCode,
    errors: Mapping[TopicPartition, ErrorCode],
) -> Any:
    """The result for each partition, in the order of a request of one of the other commit APIs;
    `error` applies to all.
    """
    build = builder(api_key, context.api_version)
    kind = "TxnOffsetCommit" if build.has("TxnOffsetCommitResponseTopic") else "OffsetCommit"
    return build.response(
        topics=tuple(
            build.part(
                f"{kind}ResponseTopic",
                name=topic.name,
                partitions=tuple(
                    build.part(
                        f"{kind}ResponsePartition",
                        partition_index=named.partition_index,
                        error_code=outcome_of(TopicPartition(topic.name, named.partition_index), error, errors),
                    )
                    for named in topic.partitions
                ),
            )
            for topic in request.topics
        )
    )
