"""Named timers: fired once, in order, restarted and cancelled by name, none left behind."""

from __future__ import annotations

from broker.coordination.timer_queue import TimerQueue
from tests.support.clock import ManualClock


async def test_timers_fire_in_the_order_of_their_deadlines_and_once(clock: ManualClock) -> None:
    fired: list[str] = []
    timers = TimerQueue(clock, fired.append)
    timers.start("late", 200)
    timers.start("early", 100)
    clock.advance(150)
    assert timers.run_due() == 1
    clock.advance(150)
    timers.run_due()
    timers.run_due()
    assert fired == ["early", "late"]
    assert len(timers) == 0


async def test_a_restarted_timer_waits_anew_and_an_earlier_deadline_counts(clock: ManualClock) -> None:
    fired: list[str] = []
    timers = TimerQueue(clock, fired.append)
    timers.start("session", 100)
    clock.advance(90)
    timers.start("session", 100)
    clock.advance(90)
    timers.run_due()
    assert fired == []
    timers.start("session", 5)
    clock.advance(5)
    timers.run_due()
    assert fired == ["session"]
    clock.advance(500)
    assert timers.run_due() == 0


async def test_a_cancelled_timer_does_not_fire_and_may_start_again(clock: ManualClock) -> None:
    fired: list[str] = []
    timers = TimerQueue(clock, fired.append)
    timers.start("a", 100)
    timers.cancel("a")
    timers.start("b", 50)
    timers.cancel("unknown")
    timers.start("a", 300)
    clock.advance(200)
    timers.run_due()
    assert fired == ["b"]
    clock.advance(100)
    timers.run_due()
    assert fired == ["b", "a"]


async def test_a_timer_may_start_others_when_it_fires(clock: ManualClock) -> None:
    fired: list[int] = []

    def fire(key: int) -> None:
        fired.append(key)
        if key < 3:
            timers.start(key + 1, 0)

    timers = TimerQueue(clock, fire)
    timers.start(0, 10)
    clock.advance(10)
    timers.run_due()
    assert fired == [0, 1, 2, 3]


async def test_nothing_is_left_after_stop(clock: ManualClock) -> None:
    fired: list[str] = []
    timers = TimerQueue(clock, fired.append)
    timers.start("a", 1)
    timers.stop()
    clock.advance(10)
    assert timers.run_due() == 0
    assert fired == []
