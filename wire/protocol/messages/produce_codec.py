"""Produce requests and responses, written by hand for all versions that kio describes (3 to 13).

The hottest message of a broker: kio would copy the records out of the receive buffer and takes
about 30 µs to encode a response. Here records stay slices of the frame, a response is a few packed
structures, and one set of types serves all versions, so that handlers do not care. A property test
holds the bytes against kio's for every version.

Topics carry names up to version 12 and ids from 13 on; the other one is empty.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from wire.protocol.byte_reader import Buffer, ByteReader
from wire.protocol.byte_writer import NO_TAGS, count_bytes, string_bytes, tag_section, uuid_bytes
from wire.protocol.messages.leader_hints import (
    NO_HINT,
    LeaderHint,
    NodeEndpoint,
    leader_hint_bytes,
    node_endpoints_bytes,
    read_leader_hint,
    read_node_endpoints,
)

API_KEY: Final = 0
LOWEST_VERSION: Final = 3
HIGHEST_VERSION: Final = 13

_FLEXIBLE_FROM: Final = 9
_LOG_START_FROM: Final = 5
_RECORD_ERRORS_FROM: Final = 8
_LEADER_HINTS_FROM: Final = 10
_TOPIC_IDS_FROM: Final = 13

_ACKS_AND_TIMEOUT: Final = struct.Struct(">hi")
_INT32: Final = struct.Struct(">i")
_PARTITION_BEFORE_LOG_START: Final = struct.Struct(">ihqq")
_PARTITION: Final = struct.Struct(">ihqqq")
_NO_ERRORS: Final = b"\x01\0\0"
"""No record errors, no message, no tags: how nearly every partition of a flexible response ends."""


class PartitionRecords(NamedTuple):
    """The records to append to one partition; None is null on the wire, which no broker accepts.

    `prefix` is sent before them: the new header of a batch whose records are not copied.
    """

    partition_index: int
    records: Buffer | None
    prefix: bytes = b""


class TopicRecords(NamedTuple):
    """The partitions of one topic."""

    name: str
    topic_id: UUID | None
    partitions: Sequence[PartitionRecords]


class ProduceRequest(NamedTuple):
    """A Produce request of any version; `acks` is 0, 1 or -1 for all."""

    transactional_id: str | None
    acks: int
    timeout_ms: int
    topics: Sequence[TopicRecords]


class RecordError(NamedTuple):
    """A record that made its batch fail (KIP-467)."""

    batch_index: int
    message: str | None


class PartitionProduced(NamedTuple):
    """The result for one partition's records."""

    partition_index: int
    error_code: int = 0
    base_offset: int = -1
    log_append_time_ms: int = -1
    log_start_offset: int = -1
    record_errors: Sequence[RecordError] = ()
    error_message: str | None = None
    current_leader: LeaderHint = NO_HINT


class TopicProduced(NamedTuple):
    """The partitions of one topic."""

    name: str
    topic_id: UUID | None
    partitions: Sequence[PartitionProduced]


class ProduceResponse(NamedTuple):
    """A Produce response of any version; what a version does not know is left out."""

    topics: Sequence[TopicProduced]
    throttle_time_ms: int = 0
    node_endpoints: Sequence[NodeEndpoint] = ()


def parse_produce_request(frame: Buffer, position: int, version: int) -> ProduceRequest:
    """The request whose body begins at `position`; records are views of `frame`. Raises
    Malformed.
    """
    reader = ByteReader(frame, position)
    flexible = version >= _FLEXIBLE_FROM
    transactional_id = reader.nullable_string(flexible=flexible)
    acks = reader.int16()
    timeout_ms = reader.int32()
    topics = []
    for _ in range(reader.count(flexible=flexible, element_size_min=3 if flexible else 6)):
        name, topic_id = _read_topic(reader, version)
        partitions = []
        for _ in range(reader.count(flexible=flexible, element_size_min=6 if flexible else 8)):
            index = reader.int32()
            # by `tuple.__new__`: the constructor of a named tuple is Python, and takes longer
            fields = index, reader.nullable_blob(flexible=flexible), b""
            partitions.append(tuple.__new__(PartitionRecords, fields))
            if flexible:
                reader.skip_tags()
        if flexible:
            reader.skip_tags()
        topics.append(tuple.__new__(TopicRecords, (name, topic_id, partitions)))
    if flexible:
        reader.skip_tags()
    return tuple.__new__(ProduceRequest, (transactional_id, acks, timeout_ms, topics))


def produce_request_parts(request: ProduceRequest, version: int) -> tuple[list[Buffer], int]:
    """The request's body as parts to send one after the other, and their size; records are passed
    on, not copied.
    """
    flexible = version >= _FLEXIBLE_FROM
    pending = bytearray(string_bytes(request.transactional_id, flexible=flexible))
    pending += _ACKS_AND_TIMEOUT.pack(request.acks, request.timeout_ms)
    pending += count_bytes(len(request.topics), flexible=flexible)
    parts: list[Buffer] = []
    size = 0
    for topic in request.topics:
        pending += _topic_bytes(topic.name, topic.topic_id, version)
        pending += count_bytes(len(topic.partitions), flexible=flexible)
        for partition in topic.partitions:
            records, prefix = partition.records, partition.prefix
            pending += _INT32.pack(partition.partition_index)
            pending += count_bytes(None if records is None else len(prefix) + len(records), flexible=flexible)
            pending += prefix
            if records:
                parts += (pending, records)
                size += len(pending) + len(records)
                pending = bytearray()
            if flexible:
                pending += NO_TAGS
        if flexible:
            pending += NO_TAGS
    if flexible:
        pending += NO_TAGS
    if pending:
        parts.append(pending)
    return parts, size + len(pending)


def encode_produce_response(response: ProduceResponse, version: int) -> bytes:
    """The response's body."""
    flexible = version >= _FLEXIBLE_FROM
    parts = [count_bytes(len(response.topics), flexible=flexible)]
    for topic in response.topics:
        parts.append(_topic_bytes(topic.name, topic.topic_id, version))
        parts.append(count_bytes(len(topic.partitions), flexible=flexible))
        parts += [_partition_bytes(partition, version) for partition in topic.partitions]
        if flexible:
            parts.append(NO_TAGS)
    parts.append(_INT32.pack(response.throttle_time_ms))
    if version >= _LEADER_HINTS_FROM and response.node_endpoints:
        parts.append(tag_section((0, node_endpoints_bytes(response.node_endpoints))))
    elif flexible:
        parts.append(NO_TAGS)
    return b"".join(parts)


def _partition_bytes(partition: PartitionProduced, version: int) -> bytes:
    if version < _LOG_START_FROM:
        return _PARTITION_BEFORE_LOG_START.pack(*partition[:4])
    start = _PARTITION.pack(*partition[:5])
    if version < _RECORD_ERRORS_FROM:
        return start
    flexible = version >= _FLEXIBLE_FROM
    if (
        flexible
        and not partition.record_errors
        and partition.error_message is None
        and partition.current_leader == NO_HINT
    ):
        return start + _NO_ERRORS
    parts = [start, count_bytes(len(partition.record_errors), flexible=flexible)]
    for error in partition.record_errors:
        parts += (_INT32.pack(error.batch_index), string_bytes(error.message, flexible=flexible))
        if flexible:
            parts.append(NO_TAGS)
    parts.append(string_bytes(partition.error_message, flexible=flexible))
    if version >= _LEADER_HINTS_FROM and partition.current_leader != NO_HINT:
        parts.append(tag_section((0, leader_hint_bytes(partition.current_leader))))
    elif flexible:
        parts.append(NO_TAGS)
    return b"".join(parts)


def parse_produce_response(frame: Buffer, position: int, version: int) -> ProduceResponse:
    """The response whose body begins at `position`. Raises Malformed."""
    reader = ByteReader(frame, position)
    flexible = version >= _FLEXIBLE_FROM
    topics = []
    for _ in range(reader.count(flexible=flexible, element_size_min=3 if flexible else 6)):
        name, topic_id = _read_topic(reader, version)
        count = reader.count(flexible=flexible, element_size_min=_PARTITION_BEFORE_LOG_START.size)
        partitions = [_read_partition(reader, version) for _ in range(count)]
        if flexible:
            reader.skip_tags()
        topics.append(TopicProduced(name, topic_id, partitions))
    throttle_time_ms = reader.int32()
    endpoints: Sequence[NodeEndpoint] = ()
    if flexible:
        for tag in reader.tags():
            if tag == 0 and version >= _LEADER_HINTS_FROM:
                endpoints = read_node_endpoints(reader)
    return ProduceResponse(topics, throttle_time_ms, endpoints)


def _read_partition(reader: ByteReader, version: int) -> PartitionProduced:
    flexible = version >= _FLEXIBLE_FROM
    index, error_code, base_offset, append_time_ms = reader.int32(), reader.int16(), reader.int64(), reader.int64()
    log_start_offset = reader.int64() if version >= _LOG_START_FROM else -1
    errors: list[RecordError] = []
    message, leader = None, NO_HINT
    if version >= _RECORD_ERRORS_FROM:
        for _ in range(reader.count(flexible=flexible, element_size_min=6)):
            errors.append(RecordError(reader.int32(), reader.nullable_string(flexible=flexible)))
            if flexible:
                reader.skip_tags()
        message = reader.nullable_string(flexible=flexible)
    if flexible:
        for tag in reader.tags():
            if tag == 0 and version >= _LEADER_HINTS_FROM:
                leader = read_leader_hint(reader)
    return PartitionProduced(
        partition_index=index,
        error_code=error_code,
        base_offset=base_offset,
        log_append_time_ms=append_time_ms,
        log_start_offset=log_start_offset,
        record_errors=errors,
        error_message=message,
        current_leader=leader,
    )


def _read_topic(reader: ByteReader, version: int) -> tuple[str, UUID | None]:
    if version >= _TOPIC_IDS_FROM:
        return "", reader.nullable_uuid()
    return reader.string(flexible=version >= _FLEXIBLE_FROM), None


def _topic_bytes(name: str, topic_id: UUID | None, version: int) -> bytes:
    if version >= _TOPIC_IDS_FROM:
        return uuid_bytes(topic_id)
    return string_bytes(name, flexible=version >= _FLEXIBLE_FROM)
