"""Consumers' subscriptions and assignments in JoinGroup and SyncGroup, opaque to a coordinator as a
rule.

A coordinator reads them where members of the classic protocol share a group with members of the
newer one (KIP-848). Source: ConsumerProtocolSubscription and ConsumerProtocolAssignment of the
Kafka protocol, versions 0 to 3; a newer one is read as 3.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Final, NamedTuple

from wire.protocol.byte_reader import Buffer, ByteReader, Malformed
from wire.protocol.byte_writer import count_bytes, string_bytes

CONSUMER_PROTOCOL_TYPE: Final = "consumer"

_INT16: Final = struct.Struct(">h").pack
_INT32: Final = struct.Struct(">i").pack
_OWNED_FROM: Final = 1
_GENERATION_FROM: Final = 2
_RACK_FROM: Final = 3

PartitionsByTopic = Mapping[str, tuple[int, ...]]


class Subscription(NamedTuple):
    """A member's subscription, and the partitions that it reports to own."""

    version: int
    topics: tuple[str, ...]
    owned: PartitionsByTopic
    rack_id: str | None = None


def decode_subscription(raw: Buffer) -> Subscription:
    """A member's metadata. Raises Malformed."""
    reader = ByteReader(raw)
    version = _version(reader)
    topics = _topics(reader)
    owned = _partitions(reader) if version >= _OWNED_FROM else {}
    if version >= _GENERATION_FROM:
        reader.int32()
    rack_id = reader.nullable_string(flexible=False) if version >= _RACK_FROM else None
    return Subscription(version, topics, owned, rack_id)


def subscribed_topics(raw: Buffer) -> tuple[str, ...]:
    """Topics in a member's metadata; all fields after version 0 are ignored, because some clients
    name a later version and omit its fields. Malformed.
    """
    reader = ByteReader(raw)
    _version(reader)
    return _topics(reader)


def encode_subscription(subscription: Subscription) -> bytes:
    """A member's metadata without user data."""
    version = subscription.version
    parts = [_INT16(version), count_bytes(len(subscription.topics), flexible=False)]
    parts += [string_bytes(topic, flexible=False) for topic in subscription.topics]
    parts.append(_INT32(-1))
    if version >= _OWNED_FROM:
        parts.append(_partitions_bytes(subscription.owned))
    if version >= _GENERATION_FROM:
        parts.append(_INT32(-1))
    if version >= _RACK_FROM:
        parts.append(string_bytes(subscription.rack_id, flexible=False))
    return b"".join(parts)


def decode_assignment(raw: Buffer) -> PartitionsByTopic:
    """The partitions assigned to a member; none for an empty text. Raises Malformed."""
    if not len(raw):
        return {}
    reader = ByteReader(raw)
    _version(reader)
    return _partitions(reader)


def encode_assignment(version: int, partitions: PartitionsByTopic) -> bytes:
    """Encode the partitions assigned to a member, without user data."""
    return _INT16(version) + _partitions_bytes(partitions) + _INT32(-1)


def _version(reader: ByteReader) -> int:
    version = reader.int16()
    if version < 0:
        raise Malformed(f"consumer protocol version {version}")
    return version


def _topics(reader: ByteReader) -> tuple[str, ...]:
    topics = tuple(reader.string(flexible=False) for _ in range(_count(reader, 2)))
    reader.nullable_blob(flexible=False)
    return topics


def _count(reader: ByteReader, element_size_min: int) -> int:
    return reader.nullable_count(flexible=False, element_size_min=element_size_min) or 0


def _partitions(reader: ByteReader) -> PartitionsByTopic:
    found: dict[str, tuple[int, ...]] = {}
    for _ in range(_count(reader, 6)):
        topic = reader.string(flexible=False)
        found[topic] = tuple(reader.int32() for _ in range(_count(reader, 4)))
    return found


def _partitions_bytes(partitions: PartitionsByTopic) -> bytes:
    parts = [count_bytes(len(partitions), flexible=False)]
    for topic, indexes in partitions.items():
        parts += (string_bytes(topic, flexible=False), count_bytes(len(indexes), flexible=False))
        parts += [_INT32(index) for index in indexes]
    return b"".join(parts)
