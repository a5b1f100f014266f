"""The sync policy `bound` at a leader: the high watermark is free, then throttled, then held."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker.replication.core.lag_bounded_hold import MARKS_MAX, LagBoundedHold

BOUND_MS = 1_000.0
LOOK_MS = 100.0


def hold(*, acknowledged: int = 0, may_degrade: bool = True) -> LagBoundedHold:
    return LagBoundedHold(
        may_degrade=may_degrade,
        timeout_ms=5_000,
        progressed_at_ms=0,
        acknowledged=acknowledged,
        bound_ms=BOUND_MS,
    )


def look(one: LagBoundedHold, end: int, now_ms: float) -> int | None:
    assert not one.check(high_watermark=0, mirrorable_end=end, now_ms=now_ms)
    return one.bound


def test_a_leader_that_has_no_report_holds_until_it_has_one() -> None:
    one = hold(acknowledged=-1)
    assert look(one, 0, 100) == -1
    assert look(one, 10, 200) == -1
    one.report(10, high_watermark=0, mirrorable_end=10, now_ms=250)
    assert one.bound is None


def test_nothing_waits_for_a_standby_that_follows() -> None:
    one = hold()
    for count in range(1, 50):
        now_ms = count * LOOK_MS
        assert look(one, count * 10, now_ms) is None
        one.report((count - 3) * 10, high_watermark=0, mirrorable_end=count * 10, now_ms=now_ms)
    assert one.limited_ms == 0


def test_a_standby_that_follows_within_the_bound_is_not_behind_once_it_has_what_was_there_before() -> None:
    """Under a load without a pause it never has everything, and would stay marked for ever."""
    one = hold(acknowledged=-1)
    assert one.is_behind(100)
    one.report(40, high_watermark=100, mirrorable_end=100, now_ms=100)
    assert one.is_behind(100)
    look(one, 110, 200)
    one.report(100, high_watermark=110, mirrorable_end=110, now_ms=250)
    assert not one.is_behind(110)
    look(one, 120, 200 + BOUND_MS + LOOK_MS)
    assert one.is_behind(120)


def test_a_silent_standby_throttles_from_half_of_the_bound_on_and_holds_beyond_it() -> None:
    one, bounds = hold(), {}
    for count in range(1, 15):
        bounds[count] = look(one, count * 10, count * LOOK_MS)
    assert [bounds[count] for count in (1, 5)] == [None, None]
    throttled = [bounds[count] or 0 for count in range(6, 11)]
    assert throttled == sorted(throttled)
    hidden = [count * 10 - bound for count, bound in zip(range(6, 11), throttled, strict=True)]
    assert hidden == sorted(hidden)
    assert 0 < hidden[-1] < 100
    assert [bounds[count] for count in range(11, 15)] == [0] * 4
    assert one.is_held
    assert one.limited_ms > 0


def test_a_standby_that_catches_up_ends_the_hold_and_a_new_record_has_its_own_age() -> None:
    one = hold()
    for count in range(1, 15):
        look(one, 10, count * LOOK_MS)
    assert one.bound == 0
    one.report(10, high_watermark=0, mirrorable_end=12, now_ms=1_450)
    assert one.bound is None
    assert one.lag_ms <= LOOK_MS
    assert look(one, 12, 1_900) is None
    assert look(one, 12, 2_600) == 10


def test_without_a_permit_nothing_becomes_visible_alone() -> None:
    one = hold(may_degrade=False)
    assert look(one, 10, 100) == 0


@given(
    st.lists(
        st.tuples(st.integers(0, 50), st.integers(0, 60), st.floats(1, 400)),
        max_size=80,
    )
)
def test_visible_records_that_the_standby_lacks_are_never_older_than_the_bound(
    steps: list[tuple[int, int, float]],
) -> None:
    """The test uses the true time of each append; the leader's looks come later."""
    one, now_ms, end, visible = hold(), 0.0, 0, 0
    born: list[float] = []
    for grown, reported, passed_ms in steps:
        born += [now_ms] * grown
        end += grown
        now_ms += passed_ms
        if reported % 3 == 0:
            one.report(min(end, one.acknowledged + reported), high_watermark=visible, mirrorable_end=end, now_ms=now_ms)
        else:
            look(one, end, now_ms)
        before, visible = visible, max(visible, end if one.bound is None else min(end, one.bound))
        if one.acknowledged < end and now_ms - born[one.acknowledged] > BOUND_MS:
            assert visible <= max(before, one.acknowledged)
        assert len(one._marks) <= MARKS_MAX + 1 + len(steps)
