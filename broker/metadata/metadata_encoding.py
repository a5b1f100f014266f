"""Encodes Metadata responses by hand, from parts that are encoded once for each image.

kio needs about 20 µs for each partition; a full answer for 10,000 of them would block the loop for
a fifth of a second, at every refresh of every client. Each topic's bytes are cached as long as its
image and the set of live brokers stay the same, and a full response as long as the cluster image
does. Layouts: Metadata versions 0 to 13 of the Kafka protocol.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from kio.schema.errors import ErrorCode
from msgspec import Struct, field

from broker.metadata.core.authorized_operations import NOT_ASKED
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.topic_images import PartitionImage, TopicImage
from wire.control.cluster_pb2 import BrokerInfo
from wire.protocol.ids import NO_NODE
from wire.rules.topic_names import is_internal_topic

FLEXIBLE_FROM: Final = 9
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_PARTITION_START: Final = struct.Struct(">hii")
_PARTITION_WITH_EPOCH: Final = struct.Struct(">hiii")
LEADER_EPOCHS_FROM: Final = 7
_NO_ERROR: Final = int(ErrorCode.none)
_NO_LEADER: Final = int(ErrorCode.leader_not_available)
KEPT_TOPICS_MAX: Final = 50_000


def uvarint(value: int) -> bytes:
    """An unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class MetadataWriter:
    """The pieces of one version's layout; the operations (`core/authorized_operations.py`) are
    those of every topic and of the cluster.
    """

    def __init__(self, version: int, *, topic_operations: int = NOT_ASKED, cluster_operations: int = NOT_ASKED) -> None:
        self.version = version
        self.topic_operations = topic_operations
        self.cluster_operations = cluster_operations
        self.is_flexible = version >= FLEXIBLE_FROM
        self._tags = b"\0" if self.is_flexible else b""

    def text(self, value: str | None) -> bytes:
        """A nullable string."""
        if value is None:
            return b"\0" if self.is_flexible else b"\xff\xff"
        data = value.encode()
        return (uvarint(len(data) + 1) if self.is_flexible else _INT16.pack(len(data))) + data

    def count(self, size: int) -> bytes:
        """The length of an array."""
        return uvarint(size + 1) if self.is_flexible else _INT32.pack(size)

    def _nodes(self, nodes: Sequence[int]) -> bytes:
        return self.count(len(nodes)) + struct.pack(f">{len(nodes)}i", *nodes)

    def _partitions(self, partitions: Iterable[PartitionImage], live: Iterable[int]) -> Iterator[bytes]:
        """The partitions; a leader that is not live is not named."""
        # of thousands of partitions many have the same replicas, of which many are in sync
        known: dict[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]], bytes] = {}
        has_epoch = self.version >= LEADER_EPOCHS_FROM
        for partition in partitions:
            replicas = partition.replicas, partition.isr, partition.offline
            encoded = known.get(replicas)
            if encoded is None:
                encoded = known[replicas] = self._replicas(*replicas, live)
            has_leader = partition.leader in live
            error = _NO_ERROR if has_leader else _NO_LEADER
            leader = partition.leader if has_leader else NO_NODE
            if has_epoch:
                yield _PARTITION_WITH_EPOCH.pack(error, partition.index, leader, partition.leader_epoch) + encoded
            else:
                yield _PARTITION_START.pack(error, partition.index, leader) + encoded

    def _replicas(
        self, replicas: Sequence[int], isr: Sequence[int], offline: Sequence[int], live: Iterable[int]
    ) -> bytes:
        """What follows the leader in a partition."""
        out = self._nodes(replicas) + self._nodes(isr)
        if self.version >= 5:
            out += self._nodes([node for node in replicas if node not in live or node in offline])
        return out + self._tags

    def topic(
        self,
        *,
        error: ErrorCode,
        name: str | None,
        topic_id: bytes,
        partitions: Sequence[PartitionImage],
        live: Iterable[int],
    ) -> bytes:
        """One topic with its partitions. A topic without a name (an unknown id) has no known
        operations.
        """
        out = [_INT16.pack(error), self.text(name if self.version >= 12 or name is not None else "")]
        if self.version >= 10:
            out.append(topic_id)
        if self.version >= 1:
            out.append(b"\1" if name is not None and is_internal_topic(name) else b"\0")
        out.append(self.count(len(partitions)))
        out.extend(self._partitions(partitions, live))
        if self.version >= 8:
            out.append(_INT32.pack(NOT_ASKED if name is None else self.topic_operations))
        out.append(self._tags)
        return b"".join(out)

    def start(self, image: ClusterImage, brokers: Iterable[BrokerInfo], *, listener: str, topic_count: int) -> bytes:
        """Encode everything before the first topic."""
        out = [_INT32.pack(0)] if self.version >= 3 else []
        entries = [entry for broker in brokers if (entry := self._broker(broker, listener)) is not None]
        out.append(self.count(len(entries)))
        out.extend(entries)
        if self.version >= 2:
            out.append(self.text(image.cluster_id or None))
        if self.version >= 1:
            out.append(_INT32.pack(image.controller_id))
        out.append(self.count(topic_count))
        return b"".join(out)

    def _broker(self, broker: BrokerInfo, listener: str) -> bytes | None:
        endpoint = next((endpoint for endpoint in broker.endpoints if endpoint.listener == listener), None)
        if endpoint is None:
            return None
        out = _INT32.pack(broker.node_id) + self.text(endpoint.host) + _INT32.pack(endpoint.port)
        if self.version >= 1:
            out += self.text(broker.rack or None)
        return out + self._tags

    def end(self) -> bytes:
        """Encode everything after the last topic."""
        out = b""
        if 8 <= self.version <= 10:
            out += _INT32.pack(self.cluster_operations)
        if self.version >= 13:
            out += _INT16.pack(ErrorCode.none)
        return out + self._tags


class _KeptTopic(Struct, frozen=True):
    """An encoded topic and what it was made from."""

    topic: TopicImage
    live: frozenset[int]
    data: bytes


class MetadataCache(Struct):
    """Encoded topics and full answers; one for merged and one for unmerged metadata."""

    is_merged: bool
    _topics: dict[tuple[int, int, str], _KeptTopic] = field(default_factory=dict)
    _full: dict[tuple[int, int, int, str], tuple[int, bytes]] = field(default_factory=dict)
    _seen: tuple[int, dict[int, BrokerInfo], frozenset[int]] | None = None

    def brokers(self, image: ClusterImage) -> tuple[dict[int, BrokerInfo], frozenset[int]]:
        """The brokers that an answer names, and the ids of those that live."""
        seen = self._seen
        if seen is None or seen[0] != image.version:
            found = image.routed_brokers() if self.is_merged else dict(image.brokers)
            live = frozenset(found)
            if self.is_merged:
                found = {**image.departed, **found}
            if seen is not None and seen[2] == live:
                live = seen[2]
            seen = self._seen = (image.version, found, live)
        return seen[1], seen[2]

    def find(self, image: ClusterImage, name: str) -> TopicImage | None:
        """The topic as this cache's answers show it."""
        if not self.is_merged:
            return image.topics.get(name)
        routed = image.routed_topic(name)
        return None if routed is None else routed.topic

    def find_id(self, image: ClusterImage, topic_id: bytes) -> TopicImage | None:
        """The topic with the id as this cache's answers show it."""
        if not self.is_merged:
            name = image.topic_names.get(topic_id)
            return None if name is None else image.topics.get(name)
        routed = image.routed_topic_with_id(topic_id)
        return None if routed is None else routed.topic

    def names(self, image: ClusterImage) -> list[str]:
        """All topics that a full answer has."""
        return list(image.routed_topic_names() if self.is_merged else image.topics)

    def topic(self, writer: MetadataWriter, image: ClusterImage, topic: TopicImage) -> bytes:
        """The topic's bytes, from memory when nothing changed."""
        _, live = self.brokers(image)
        key = (writer.version, writer.topic_operations, topic.name)
        kept = self._topics.get(key)
        if kept is not None and kept.live is live and (kept.topic is topic or kept.topic == topic):
            return kept.data
        partitions = list(topic.partitions.values())
        data = writer.topic(
            error=ErrorCode.none, name=topic.name, topic_id=topic.topic_id, partitions=partitions, live=live
        )
        if len(self._topics) >= KEPT_TOPICS_MAX:
            self._topics.clear()
        self._topics[key] = _KeptTopic(topic, live, data)
        return data

    def answer(self, writer: MetadataWriter, image: ClusterImage, listener: str, topics: Sequence[bytes]) -> bytes:
        """A response body with these encoded topics."""
        brokers, _ = self.brokers(image)
        start = writer.start(image, brokers.values(), listener=listener, topic_count=len(topics))
        return b"".join((start, *topics, writer.end()))

    def full_answer(self, writer: MetadataWriter, image: ClusterImage, listener: str) -> bytes:
        """A response body with all topics."""
        key = (writer.version, writer.topic_operations, writer.cluster_operations, listener)
        kept = self._full.get(key)
        if kept is not None and kept[0] == image.version:
            return kept[1]
        found = (self.find(image, name) for name in self.names(image))
        body = self.answer(writer, image, listener, [self.topic(writer, image, topic) for topic in found if topic])
        self._full[key] = (image.version, body)
        return body
