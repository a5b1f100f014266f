"""The partitions of records: Java's hashes to the bit, the partitions that are kept without a key,
and the excluded ones (rows P-02 to P-07).
"""

from __future__ import annotations

import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.core.partitioners import (
    PARTITIONERS,
    Choice,
    ClassicPartitioner,
    Murmur2Partitioner,
    NoPartition,
    PartitionOutOfRange,
    RoundRobinPartitioner,
    checked,
    fetcher_of,
    java_abs,
    java_bytes_hash,
    java_string_hash,
    murmur2,
)

JAVA_MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}
"""From the tests of Kafka's own `Utils.murmur2`."""

JAVA_STRING_HASH = {
    "": 0,
    "a": 97,
    "hello": 99162322,
    "polygenelubricants": -(1 << 31),
    "topic1": -868034334,
    "Aa": 2112,
    "BB": 2112,
    "\N{GRINNING FACE}": 1772899,
}
"""As `"...".hashCode()` says in Java."""


def choice(key: bytes | None, count: int = 6, available: list[int] | None = None) -> Choice:
    return Choice(
        topic="t", key=key, partition_count=count, available=list(range(count)) if available is None else available
    )


def first(_count: int) -> int:
    return 0


@pytest.mark.parametrize(("key", "expected"), JAVA_MURMUR2.items())
def test_murmur2_is_javas(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


@pytest.mark.parametrize(("text", "expected"), JAVA_STRING_HASH.items())
def test_the_classic_hash_is_javas_string_hash(text: str, expected: int) -> None:
    assert java_string_hash(text) == expected


def test_the_smallest_number_has_no_positive_twin() -> None:
    assert java_abs(java_string_hash("polygenelubricants")) == 0
    assert ClassicPartitioner().choose(choice(b"polygenelubricants"), first) == 0


def test_byte_keys_hash_by_content() -> None:
    assert java_bytes_hash(b"") == 1
    assert java_bytes_hash(b"\x01\xff") == 31 * (31 + 1) - 1


def test_keys_go_to_the_same_partition_whatever_the_process_is_salted_with() -> None:
    script = (
        "from clients.core.partitioners import *\n"
        "for name in ('murmur2', 'classic', 'classic-bytes'):\n"
        "    for number in range(20):\n"
        "        choice = Choice(topic='t', key=b'key-%d' % number, partition_count=7, available=range(7))\n"
        "        print(PARTITIONERS[name]().choose(choice, lambda _: 0))\n"
    )
    reported = {
        subprocess.run(
            [sys.executable, "-c", script], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    }
    assert len(reported) == 1
    assert len(reported.pop().split()) == 60


@given(st.sampled_from(sorted(PARTITIONERS)), st.none() | st.binary(max_size=20), st.integers(1, 50), st.integers(0))
def test_every_partitioner_stays_within_the_topic(name: str, key: bytes | None, count: int, drawn: int) -> None:
    partitioner = PARTITIONERS[name]()
    for _ in range(3):
        asked = choice(key, count)
        assert checked(partitioner.choose(asked, lambda most: drawn % most), asked) in range(count)


def test_records_without_a_key_stay_together_until_the_batch_is_full() -> None:
    partitioner, draws = Murmur2Partitioner(), iter([4, 2])
    chosen = [partitioner.choose(choice(None), lambda _: next(draws)) for _ in range(10)]
    partitioner.refreshed()
    assert [*chosen, partitioner.choose(choice(None), first)] == [4] * 11
    partitioner.rotate("t")
    assert partitioner.choose(choice(None), lambda _: next(draws)) == 2


def test_the_classic_partitioner_draws_again_when_metadata_is_refreshed() -> None:
    partitioner, draws = ClassicPartitioner(), iter([4, 2])
    chosen = [partitioner.choose(choice(None), lambda _: next(draws)) for _ in range(1000)]
    partitioner.rotate("t")
    assert set(chosen) == {4}
    partitioner.refreshed()
    assert partitioner.choose(choice(None), lambda _: next(draws)) == 2


@pytest.mark.parametrize("name", ["murmur2", "classic", "random", "round-robin"])
def test_a_partition_without_a_leader_is_not_chosen_without_a_key(name: str) -> None:
    partitioner = PARTITIONERS[name]()
    numbers = iter(range(1000))
    chosen = set()
    for _ in range(50):
        chosen.add(partitioner.choose(choice(None, 3, [1]), lambda most: next(numbers) % most))
        partitioner.refreshed()
        partitioner.rotate("t")
    assert chosen == {1}
    with pytest.raises(NoPartition):
        partitioner.choose(choice(None, 3, []), first)


def test_a_sticky_partition_that_loses_its_leader_is_left() -> None:
    partitioner = Murmur2Partitioner()
    assert partitioner.choose(choice(None, 3, [2]), first) == 2
    assert partitioner.choose(choice(None, 3, [0, 1]), first) == 0


def test_round_robin_goes_round_and_begins_with_the_second() -> None:
    partitioner = RoundRobinPartitioner()
    chosen = [partitioner.choose(choice(b"always the same"), first) for _ in range(12)]
    assert chosen[:3] == [1, 2, 3]
    assert set(Counter(chosen).values()) == {2}


def test_a_partition_that_the_topic_does_not_have_is_named() -> None:
    with pytest.raises(PartitionOutOfRange, match="accepted are 0 to 5"):
        checked(6, choice(None))


@pytest.mark.parametrize(
    ("topic", "of_five"),
    [("t", [1, 2, 3]), ("orders", [4, 3, 2]), ("zażółć", [4, 3, 2]), ("a-rather-long-topic-name", [0, 1, 2])],
)
def test_fetchers_are_numbered_as_java_numbers_them(topic: str, of_five: list[int]) -> None:
    """FT-05; from `abs(31 * topic.hashCode() + partition) % 5` in Java."""
    assert [fetcher_of(topic, partition, 5) for partition in (0, 1, 7)] == of_five
    assert fetcher_of(topic, 0, 1) == 0
