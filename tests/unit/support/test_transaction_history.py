"""The checker of transactions finds what it is there to find: histories made by hand, a good one and one for each breach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from tests.support.transaction_history import offset_violations, transaction_violations


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
