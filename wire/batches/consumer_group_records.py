"""Records of KIP-848 consumer groups in `__consumer_offsets`, exactly as Apache Kafka lays them
out, so that its own tools read them.

| kind | key | value |
| --- | --- | --- |
| 3 | group | the group's epoch, and a hash of what its subscriptions match |
| 5 | group, member | the subscription that the member sent |
| 6 | group | the epoch of the target assignment |
| 7 | group, member | the member's target assignment |
| 8 | group, member | what the member owns now, and in which epoch |

Keys are not flexible, values are (version 0). A null value is a tombstone. Kind 4 (older brokers)
is passed over by `group_records.py`.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from wire.protocol.byte_reader import Buffer, ByteReader, Malformed
from wire.protocol.byte_writer import NO_TAGS, count_bytes, string_bytes, tag_section

GROUP_KIND: Final = 3
MEMBER_KIND: Final = 5
TARGET_EPOCH_KIND: Final = 6
TARGET_KIND: Final = 7
CURRENT_KIND: Final = 8

_KINDS_OF_GROUPS: Final = (GROUP_KIND, TARGET_EPOCH_KIND)
_KINDS_OF_MEMBERS: Final = (MEMBER_KIND, TARGET_KIND, CURRENT_KIND)
_VERSION: Final = b"\0\0"
_HASH_TAG: Final = 0
_CLASSIC_TAG: Final = 0
_PRESENT: Final = b"\1"
"""Precedes a structure that may be null."""

_INT8: Final = struct.Struct(">b").pack
_INT16: Final = struct.Struct(">h").pack
_INT32: Final = struct.Struct(">i").pack
_INT64: Final = struct.Struct(">q").pack

Partitions = Mapping[bytes, tuple[int, ...]]
"""Partition indexes by topic id."""


class ConsumerGroupKey(NamedTuple):
    """The key of one record of a group; `member_id` is empty for records of the whole group."""

    kind: int
    group: str
    member_id: str = ""


class GroupEpoch(NamedTuple):
    """Kind 3."""

    epoch: int
    metadata_hash: int = 0


class ClassicMember(NamedTuple):
    """The subscription of a member that joined by JoinGroup: part of kind 5."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


class MemberMetadata(NamedTuple):
    """Kind 5; `classic` is there for a member of the classic protocol."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topic_names: tuple[str, ...]
    topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicMember | None = None


class TargetEpoch(NamedTuple):
    """Kind 6."""

    epoch: int


class TargetAssignment(NamedTuple):
    """Kind 7."""

    partitions: Partitions


class CurrentAssignment(NamedTuple):
    """Kind 8; `state` is Kafka's number."""

    epoch: int
    previous_epoch: int
    state: int
    assigned: Partitions
    pending_revocation: Partitions


ConsumerGroupValue = GroupEpoch | MemberMetadata | TargetEpoch | TargetAssignment | CurrentAssignment


def encode_consumer_group_key(key: ConsumerGroupKey) -> bytes:
    """The key of a record."""
    raw = _INT16(key.kind) + string_bytes(key.group, flexible=False)
    return raw + string_bytes(key.member_id, flexible=False) if key.kind in _KINDS_OF_MEMBERS else raw


def decode_consumer_group_key(raw: Buffer) -> ConsumerGroupKey | None:
    """The key, None for another kind of record. Raises Malformed."""
    reader = ByteReader(raw)
    kind = reader.int16()
    if kind in _KINDS_OF_GROUPS:
        return ConsumerGroupKey(kind, reader.string(flexible=False))
    if kind in _KINDS_OF_MEMBERS:
        return ConsumerGroupKey(kind, reader.string(flexible=False), reader.string(flexible=False))
    return None


def encode_consumer_group_value(value: ConsumerGroupValue) -> bytes:
    """The value of a record."""
    match value:
        case GroupEpoch(epoch=epoch, metadata_hash=metadata_hash):
            tags = tag_section((_HASH_TAG, _INT64(metadata_hash))) if metadata_hash else NO_TAGS
            return _VERSION + _INT32(epoch) + tags
        case MemberMetadata():
            return _VERSION + _member(value)
        case TargetEpoch(epoch=epoch):
            return _VERSION + _INT32(epoch) + NO_TAGS
        case TargetAssignment(partitions=partitions):
            return _VERSION + _partitions(partitions) + NO_TAGS
        case CurrentAssignment():
            head = _INT32(value.epoch) + _INT32(value.previous_epoch) + _INT8(value.state)
            return _VERSION + head + _partitions(value.assigned) + _partitions(value.pending_revocation) + NO_TAGS


def _member(value: MemberMetadata) -> bytes:
    return b"".join(
        (
            string_bytes(value.instance_id, flexible=True),
            string_bytes(value.rack_id, flexible=True),
            string_bytes(value.client_id, flexible=True),
            string_bytes(value.client_host, flexible=True),
            count_bytes(len(value.topic_names), flexible=True),
            *(string_bytes(name, flexible=True) for name in value.topic_names),
            string_bytes(value.topic_regex, flexible=True),
            _INT32(value.rebalance_timeout_ms),
            string_bytes(value.server_assignor, flexible=True),
            NO_TAGS if value.classic is None else tag_section((_CLASSIC_TAG, _classic(value.classic))),
        )
    )


def _classic(value: ClassicMember) -> bytes:
    parts = [_PRESENT, _INT32(value.session_timeout_ms), count_bytes(len(value.protocols), flexible=True)]
    for name, metadata in value.protocols:
        parts += (string_bytes(name, flexible=True), count_bytes(len(metadata), flexible=True), metadata, NO_TAGS)
    return b"".join((*parts, NO_TAGS))


def _partitions(partitions: Partitions) -> bytes:
    parts = [count_bytes(len(partitions), flexible=True)]
    for topic_id, indexes in partitions.items():
        parts += (topic_id, count_bytes(len(indexes), flexible=True), *(_INT32(index) for index in indexes), NO_TAGS)
    return b"".join(parts)


def decode_consumer_group_value(kind: int, raw: Buffer) -> ConsumerGroupValue:
    """The value of a record of this kind. Raises Malformed."""
    reader = ByteReader(raw)
    version = reader.int16()
    if version != 0:
        raise Malformed(f"consumer group value of version {version}; known: 0")
    match kind:
        case 3:
            return _read_epoch(reader)
        case 5:
            return _read_member(reader)
        case 6:
            return TargetEpoch(reader.int32())
        case 7:
            return TargetAssignment(_read_partitions(reader))
        case 8:
            epoch, previous, state = reader.int32(), reader.int32(), reader.int8()
            return CurrentAssignment(epoch, previous, state, _read_partitions(reader), _read_partitions(reader))
        case _:
            raise Malformed(f"consumer group record of kind {kind}")


def _read_epoch(reader: ByteReader) -> GroupEpoch:
    found = GroupEpoch(reader.int32())
    for tag in reader.tags():
        if tag == _HASH_TAG:
            found = GroupEpoch(found.epoch, reader.int64())
    return found


def _read_member(reader: ByteReader) -> MemberMetadata:
    instance_id, rack_id = reader.nullable_string(flexible=True), reader.nullable_string(flexible=True)
    client_id, client_host = reader.string(flexible=True), reader.string(flexible=True)
    count = reader.nullable_count(flexible=True, element_size_min=1) or 0
    names = tuple(reader.string(flexible=True) for _ in range(count))
    regex, timeout_ms = reader.nullable_string(flexible=True), reader.int32()
    assignor = reader.nullable_string(flexible=True)
    classic = None
    for tag in reader.tags():
        if tag == _CLASSIC_TAG and reader.int8() >= 0:
            classic = _read_classic(reader)
    return MemberMetadata(
        instance_id=instance_id,
        rack_id=rack_id,
        client_id=client_id,
        client_host=client_host,
        topic_names=names,
        topic_regex=regex,
        rebalance_timeout_ms=timeout_ms,
        server_assignor=assignor,
        classic=classic,
    )


def _read_classic(reader: ByteReader) -> ClassicMember:
    timeout_ms, protocols = reader.int32(), []
    for _ in range(reader.nullable_count(flexible=True, element_size_min=3) or 0):
        protocols.append((reader.string(flexible=True), bytes(reader.nullable_blob(flexible=True) or b"")))
        reader.skip_tags()
    reader.skip_tags()
    return ClassicMember(timeout_ms, tuple(protocols))


def _read_partitions(reader: ByteReader) -> Partitions:
    found = {}
    for _ in range(reader.count(flexible=True, element_size_min=18)):
        topic_id = bytes(reader.take(16))
        found[topic_id] = tuple(reader.int32() for _ in range(reader.count(flexible=True, element_size_min=4)))
        reader.skip_tags()
    return found
