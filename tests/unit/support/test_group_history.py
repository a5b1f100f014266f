"""The checker of rebalance storms on histories made by hand: it accepts a good one, and finds the
breach in each bad one.
"""

from __future__ import annotations

import pytest

from tests.support.histories.group_history import Commit, Given, Ownership, generation_violations, violations

ENDS = {0: 6}


def owned(
    member: str, began_s: float, ended_s: float, *offsets: int, is_lost: bool = False, position: int | None = None
) -> Ownership:
    return Ownership(
        member=member,
        partition=0,
        began_s=began_s,
        ended_s=ended_s,
        is_lost=is_lost,
        position=position,
        offsets=list(offsets),
    )


def committed(member: str, offset: int, began_s: float) -> Commit:
    return Commit(member=member, partition=0, offset=offset, began_s=began_s, ended_s=began_s + 0.5)


GOOD = (
    [owned("a", 0, 10, 0, 1, 2), owned("b", 11, 20, 2, 3), owned("c", 21, 30, 4, 5)],
    [committed("a", 2, 9), committed("b", 4, 19), committed("c", 6, 29)],
)


def test_a_history_in_order_has_no_violation() -> None:
    assert violations(*GOOD, ENDS) == []


@pytest.mark.parametrize(
    ("letter", "ownerships", "commits"),
    [
        ("S1", [owned("a", 0, 12, 0, 1, 2), owned("b", 11, 20, 3, 4, 5)], []),
        ("S2", [owned("a", 0, 10, 0, 1, 2, 3), owned("b", 11, 20, 1, 2, 3, 4, 5)], [committed("a", 4, 9)]),
        ("S3", [owned("a", 0, 10, 0, 1, 2, 3, 4, 5)], [committed("a", 4, 5), committed("b", 3, 7)]),
        ("S4", [owned("a", 0, 10, 0, 1, 2, 3, 4, 5)], [committed("a", 7, 9)]),
        ("S5", [owned("a", 0, 10, 0, 1, 3, 4), owned("b", 11, 20, 2, 3, 4, 5)], []),
        ("S6", [owned("a", 0, 10, 0, 1, 2, 3, 4)], []),
    ],
)
def test_each_breach_is_found(letter: str, ownerships: list[Ownership], commits: list[Commit]) -> None:
    found = violations(ownerships, commits, ENDS)
    assert [line.split()[0] for line in found] == [letter], found


def test_a_position_that_was_asked_for_counts_before_what_is_read() -> None:
    first = owned("a", 0, 10, 0, 1, 2, position=0)
    told_too_little = owned("b", 11, 20, position=1)
    told_and_not_followed = owned("c", 21, 30, 4, 5, position=3)
    at_last = owned("d", 31, 40, 3, position=3)
    held = [first, told_too_little, told_and_not_followed, at_last]
    found = violations(held, [committed("a", 3, 9)], ENDS)
    assert [line.split()[0] for line in found] == ["S2", "S5"], found


def test_a_member_that_lost_a_partition_unasked_may_believe_a_while_that_it_has_it() -> None:
    held = [owned("a", 0, 12, 0, 1, 2, is_lost=True), owned("b", 11, 20, 0, 1, 2, 3, 4, 5)]
    assert violations(held, [], ENDS) == []


def given(member: str, generation: int, *partitions: int) -> Given:
    return Given(member=member, generation=generation, partitions=frozenset(partitions))


def test_a_generation_that_shares_everything_out_once_has_no_violation() -> None:
    assert generation_violations([given("a", 1, 0, 1), given("a", 2, 0), given("b", 2, 1), given("b", 2, 1)]) == []


@pytest.mark.parametrize(
    "other", [given("b", 2, 1, 2), given("a", 2, 0)], ids=["two members", "one member told two things"]
)
def test_a_generation_that_is_shared_out_twice_is_found(other: Given) -> None:
    (found,) = generation_violations([given("a", 2, 0, 1), other])
    assert found.startswith("S7 generation 2")
