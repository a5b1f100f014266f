"""The messages between members of a consumer group in Kafka's "consumer" protocol: subscriptions
and assignments as bytes. Pure.

Every client can read them: version 1 of both messages is written, any version is read (later ones
only append fields). Layout: Kafka's ConsumerProtocolSubscription and ConsumerProtocolAssignment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct

from wire.protocol.byte_reader import ByteReader, Malformed
from wire.protocol.ids import PartitionKey

PROTOCOL_TYPE = "consumer"
_VERSION = 1
_NULL = (-1).to_bytes(4, "big", signed=True)


class Subscription(Struct, frozen=True, kw_only=True):
    """The topics that a member subscribes to, and the partitions that it owned."""

    topics: tuple[str, ...]
    owned: frozenset[PartitionKey] = frozenset()


def encode_subscription(subscription: Subscription) -> bytes:
    """Version 1: topics, no user data, owned partitions."""
    topics = sorted(subscription.topics)
    parts = [_int16(_VERSION), _int32(len(topics)), *map(_text, topics), _NULL]
    return b"".join(parts) + _partitions(subscription.owned)


def decode_subscription(data: bytes) -> Subscription:
    """A member's subscription. Raises Malformed."""
    reader = ByteReader(data)
    version = reader.int16()
    topics = tuple(reader.string(flexible=False) for _ in range(reader.int32()))
    _skip_user_data(reader)
    owned = _read_partitions(reader) if version >= 1 else frozenset()
    return Subscription(topics=topics, owned=owned)


def wanted_topics(members: Mapping[str, bytes]) -> tuple[dict[str, tuple[str, ...]], dict[str, str]]:
    """The topics that each member wants, and the reason why a member gets nothing because its
    metadata is malformed. A leader that fails on one member's bytes would leave the whole group
    without partitions.
    """
    wanted: dict[str, tuple[str, ...]] = {}
    malformed: dict[str, str] = {}
    for member, data in members.items():
        try:
            wanted[member] = decode_subscription(data).topics
        except Malformed as error:
            wanted[member] = ()
            malformed[member] = str(error)
    return wanted, malformed


def encode_assignment(places: Iterable[PartitionKey]) -> bytes:
    """Encode the partitions of one member."""
    return _int16(_VERSION) + _partitions(places) + _NULL


def decode_assignment(data: bytes) -> frozenset[PartitionKey]:
    """The partitions of a member; empty for no bytes. Raises Malformed."""
    if not data:
        return frozenset()
    reader = ByteReader(data)
    reader.int16()
    return _read_partitions(reader)


def _partitions(places: Iterable[PartitionKey]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(places):
        topics.setdefault(topic, []).append(partition)
    parts = [_int32(len(topics))]
    for topic, partitions in topics.items():
        parts += [_text(topic), _int32(len(partitions)), *map(_int32, partitions)]
    return b"".join(parts)


def _read_partitions(reader: ByteReader) -> frozenset[PartitionKey]:
    places = []
    for _ in range(reader.int32()):
        topic = reader.string(flexible=False)
        places += [(topic, reader.int32()) for _ in range(reader.int32())]
    return frozenset(places)


def _skip_user_data(reader: ByteReader) -> None:
    size = reader.int32()
    if size > 0:
        reader.skip(size)


def _int16(value: int) -> bytes:
    return value.to_bytes(2, "big", signed=True)


def _int32(value: int) -> bytes:
    return value.to_bytes(4, "big", signed=True)


def _text(text: str) -> bytes:
    data = text.encode()
    return _int16(len(data)) + data


def assign_range(
    subscriptions: Mapping[str, Sequence[str]], counts: Mapping[str, int]
) -> dict[str, list[PartitionKey]]:
    """Kafka's RangeAssignor: for each topic, every member that wants it gets a range of partitions,
    the first members one more.

    Members are sorted by id; topics that do not exist (they have no count) are left out.
    """
    assignment: dict[str, list[PartitionKey]] = {member: [] for member in subscriptions}
    for topic in sorted({topic for topics in subscriptions.values() for topic in topics}):
        members = sorted(member for member, topics in subscriptions.items() if topic in topics)
        fair, extra = divmod(counts.get(topic, 0), len(members))
        for number, member in enumerate(members):
            start = fair * number + min(number, extra)
            assignment[member] += [(topic, index) for index in range(start, start + fair + (number < extra))]
    return assignment


def assign_round_robin(
    subscriptions: Mapping[str, Sequence[str]], counts: Mapping[str, int]
) -> dict[str, list[PartitionKey]]:
    """Kafka's RoundRobinAssignor: all partitions of all topics are assigned one after the other,
    skipping members that do not want the topic.
    """
    assignment: dict[str, list[PartitionKey]] = {member: [] for member in subscriptions}
    members = sorted(subscriptions)
    turn = 0
    for topic in sorted({topic for topics in subscriptions.values() for topic in topics}):
        for index in range(counts.get(topic, 0)):
            while topic not in subscriptions[members[turn % len(members)]]:
                turn += 1
            assignment[members[turn % len(members)]].append((topic, index))
            turn += 1
    return assignment


ASSIGNORS = {"range": assign_range, "roundrobin": assign_round_robin}
"""The assignors by the names that all Kafka clients use."""
