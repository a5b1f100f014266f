"""Ranks, the queue of waiting fetchers, and the byte rate."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from clients.core.line import TURNS, Line
from mirror.flow.core.lag import Lag
from mirror.flow.core.priorities import (
    Classes,
    TokenBucket,
    TopicClass,
    is_backfill_rank,
    is_backfilling,
    rank_of,
    share_bytes,
)
from wire.protocol.ids import UNKNOWN

RANKS = 2 * len(TopicClass)


def test_the_live_tail_of_every_class_goes_before_any_backfill() -> None:
    live = [rank_of(one, is_backfill=False) for one in TopicClass]
    behind = [rank_of(one, is_backfill=True) for one in TopicClass]
    assert max(live) < min(behind)
    assert sorted(live + behind) == list(range(RANKS))
    assert [is_backfill_rank(rank) for rank in live + behind] == [False] * 3 + [True] * 3


def test_classes_by_pattern() -> None:
    classes = Classes(high=["pay.*"], low=["logs", "payments-archive"])
    assert classes.of("payments") is TopicClass.HIGH
    assert classes.of("payments-archive") is TopicClass.HIGH, "high wins over low"
    assert classes.of("logs") is TopicClass.LOW
    assert classes.of("logs2") is TopicClass.NORMAL


def test_backfill_ends_well_below_where_it_begins() -> None:
    def is_behind(size: int, *, was: bool) -> bool:
        return is_backfilling(Lag(records=1, bytes=size, ms=0), was_backfilling=was, threshold_bytes=1000)

    assert not is_behind(1000, was=False)
    assert is_behind(1001, was=False)
    assert is_behind(251, was=True)
    assert not is_behind(250, was=True)


def test_a_lag_that_is_unknown_changes_nothing() -> None:
    unknown = Lag(records=UNKNOWN, bytes=UNKNOWN, ms=0)
    for was in (True, False):
        assert is_backfilling(unknown, was_backfilling=was, threshold_bytes=0) is was


def served(line: Line[int], count: int) -> list[int]:
    found = []
    for _ in range(count):
        _, waiter = line.candidates()[0]
        line.serve(waiter)
        found.append(waiter)
    return found


@given(st.lists(st.integers(0, RANKS - 1), min_size=1, max_size=TURNS - 1))
def test_lower_ranks_are_served_first_and_equals_by_arrival(ranks: list[int]) -> None:
    line: Line[int] = Line()
    for number, rank in enumerate(ranks):
        line.join(rank, number)
    assert served(line, len(ranks)) == sorted(range(len(ranks)), key=lambda number: (ranks[number], number))


@given(st.integers(1, 5))
def test_no_waiter_starves_while_others_keep_coming(rounds: int) -> None:
    line: Line[int] = Line()
    line.join(RANKS - 1, -1)
    found: list[int] = []
    for number in range(TURNS * rounds):
        line.join(0, number)
        found += served(line, 1)
    assert -1 in found[:TURNS]


def test_a_flow_that_leaves_is_not_served() -> None:
    line: Line[str] = Line()
    line.join(0, "gone")
    line.join(1, "there")
    assert line.has_before(0)
    line.leave("gone")
    assert not line.has_before(0)
    assert line.candidates() == [(1, "there")]


def test_shares_never_grow_with_the_rank() -> None:
    shares = [share_bytes(rank, 1000) for rank in range(RANKS)]
    assert shares == sorted(shares, reverse=True)
    assert shares[0] == 1000


@given(st.integers(1, 10**6), st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 10**6)), max_size=50))
def test_a_rate_is_kept_up_to_one_answer_and_one_second(rate: int, steps: list[tuple[int, int]]) -> None:
    bucket, now_ms, passed, largest = TokenBucket(bytes_per_second=rate, now_ms=0), 0.0, 0, 0
    for pause_ms, size in steps:
        now_ms += pause_ms
        if bucket.is_open(now_ms):
            bucket.spend(size, now_ms)
            passed, largest = passed + size, max(largest, size)
        else:
            now_ms += bucket.opens_in_ms(now_ms)
            assert bucket.is_open(now_ms)
        assert passed <= rate * (now_ms / 1000 + 1) + largest + 1


def test_without_a_rate_all_may_pass() -> None:
    bucket = TokenBucket(bytes_per_second=0, now_ms=0)
    bucket.spend(10**12, 0)
    assert bucket.is_open(0)
    assert bucket.opens_in_ms(0) == 0
