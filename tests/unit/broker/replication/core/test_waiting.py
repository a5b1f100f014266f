"""The purgatory and its timing wheel."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from broker.replication.core.waiting import WaitingRequests


def test_a_request_expires_at_its_deadline_and_not_before() -> None:
    waiting: WaitingRequests[str] = WaitingRequests(tick_ms=5)
    waiting.add("r", keys=["k"], deadline_ms=1_000_003)
    assert waiting.expire(1_000_002) == []
    assert waiting.expire(1_000_010) == ["r"]
    assert not waiting.is_watched("k")


def test_a_request_further_away_than_a_turn_of_the_wheel_waits_on() -> None:
    waiting: WaitingRequests[str] = WaitingRequests(tick_ms=5)
    waiting.expire(0)
    waiting.add("far", keys=["k"], deadline_ms=30_000)
    for now_ms in range(0, 30_000, 100):
        assert waiting.expire(now_ms) == []
    assert waiting.expire(30_005) == ["far"]


def test_a_request_leaves_once() -> None:
    waiting: WaitingRequests[str] = WaitingRequests()
    entry = waiting.add("r", keys=["k1", "k2"], deadline_ms=50)
    assert waiting.remove(entry)
    assert not waiting.remove(entry)
    assert waiting.expire(10_000) == []
    assert (len(waiting), waiting.key_count) == (0, 0)


def test_watchers_are_called_in_order_of_arrival() -> None:
    waiting: WaitingRequests[str] = WaitingRequests()
    for name in ("first", "second", "third"):
        waiting.add(name, keys=["k"], deadline_ms=50)
    assert [entry.request for entry in waiting.watchers("k")] == ["first", "second", "third"]


def test_an_overdue_request_expires_at_the_next_look() -> None:
    waiting: WaitingRequests[str] = WaitingRequests(tick_ms=5)
    waiting.expire(10_000)
    entry = waiting.add("late", keys=["k"], deadline_ms=3)
    removable = waiting.add("gone", keys=["k"], deadline_ms=3)
    assert waiting.remove(removable)
    assert waiting.expire(10_010) == ["late"]
    assert entry.is_done


def test_ten_thousand_requests_leave_nothing_behind() -> None:
    waiting: WaitingRequests[int] = WaitingRequests(tick_ms=5)
    entries = [waiting.add(number, keys=[number, number % 7], deadline_ms=1_000 + number) for number in range(10_000)]
    assert all(waiting.remove(entry) for entry in entries[::2])
    expired = [request for now_ms in range(0, 12_000, 100) for request in waiting.expire(now_ms)]
    assert sorted(expired) == list(range(1, 10_000, 2))
    assert (len(waiting), waiting.key_count, waiting.next_expiry_ms()) == (0, 0, math.inf)


def test_drain_gives_every_request_once() -> None:
    waiting: WaitingRequests[str] = WaitingRequests()
    waiting.add("r1", keys=["k1", "k2"], deadline_ms=50)
    waiting.add("r2", keys=["k2"], deadline_ms=5_000)
    assert sorted(waiting.drain(0)) == ["r1", "r2"]
    assert len(waiting) == 0


steps = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 20_000)),
        st.tuples(st.just("remove"), st.integers(0, 30)),
        st.tuples(st.just("advance"), st.integers(0, 4_000)),
    ),
    max_size=60,
)


@given(steps)
def test_the_wheel_agrees_with_a_plain_list(script: list[tuple[str, int]]) -> None:
    waiting: WaitingRequests[int] = WaitingRequests(tick_ms=5)
    entries, alive, now_ms = [], {}, 0
    for number, (action, value) in enumerate(script):
        if action == "add":
            entries.append(waiting.add(number, keys=[value % 3, "all"], deadline_ms=now_ms + value))
            alive[number] = now_ms + value
        elif action == "remove" and entries:
            entry = entries[value % len(entries)]
            assert waiting.remove(entry) is (alive.pop(entry.request, None) is not None)
        elif action == "advance":
            now_ms += value
            for expired in waiting.expire(now_ms):
                assert alive.pop(expired) <= now_ms
            assert all(deadline > now_ms - 10 for deadline in alive.values())
        assert len(waiting) == len(alive)
        assert len(waiting.watchers("all")) == len(alive)


@given(waits=st.lists(st.floats(0, 20_000), min_size=1, max_size=20))
def test_nothing_is_due_before_the_next_expiry_and_nothing_waits_past_it(waits: list[float]) -> None:
    waiting: WaitingRequests[float] = WaitingRequests(tick_ms=5)
    waiting.expire(1_000_000.0)
    left = [1_000_000.0 + wait_ms for wait_ms in waits]
    for deadline_ms in left:
        waiting.add(deadline_ms, keys=[0], deadline_ms=deadline_ms)
    while left:
        next_ms = waiting.next_expiry_ms()
        assert next_ms <= min(left) + 5
        assert not waiting.expire(next_ms - 0.01)
        for due_ms in waiting.expire(next_ms):
            assert due_ms <= next_ms
            left.remove(due_ms)
    assert waiting.next_expiry_ms() == math.inf
