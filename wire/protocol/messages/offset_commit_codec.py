"""OffsetCommit requests and responses, written by hand for versions 2 to 10.

A broker with many consumers answers thousands a second, each of one or a few partitions; kio takes
about 80 µs to read one and to write its answer. One set of types serves all versions. A property
test holds the bytes against kio's for every version.

Topics carry names up to version 9 and ids in version 10; the other one is empty.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from wire.protocol.byte_reader import Buffer, ByteReader
from wire.protocol.byte_writer import NO_TAGS, count_bytes, string_bytes, uuid_bytes
from wire.protocol.ids import NO_EPOCH

API_KEY: Final = 8
LOWEST_VERSION: Final = 2
HIGHEST_VERSION: Final = 10

BROKERS_RETENTION_MS: Final = -1

_LAST_WITH_RETENTION: Final = 4
_THROTTLE_FROM: Final = 3
_LEADER_EPOCH_FROM: Final = 6
_INSTANCE_ID_FROM: Final = 7
_FLEXIBLE_FROM: Final = 8
_TOPIC_IDS_FROM: Final = 10

_PARTITION_BYTES_MIN: Final = 14
_TOPIC_BYTES_MIN: Final = 3
_INT32: Final = struct.Struct(">i").pack
_OFFSET: Final = struct.Struct(">iq")
_OFFSET_WITH_EPOCH: Final = struct.Struct(">iqi")
_OUTCOME: Final = struct.Struct(">ih").pack


class PartitionOffset(NamedTuple):
    """The offset of one partition."""

    partition_index: int
    committed_offset: int
    committed_leader_epoch: int
    committed_metadata: str | None


class TopicOffsets(NamedTuple):
    """The partitions of one topic."""

    name: str
    topic_id: UUID | None
    partitions: Sequence[PartitionOffset]


class OffsetCommitRequest(NamedTuple):
    """Offsets that a member, or a tool without membership, commits for a group."""

    group_id: str
    generation: int
    member_id: str
    group_instance_id: str | None
    retention_ms: int
    topics: Sequence[TopicOffsets]


class TopicOutcome(NamedTuple):
    """Error codes of one topic's partitions, by partition, in the request's order."""

    name: str
    topic_id: UUID | None
    partitions: Sequence[tuple[int, int]]


def parse_offset_commit_request(frame: Buffer, position: int, version: int) -> OffsetCommitRequest:
    """The request whose body begins at `position`. Raises Malformed."""
    reader = ByteReader(frame, position)
    flexible = version >= _FLEXIBLE_FROM
    group_id = reader.string(flexible=flexible)
    generation = reader.int32()
    member_id = reader.string(flexible=flexible)
    instance_id = reader.nullable_string(flexible=flexible) if version >= _INSTANCE_ID_FROM else None
    retention_ms = reader.int64() if version <= _LAST_WITH_RETENTION else BROKERS_RETENTION_MS
    count = reader.count(flexible=flexible, element_size_min=_TOPIC_BYTES_MIN)
    topics = [_read_topic(reader, version) for _ in range(count)]
    if flexible:
        reader.skip_tags()
    return OffsetCommitRequest(
        group_id=group_id,
        generation=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        retention_ms=retention_ms,
        topics=topics,
    )


def _read_topic(reader: ByteReader, version: int) -> TopicOffsets:
    flexible, has_id = version >= _FLEXIBLE_FROM, version >= _TOPIC_IDS_FROM
    topic_id = reader.nullable_uuid() if has_id else None
    name = "" if has_id else reader.string(flexible=flexible)
    partitions = []
    for _ in range(reader.count(flexible=flexible, element_size_min=_PARTITION_BYTES_MIN)):
        if version >= _LEADER_EPOCH_FROM:
            index, offset, leader_epoch = reader.fields(_OFFSET_WITH_EPOCH)
        else:
            index, offset, leader_epoch = *reader.fields(_OFFSET), NO_EPOCH
        partitions.append(PartitionOffset(index, offset, leader_epoch, reader.nullable_string(flexible=flexible)))
        if flexible:
            reader.skip_tags()
    if flexible:
        reader.skip_tags()
    return TopicOffsets(name, topic_id, partitions)


def encode_offset_commit_response(topics: Sequence[TopicOutcome], version: int, *, throttle_time_ms: int = 0) -> bytes:
    """The body of a response."""
    flexible, has_id = version >= _FLEXIBLE_FROM, version >= _TOPIC_IDS_FROM
    parts = [_INT32(throttle_time_ms)] if version >= _THROTTLE_FROM else []
    parts.append(count_bytes(len(topics), flexible=flexible))
    for name, topic_id, outcomes in topics:
        parts.append(uuid_bytes(topic_id) if has_id else string_bytes(name, flexible=flexible))
        parts.append(count_bytes(len(outcomes), flexible=flexible))
        for index, error_code in outcomes:
            parts.append(_OUTCOME(index, error_code))
            if flexible:
                parts.append(NO_TAGS)
        if flexible:
            parts.append(NO_TAGS)
    if flexible:
        parts.append(NO_TAGS)
    return b"".join(parts)
