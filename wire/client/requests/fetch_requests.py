"""Fetch requests, written by hand for all versions that kio describes (4 to 18); responses are in
wire/protocol/messages/fetch_codec.py.

One set of types serves all versions: the replica id, for one, moved from the front to a tagged
field in version 15, and callers need not know. The ids below zero are in wire/protocol/ids.py.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from wire.protocol.byte_reader import Buffer, ByteReader
from wire.protocol.byte_writer import NO_TAGS, count_bytes, string_bytes, tag_section, uuid_bytes
from wire.protocol.ids import CONSUMER
from wire.protocol.messages.fetch_codec import FLEXIBLE_FROM, read_topic, topic_bytes

UNKNOWN_HIGH_WATERMARK: Final = 2**63 - 1

_LOG_START_FROM: Final = 5
_SESSIONS_FROM: Final = 7
_LEADER_EPOCH_FROM: Final = 9
_RACK_FROM: Final = 11
_REPLICA_STATE_FROM: Final = 15
_DIRECTORY_FROM: Final = 17
_HIGH_WATERMARK_FROM: Final = 18

_INT32: Final = struct.Struct(">i")
_LIMITS: Final = struct.Struct(">iiib")
_SESSION: Final = struct.Struct(">ii")
_INT64: Final = struct.Struct(">q")
_REPLICA_STATE: Final = struct.Struct(">iq")
_PARTITIONS: Final = {
    4: struct.Struct(">iqi"),
    5: struct.Struct(">iqqi"),
    9: struct.Struct(">iiqqi"),
    12: struct.Struct(">iiqiqi"),
}


class PartitionToFetch(NamedTuple):
    """The position at which to read one partition. Only followers send `log_start_offset`,
    `replica_directory_id` and `high_watermark`.
    """

    partition_index: int
    fetch_offset: int
    partition_max_bytes: int
    current_leader_epoch: int = -1
    last_fetched_epoch: int = -1
    log_start_offset: int = -1
    replica_directory_id: UUID | None = None
    high_watermark: int = UNKNOWN_HIGH_WATERMARK


class TopicToFetch(NamedTuple):
    """The partitions of one topic."""

    name: str
    topic_id: UUID | None
    partitions: Sequence[PartitionToFetch]


class ForgottenTopic(NamedTuple):
    """Partitions to take out of a fetch session."""

    name: str
    topic_id: UUID | None
    partitions: Sequence[int]


class FetchRequest(NamedTuple):
    """A Fetch request of any version. The session defaults ask for a full fetch without a session
    (KIP-227).
    """

    topics: Sequence[TopicToFetch]
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 2**31 - 1
    isolation_level: int = 0
    replica_id: int = CONSUMER
    replica_epoch: int = -1
    session_id: int = 0
    session_epoch: int = -1
    forgotten_topics: Sequence[ForgottenTopic] = ()
    rack_id: str = ""
    cluster_id: str | None = None


def encode_fetch_request(request: FetchRequest, version: int) -> bytes:
    """The request's body; what a version does not know is left out."""
    flexible = version >= FLEXIBLE_FROM
    parts = [] if version >= _REPLICA_STATE_FROM else [_INT32.pack(request.replica_id)]
    parts.append(_LIMITS.pack(request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level))
    if version >= _SESSIONS_FROM:
        parts.append(_SESSION.pack(request.session_id, request.session_epoch))
    parts.append(count_bytes(len(request.topics), flexible=flexible))
    for topic in request.topics:
        parts += (
            topic_bytes(topic.name, topic.topic_id, version),
            count_bytes(len(topic.partitions), flexible=flexible),
        )
        parts += [_partition_bytes(partition, version) for partition in topic.partitions]
        if flexible:
            parts.append(NO_TAGS)
    if version >= _SESSIONS_FROM:
        parts.append(_forgotten_bytes(request.forgotten_topics, version))
    if version >= _RACK_FROM:
        parts.append(string_bytes(request.rack_id, flexible=flexible))
    if flexible:
        parts.append(_request_tags(request, version))
    return b"".join(parts)


def _partition_bytes(partition: PartitionToFetch, version: int) -> bytes:
    index, offset, max_bytes, leader_epoch, last_epoch, log_start, directory, high_watermark = partition
    if version < _LOG_START_FROM:
        return _PARTITIONS[4].pack(index, offset, max_bytes)
    if version < _LEADER_EPOCH_FROM:
        return _PARTITIONS[5].pack(index, offset, log_start, max_bytes)
    if version < FLEXIBLE_FROM:
        return _PARTITIONS[9].pack(index, leader_epoch, offset, log_start, max_bytes)
    packed = _PARTITIONS[12].pack(index, leader_epoch, offset, last_epoch, log_start, max_bytes)
    tagged = []
    if directory is not None and version >= _DIRECTORY_FROM:
        tagged.append((0, uuid_bytes(directory)))
    if high_watermark != UNKNOWN_HIGH_WATERMARK and version >= _HIGH_WATERMARK_FROM:
        tagged.append((1, _INT64.pack(high_watermark)))
    return packed + (tag_section(*tagged) if tagged else NO_TAGS)


def _forgotten_bytes(topics: Sequence[ForgottenTopic], version: int) -> bytes:
    flexible = version >= FLEXIBLE_FROM
    parts = [count_bytes(len(topics), flexible=flexible)]
    for topic in topics:
        parts += (
            topic_bytes(topic.name, topic.topic_id, version),
            count_bytes(len(topic.partitions), flexible=flexible),
        )
        parts += [_INT32.pack(index) for index in topic.partitions]
        if flexible:
            parts.append(NO_TAGS)
    return b"".join(parts)


def _request_tags(request: FetchRequest, version: int) -> bytes:
    tagged = []
    if request.cluster_id is not None:
        tagged.append((0, string_bytes(request.cluster_id, flexible=True)))
    # these values are the field's default, so a consumer leaves it out
    if version >= _REPLICA_STATE_FROM and (request.replica_id, request.replica_epoch) != (CONSUMER, -1):
        tagged.append((1, _REPLICA_STATE.pack(request.replica_id, request.replica_epoch) + NO_TAGS))
    return tag_section(*tagged)


def parse_fetch_request(frame: Buffer, position: int, version: int) -> FetchRequest:
    """The request whose body begins at `position`. Raises Malformed."""
    reader = ByteReader(frame, position)
    flexible = version >= FLEXIBLE_FROM
    replica_id, replica_epoch = (CONSUMER if version >= _REPLICA_STATE_FROM else reader.int32()), -1
    max_wait_ms, min_bytes, max_bytes, isolation_level = reader.int32(), reader.int32(), reader.int32(), reader.int8()
    session_id, session_epoch = (reader.int32(), reader.int32()) if version >= _SESSIONS_FROM else (0, -1)
    topics = []
    for _ in range(reader.count(flexible=flexible, element_size_min=3 if flexible else 6)):
        name, topic_id = read_topic(reader, version)
        count = reader.count(flexible=flexible, element_size_min=_PARTITIONS[4].size)
        topics.append(TopicToFetch(name, topic_id, [_read_partition(reader, version) for _ in range(count)]))
        if flexible:
            reader.skip_tags()
    forgotten = _read_forgotten(reader, version) if version >= _SESSIONS_FROM else []
    rack_id = reader.string(flexible=flexible) if version >= _RACK_FROM else ""
    cluster_id = None
    if flexible:
        for tag in reader.tags():
            if tag == 0:
                cluster_id = reader.nullable_string(flexible=True)
            elif tag == 1 and version >= _REPLICA_STATE_FROM:
                replica_id, replica_epoch = reader.int32(), reader.int64()
                reader.skip_tags()
    return FetchRequest(
        topics=topics,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        replica_id=replica_id,
        replica_epoch=replica_epoch,
        session_id=session_id,
        session_epoch=session_epoch,
        forgotten_topics=forgotten,
        rack_id=rack_id,
        cluster_id=cluster_id,
    )


def _read_partition(reader: ByteReader, version: int) -> PartitionToFetch:
    index = reader.int32()
    leader_epoch = reader.int32() if version >= _LEADER_EPOCH_FROM else -1
    offset = reader.int64()
    last_epoch = reader.int32() if version >= FLEXIBLE_FROM else -1
    log_start = reader.int64() if version >= _LOG_START_FROM else -1
    max_bytes = reader.int32()
    directory, high_watermark = None, UNKNOWN_HIGH_WATERMARK
    if version >= FLEXIBLE_FROM:
        for tag in reader.tags():
            if tag == 0 and version >= _DIRECTORY_FROM:
                directory = reader.nullable_uuid()
            elif tag == 1 and version >= _HIGH_WATERMARK_FROM:
                high_watermark = reader.int64()
    return PartitionToFetch(
        partition_index=index,
        fetch_offset=offset,
        partition_max_bytes=max_bytes,
        current_leader_epoch=leader_epoch,
        last_fetched_epoch=last_epoch,
        log_start_offset=log_start,
        replica_directory_id=directory,
        high_watermark=high_watermark,
    )


def _read_forgotten(reader: ByteReader, version: int) -> list[ForgottenTopic]:
    flexible = version >= FLEXIBLE_FROM
    topics = []
    for _ in range(reader.count(flexible=flexible, element_size_min=3 if flexible else 6)):
        name, topic_id = read_topic(reader, version)
        count = reader.count(flexible=flexible, element_size_min=4)
        topics.append(ForgottenTopic(name, topic_id, [reader.int32() for _ in range(count)]))
        if flexible:
            reader.skip_tags()
    return topics
