"""MirrorAppend requests without copying records, and the target's responses; the bytes are those of
`wire.protocol.messages.private.MirrorAppendRequest` and `MirrorAppendResponse`, version 0.

Under a steady trickle a request holds a record or two, so the broker writes responses by hand, too:
through kio they took a tenth of its time. Mirrors read them through kio's native decoder
(`frames.decode_response`).
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from wire.protocol.byte_reader import Buffer, ByteReader
from wire.protocol.byte_writer import NO_TAGS, count_bytes, string_bytes, uuid_bytes

_INT32: Final = struct.Struct(">i")
_PARTITION: Final = struct.Struct(">iqqqq")
_ANSWER: Final = struct.Struct(">ih")
_ANSWER_ENDS: Final = struct.Struct(">qiiq")
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


class PartitionAppended(NamedTuple):
    """One partition's outcome, with the fields of `MirrorAppendPartitionResponse`."""

    partition_index: int
    error_code: int
    error_message: str | None
    log_end_offset: int
    link_epoch: int
    divergence_epoch: int
    divergence_end_offset: int


def encode_mirror_append_response(
    topics: Sequence[tuple[str, Sequence[PartitionAppended]]], *, throttle_time_ms: int
) -> bytes:
    """The response's body."""
    parts = [_INT32.pack(throttle_time_ms), count_bytes(len(topics), flexible=True)]
    for name, partitions in topics:
        parts += (string_bytes(name, flexible=True), count_bytes(len(partitions), flexible=True))
        for answer in partitions:
            parts += (
                _ANSWER.pack(answer.partition_index, answer.error_code),
                string_bytes(answer.error_message, flexible=True),
                _ANSWER_ENDS.pack(*answer[3:]),
                NO_TAGS,
            )
        parts.append(NO_TAGS)
    parts.append(NO_TAGS)
    return b"".join(parts)


def parse_mirror_append(frame: Buffer, position: int) -> MirrorAppend:
    """The request whose body begins at `position`; records are views of `frame`. Raises
    Malformed.
    """
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
    fields, records = reader.fields(_PARTITION), reader.nullable_blob(flexible=True)
    reader.skip_tags()
    return tuple.__new__(PartitionToMirror, (*fields, records))


def mirror_append_parts(request: MirrorAppend) -> tuple[list[Buffer], int]:
    """The request's body as parts to send one after the other, and their size; records are passed
    on, not copied.
    """
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
