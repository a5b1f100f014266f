"""MirrorAppend requests without copying records; the bytes are those of `wire.private.MirrorAppendRequest`, version 0.

Responses are small and rare enough (one for megabytes of records) for kio: `frames.encode_response` and `decode_response`.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from wire.byte_reader import Buffer, ByteReader
from wire.byte_writer import NO_TAGS, count_bytes, string_bytes, uuid_bytes

_INT32: Final = struct.Struct(">i")
_PARTITION: Final = struct.Struct(">iqqqq")
_TOPIC_SIZE_MIN: Final = 19


class PartitionToMirror(NamedTuple):
    """One partition's next batches; empty or null records only move the other fields."""

    partition_index: int
    expected_log_end_offset: int
    source_high_watermark: int
    source_log_start_offset: int
    source_seen_at_ms: int
    records: Buffer | None


class TopicToMirror(NamedTuple):
    """The partitions of one topic."""

    name: str
    topic_id: UUID | None
    partitions: Sequence[PartitionToMirror]


class MirrorAppend(NamedTuple):
    """A MirrorAppend request."""

    link: str
    link_epoch: int
    topics: Sequence[TopicToMirror]


def parse_mirror_append(frame: Buffer, position: int) -> MirrorAppend:
    """The request whose body begins at `position`; records are views of `frame`. Raises Malformed."""
    reader = ByteReader(frame, position)
    link, link_epoch = reader.string(flexible=True), reader.int32()
    topics = []
    for _ in range(reader.count(flexible=True, element_size_min=_TOPIC_SIZE_MIN)):
        name, topic_id = reader.string(flexible=True), reader.nullable_uuid()
        count = reader.count(flexible=True, element_size_min=_PARTITION.size)
        topics.append(TopicToMirror(name, topic_id, [_read_partition(reader) for _ in range(count)]))
        reader.skip_tags()
    reader.skip_tags()
    return MirrorAppend(link, link_epoch, topics)


def _read_partition(reader: ByteReader) -> PartitionToMirror:
    index, expected, high_watermark, log_start, seen_at_ms = _PARTITION.unpack(reader.take(_PARTITION.size))
    records = reader.nullable_blob(flexible=True)
    partition = PartitionToMirror(index, expected, high_watermark, log_start, seen_at_ms, records)
    reader.skip_tags()
    return partition


def mirror_append_parts(request: MirrorAppend) -> tuple[list[Buffer], int]:
    """The request's body as parts to send one after the other, and their size; records are passed on, not copied."""
    pending = bytearray(string_bytes(request.link, flexible=True) + _INT32.pack(request.link_epoch))
    pending += count_bytes(len(request.topics), flexible=True)
    parts: list[Buffer] = []
    size = 0
    for topic in request.topics:
        pending += string_bytes(topic.name, flexible=True) + uuid_bytes(topic.topic_id)
        pending += count_bytes(len(topic.partitions), flexible=True)
        for partition in topic.partitions:
            records = partition.records
            pending += _PARTITION.pack(*partition[:5])
            pending += count_bytes(None if records is None else len(records), flexible=True)
            if records:
                parts += (pending, records)
                size += len(pending) + len(records)
                pending = bytearray()
            pending += NO_TAGS
        pending += NO_TAGS
    pending += NO_TAGS
    parts.append(pending)
    return parts, size + len(pending)
