"""Records of `__consumer_offsets`: keys and values exactly as Apache Kafka lays them out, so that
its own tools read them.

| record | key | value |
| --- | --- | --- |
| an offset | version 1: group, topic, partition | written as version 3, or 1 when the client asked for an expiry time of its own |
| a group | version 2: group | written as version 3 |

The header `antipode.mirror` of an offset names the link and the epoch of the mirror that wrote it
(`link@epoch+time`, with the Unix ms at which the link was made; earlier releases wrote no time);
the next record of the key, such as a client's commit, lacks it.

Older values (0 to 2) and the flexible version 4 are read too. A null value is a tombstone. Keys of
other kinds (KIP-848 groups: `consumer_group_records.py`) are returned as None, to be passed over.
Called by the broker's coordinator and by tools; the broker interprets the fields.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from wire.protocol.byte_reader import Buffer, ByteReader, Malformed
from wire.protocol.byte_writer import string_bytes
from wire.protocol.ids import NO_EPOCH, NO_TIMESTAMP

OFFSETS_TOPIC: Final = "__consumer_offsets"
MIRROR_HEADER: Final = "antipode.mirror"


_OFFSET_KEY_VERSIONS: Final = (0, 1)
_GROUP_KEY_VERSION: Final = 2
_OFFSET_VALUE_VERSION: Final = 3
_EXPIRING_OFFSET_VALUE_VERSION: Final = 1
_GROUP_VALUE_VERSION: Final = 3
_FLEXIBLE_VERSION: Final = 4
_VALUE_VERSION_MAX: Final = 4

_INT16: Final = struct.Struct(">h").pack
_INT32: Final = struct.Struct(">i").pack
_INT64: Final = struct.Struct(">q").pack


Headers = Sequence[tuple[str, bytes | None]]


class OffsetKey(NamedTuple):
    """The group and partition of an offset."""

    group: str
    topic: str
    partition: int


class GroupKey(NamedTuple):
    """The group of a record."""

    group: str


class OffsetValue(NamedTuple):
    """A committed offset; `expire_timestamp_ms` only when the commit named a retention time of its
    own. `carried_by` names the link and epoch of the mirror that wrote it, and is empty for a
    client's commit.
    """

    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = NO_TIMESTAMP
    carried_by: str = ""


class MemberValue(NamedTuple):
    """A member of a group as the group's last complete rebalance left it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupValue(NamedTuple):
    """A group's last complete generation; no members when it is empty."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[MemberValue, ...]


def encode_offset_key(key: OffsetKey) -> bytes:
    """The key of an offset record."""
    return b"\0\1" + _text(key.group) + _text(key.topic) + _INT32(key.partition)


def encode_group_key(key: GroupKey) -> bytes:
    """The key of a group record."""
    return _INT16(_GROUP_KEY_VERSION) + _text(key.group)


def decode_key(raw: Buffer) -> OffsetKey | GroupKey | None:
    """The key, or None for a kind of record that is not described here. Raises Malformed."""
    reader = ByteReader(raw)
    version = reader.int16()
    if version in _OFFSET_KEY_VERSIONS:
        return OffsetKey(reader.string(flexible=False), reader.string(flexible=False), reader.int32())
    if version == _GROUP_KEY_VERSION:
        return GroupKey(reader.string(flexible=False))
    return None


def encode_offset_value(value: OffsetValue) -> bytes:
    """The value of an offset record. Only version 1 can carry an expiry time, and it has no leader
    epoch: as in Kafka.
    """
    if value.expire_timestamp_ms != NO_TIMESTAMP:
        return (
            _INT16(_EXPIRING_OFFSET_VALUE_VERSION)
            + _INT64(value.offset)
            + _text(value.metadata)
            + _INT64(value.commit_timestamp_ms)
            + _INT64(value.expire_timestamp_ms)
        )
    return (
        _INT16(_OFFSET_VALUE_VERSION)
        + _INT64(value.offset)
        + _INT32(value.leader_epoch)
        + _text(value.metadata)
        + _INT64(value.commit_timestamp_ms)
    )


def offset_headers(value: OffsetValue) -> Headers:
    """The headers of an offset record."""
    return ((MIRROR_HEADER, value.carried_by.encode()),) if value.carried_by else ()


def carried_by(headers: Headers) -> str:
    """The `carried_by` of an offset record with these headers."""
    for name, value in headers:
        if name == MIRROR_HEADER and value:
            return _claim(value)
    return ""


@lru_cache(maxsize=64)
def _claim(value: bytes) -> str:
    """One text for all offsets of a link: a coordinator keeps many thousands."""
    return value.decode(errors="replace")


def decode_offset_value(raw: Buffer) -> OffsetValue:
    """The value of an offset record, of any version from 0 to 4. Raises Malformed."""
    reader = ByteReader(raw)
    version = _value_version(reader, "offset")
    offset = reader.int64()
    leader_epoch = reader.int32() if version >= 3 else NO_EPOCH
    metadata = reader.string(flexible=version >= _FLEXIBLE_VERSION)
    commit_timestamp_ms = reader.int64()
    expire_timestamp_ms = reader.int64() if version == _EXPIRING_OFFSET_VALUE_VERSION else NO_TIMESTAMP
    return OffsetValue(offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms)


def encode_group_value(value: GroupValue) -> bytes:
    """The value of a group record."""
    parts = [
        _INT16(_GROUP_VALUE_VERSION),
        _text(value.protocol_type),
        _INT32(value.generation),
        _text(value.protocol),
        _text(value.leader),
        _INT64(value.state_timestamp_ms),
        _INT32(len(value.members)),
    ]
    for member in value.members:
        parts += (
            _text(member.member_id),
            _text(member.group_instance_id),
            _text(member.client_id),
            _text(member.client_host),
            _INT32(member.rebalance_timeout_ms),
            _INT32(member.session_timeout_ms),
            _blob(member.subscription),
            _blob(member.assignment),
        )
    return b"".join(parts)


def decode_group_value(raw: Buffer) -> GroupValue:
    """The value of a group record, of any version from 0 to 4. Raises Malformed."""
    reader = ByteReader(raw)
    version = _value_version(reader, "group")
    flexible = version >= _FLEXIBLE_VERSION
    protocol_type = reader.string(flexible=flexible)
    generation = reader.int32()
    protocol = reader.nullable_string(flexible=flexible)
    leader = reader.nullable_string(flexible=flexible)
    state_timestamp_ms = reader.int64() if version >= 2 else NO_TIMESTAMP
    count = reader.count(flexible=flexible, element_size_min=10)
    members = tuple(_decode_member(reader, version) for _ in range(count))
    return GroupValue(
        protocol_type=protocol_type,
        generation=generation,
        protocol=protocol,
        leader=leader,
        state_timestamp_ms=state_timestamp_ms,
        members=members,
    )


def _decode_member(reader: ByteReader, version: int) -> MemberValue:
    flexible = version >= _FLEXIBLE_VERSION
    member_id = reader.string(flexible=flexible)
    group_instance_id = reader.nullable_string(flexible=flexible) if version >= 3 else None
    client_id, client_host = reader.string(flexible=flexible), reader.string(flexible=flexible)
    rebalance_timeout_ms = reader.int32() if version >= 1 else -1
    session_timeout_ms = reader.int32()
    subscription = bytes(reader.nullable_blob(flexible=flexible) or b"")
    assignment = bytes(reader.nullable_blob(flexible=flexible) or b"")
    if flexible:
        reader.skip_tags()
    return MemberValue(
        member_id=member_id,
        group_instance_id=group_instance_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=rebalance_timeout_ms if rebalance_timeout_ms >= 0 else session_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=subscription,
        assignment=assignment,
    )


def _value_version(reader: ByteReader, what: str) -> int:
    version = reader.int16()
    if not 0 <= version <= _VALUE_VERSION_MAX:
        raise Malformed(f"{what} value of version {version}; known: 0 to {_VALUE_VERSION_MAX}")
    return version


def _text(text: str | None) -> bytes:
    return string_bytes(text, flexible=False)


def _blob(blob: bytes) -> bytes:
    return _INT32(len(blob)) + blob
