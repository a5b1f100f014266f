"""The checker of transactions on histories made by hand: it accepts a good one, and finds the
breach in each bad one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.support.histories.transaction_history import (
    Cycle,
    Observed,
    circular_reads,
    cycles,
    offset_violations,
    precommitted_reads,
    transaction_violations,
)


def test_a_good_history_has_no_violation_whatever_became_of_the_unknown_ones() -> None:
    assert transaction_violations({0: [1, 3], 1: [1, 3]}, committed=[1], aborted=[2]) == []
    assert offset_violations(3, committed=[1, 3]) == []
    assert offset_violations(-1, committed=[]) == []


@pytest.mark.parametrize(
    ("letter", "read"),
    [
        ("T1", {0: [1, 3], 1: [1]}),
        ("T2", {0: [3], 1: [3]}),
        ("T3", {0: [1, 2], 1: [1, 2]}),
        ("T4", {0: [1, 1], 1: [1]}),
    ],
)
def test_each_breach_is_found(letter: str, read: Mapping[int, Sequence[int]]) -> None:
    found = transaction_violations(read, committed=[1], aborted=[2])
    assert {line[:2] for line in found} == {letter}


def test_an_offset_of_another_transaction_than_the_last_committed_one_is_found() -> None:
    (found,) = offset_violations(2, committed=[1, 3])
    assert found.startswith("T5")


GOOD = [
    Observed(1, written=[(0, 0), (1, 0)], read=[]),
    Observed(2, written=[(0, 1)], read=[(0, 0), (1, 0)]),
    Observed(3, written=[(1, 1)], read=[(0, 0), (0, 1)]),
]


def test_transactions_that_read_what_came_before_them_are_sound() -> None:
    assert precommitted_reads(GOOD) == circular_reads(GOOD) == []
    assert cycles(GOOD) == []


def test_a6_a_transaction_that_reads_its_own_record_is_found() -> None:
    (found,) = precommitted_reads([*GOOD, Observed(4, written=[(0, 3)], read=[(0, 1), (0, 3)])])
    assert found == "T6 transaction 4 read its own record at offset 3 of partition 0"


def test_a10_transactions_that_read_from_each_other_are_found() -> None:
    history = [Observed(1, [(0, 0)], [(2, 0)]), Observed(2, [(1, 0)], [(0, 0)]), Observed(3, [(2, 0)], [(1, 0)])]
    assert circular_reads(history) == ["T7 transactions 1, 2, 3 read from each other"]
    assert cycles(history) == [Cycle("G1c", (1, 2, 3))]


def test_a10_writes_in_another_order_in_each_partition_are_reported_and_no_breach() -> None:
    history = [Observed(1, [(0, 0), (1, 1)], []), Observed(2, [(0, 1), (1, 0)], []), Observed(3, [(0, 2)], [])]
    assert cycles(history) == [Cycle("G0", (1, 2))]
    assert circular_reads(history) == []


def test_a10_a_circle_of_an_offset_and_a_read_is_reported() -> None:
    history = [Observed(1, [(0, 0), (1, 0)], []), Observed(2, [(0, 1)], [])]
    assert cycles(history) == []
    mixed = [Observed(1, [(0, 0)], [(1, 0)]), Observed(2, [(0, 1), (1, 0)], [])]
    assert cycles(mixed) == [Cycle("G1c", (1, 2))]
    assert circular_reads(mixed) == []
