"""Chooses the partition of a record: Kafka's partitioners with Java's own hashes, and the classic
ones. Pure.

A partitioner is asked with the key, the topic's partition count and those partitions that have a
leader; randomness comes from `draw`, a function from n to a number below n. Python's `hash` is
salted in every process, so every hash is implemented here.

    murmur2      Java's default since 0.9: murmur2 of the key's bytes; without a key, one partition
                 until `rotate` (KIP-480, KIP-794)
    classic      the first Java producer's: String.hashCode of the key's text; without a key, one
                 partition until the metadata is refreshed
    classic-bytes  the same with Arrays.hashCode of the key's bytes (its ByteArrayPartitioner)
    random       any partition with a leader, key or not
    round-robin  one partition after the other, key or not, the second one first
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

from msgspec import Struct, field

Draw = Callable[[int], int]

_WORD: Final = 0xFFFFFFFF
_POSITIVE: Final = 0x7FFFFFFF
_MURMUR_SEED: Final = 0x9747B28C
_MURMUR_FACTOR: Final = 0x5BD1E995


class NoPartition(Exception):
    """No partition can be chosen: the topic has none, or none of them has a leader."""


class PartitionOutOfRange(Exception):
    """A partitioner named a partition that the topic does not have."""


class Choice(Struct, frozen=True, kw_only=True):
    """The input of a partitioner. `available` are the partitions with a leader."""

    topic: str
    key: bytes | None
    partition_count: int
    available: Sequence[int]


class Partitioner(Protocol):
    """Chooses partitions; may remember what it has chosen."""

    def choose(self, choice: Choice, draw: Draw) -> int:
        """The partition of a record. Raises NoPartition."""
        ...

    def rotate(self, topic: str) -> None:
        """A batch of records without keys is full: the next ones may use another partition."""
        ...

    def refreshed(self) -> None:
        """The metadata has been refreshed."""
        ...


def murmur2(data: bytes) -> int:
    """Java's `Utils.murmur2` as an unsigned 32-bit number."""
    length = len(data)
    found = _MURMUR_SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        word = int.from_bytes(data[at : at + 4], "little") * _MURMUR_FACTOR & _WORD
        word = (word ^ word >> 24) * _MURMUR_FACTOR & _WORD
        found = found * _MURMUR_FACTOR & _WORD ^ word
    if whole < length:
        found = (found ^ int.from_bytes(data[whole:], "little")) * _MURMUR_FACTOR & _WORD
    found = (found ^ found >> 13) * _MURMUR_FACTOR & _WORD
    return found ^ found >> 15


def java_string_hash(text: str) -> int:
    """Java's `String.hashCode` as a signed 32-bit number, over UTF-16 units."""
    units = text.encode("utf-16-be", "surrogatepass")
    return _polynomial(0, (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2)))


def java_bytes_hash(data: bytes) -> int:
    """Java's `Arrays.hashCode(byte[])` as a signed 32-bit number."""
    return _polynomial(1, (byte - 256 if byte > 127 else byte for byte in data))


def java_abs(value: int) -> int:
    """Kafka's `Utils.abs` of 0.8.2: the smallest number has no positive twin and counts as 0."""
    return 0 if value == -(1 << 31) else abs(value)


def _polynomial(found: int, units: Iterable[int]) -> int:
    for unit in units:
        found = (31 * found + unit) & _WORD
    return _signed(found)


def _signed(word: int) -> int:
    return word - (1 << 32) if word > _POSITIVE else word


def fetcher_of(topic: str, partition: int, fetchers: int) -> int:
    """The number of the fetcher, from 0, that reads a partition from a broker with several
    fetchers. As in Kafka 0.8, a topic's partitions take turns, and a partition keeps its fetcher.
    """
    return java_abs(_signed((31 * java_string_hash(topic) + partition) & _WORD)) % fetchers


def checked(partition: int, choice: Choice) -> int:
    """Returns the partition that a partitioner chose, if the topic has it. Raises
    PartitionOutOfRange.
    """
    accepted = f"accepted are 0 to {choice.partition_count - 1}"
    # A partitioner of the application may return any value.
    if not isinstance(partition, int):
        raise PartitionOutOfRange(f"the partitioner returned partition {partition!r} of {choice.topic}; {accepted}")
    if 0 <= partition < choice.partition_count:
        return partition
    raise PartitionOutOfRange(f"topic {choice.topic} has no partition {partition}; {accepted}")


def _drawn(choice: Choice, draw: Draw) -> int:
    if not choice.available:
        raise NoPartition(f"no partition of {choice.topic} has a leader")
    return choice.available[draw(len(choice.available))]


class _Sticky(Struct):
    """The partition of each topic that is used for records without a key for a while."""

    chosen: dict[str, int] = field(default_factory=dict)

    def choose(self, choice: Choice, draw: Draw) -> int:
        known = self.chosen.get(choice.topic)
        if known is None or known not in choice.available:
            known = self.chosen[choice.topic] = _drawn(choice, draw)
        return known


class Murmur2Partitioner(Struct):
    """Java's default."""

    _sticky: _Sticky = field(default_factory=_Sticky)

    def choose(self, choice: Choice, draw: Draw) -> int:
        """Choose by the key's bytes; without a key, the sticky partition."""
        if choice.key is None:
            return self._sticky.choose(choice, draw)
        return (murmur2(choice.key) & _POSITIVE) % choice.partition_count

    def rotate(self, topic: str) -> None:
        """Choose another partition for the next batch."""
        self._sticky.chosen.pop(topic, None)

    def refreshed(self) -> None:
        """Batches decide, not the metadata."""


class ClassicPartitioner(Struct):
    """The first Java producer's DefaultPartitioner, for text keys or byte keys."""

    is_of_bytes: bool = False
    _sticky: _Sticky = field(default_factory=_Sticky)

    def choose(self, choice: Choice, draw: Draw) -> int:
        """Choose by the key's hash code; without a key, the sticky partition."""
        if choice.key is None:
            return self._sticky.choose(choice, draw)
        if self.is_of_bytes:
            return java_abs(java_bytes_hash(choice.key)) % choice.partition_count
        return java_abs(java_string_hash(choice.key.decode("utf-8", "replace"))) % choice.partition_count

    def rotate(self, topic: str) -> None:
        """The metadata decides, not batches."""

    def refreshed(self) -> None:
        """The metadata were refreshed: choose the sticky partitions again."""
        self._sticky.chosen.clear()


class RandomPartitioner:
    """Any partition that has a leader, key or not."""

    def choose(self, choice: Choice, draw: Draw) -> int:
        """Drawn anew for each record."""
        return _drawn(choice, draw)

    def rotate(self, topic: str) -> None:
        """Does nothing: this partitioner keeps no state."""

    def refreshed(self) -> None:
        """Does nothing: this partitioner keeps no state."""


class RoundRobinPartitioner(Struct):
    """Round robin over all partitions, for records with and without a key. As in Kafka's old
    example the counter is raised first, so that 1 comes before 0.
    """

    _counts: dict[str, int] = field(default_factory=dict)

    def choose(self, choice: Choice, draw: Draw) -> int:  # noqa: ARG002 (nothing is drawn)
        """The next one; partitions without a leader are left out."""
        count = self._counts[choice.topic] = self._counts.get(choice.topic, 0) + 1
        if not choice.available:
            raise NoPartition(f"no partition of {choice.topic} has a leader")
        return choice.available[count % len(choice.available)]

    def rotate(self, topic: str) -> None:
        """Goes round by itself."""

    def refreshed(self) -> None:
        """Goes round by itself."""


PARTITIONERS: Final[dict[str, Callable[[], Partitioner]]] = {
    "murmur2": Murmur2Partitioner,
    "classic": ClassicPartitioner,
    "classic-bytes": lambda: ClassicPartitioner(is_of_bytes=True),
    "random": RandomPartitioner,
    "round-robin": RoundRobinPartitioner,
}
"""Every partitioner by its name."""
