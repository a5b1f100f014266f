"""The durations of a run's steps are right when the machine's clock is set during the run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from dr.failover.core.steps import Decision, Step
from dr.failover.execution import FailoverRun
from dr.failover.journal import Journal
from tests.support.clock import START_MS, ManualClock


async def test_a_clock_that_is_set_back_does_not_change_the_duration_of_a_drain() -> None:
    clock = ManualClock()
    target: Any = SimpleNamespace(name="b")
    with Journal(None, clock) as journal:
        run = FailoverRun(link="a-b", target=target, source=None, journal=journal, clock=clock)
        drain = Decision(step=Step.DRAIN, reason="1 record is missing")
        await run._wait(drain, are_writers_stopped=True, is_pause_due=False)
        clock.advance(40)
        clock.set_now_ms(START_MS - 3_600_000)
        await run._wait(drain, are_writers_stopped=True, is_pause_due=False)
    (step,) = run._steps
    assert (step.step, step.duration_ms) == ("drain", 40)
