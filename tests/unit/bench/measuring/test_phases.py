"""A move's time is divided among its steps and the looks between them, and nothing is missing."""

from __future__ import annotations

from msgspec import to_builtins

from bench.measuring.phases import TITLES, phases
from dr.failover.core.steps import Step
from dr.failover.report import StepReport


def step(name: Step, started_at_ms: int, duration_ms: int) -> dict[str, object]:
    return to_builtins(StepReport(step=name.value, reason="", started_at_ms=started_at_ms, duration_ms=duration_ms))


def test_the_phases_add_up_to_the_time_from_the_fence_to_the_end() -> None:
    steps = [
        step(Step.PREPARE, 0, 900),
        step(Step.FENCE, 1_000, 20),
        step(Step.DRAIN, 1_030, 15),
        step(Step.RAISE, 1_050, 40),
        step(Step.ACCOUNT, 1_090, 0),
        step(Step.PROMOTE, 1_100, 60),
    ]
    found = phases(steps)
    assert found == {
        "phase_fence_ms": 20,
        "phase_drain_ms": 15,
        "phase_raise_ms": 40,
        "phase_account_ms": 0,
        "phase_promote_ms": 60,
        "phase_looks_ms": 25,
    }
    assert found.keys() == TITLES.keys()
    assert sum(found.values()) == 160


def test_a_repeated_step_counts_whole_and_a_clock_set_back_makes_no_negative_time() -> None:
    steps = [step(Step.FENCE, 1_000, 20), step(Step.RAISE, 500, 30), step(Step.RAISE, 540, 30)]
    found = phases(steps)
    assert (found["phase_raise_ms"], found["phase_looks_ms"]) == (60, 0)


def test_a_run_without_steps_has_no_time() -> None:
    assert phases([]) == dict.fromkeys(TITLES, 0)
