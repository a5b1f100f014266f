"""A failover that agents began by themselves is continued when its process reports nothing more."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec import to_builtins
from msgspec.structs import replace

from dr.agent.core.interrupted_runs import RUNS_MAX, InterruptedRuns
from dr.failover.core.recorded_run import REFUSED, RUNNING, RunRecord
from dr.failover.core.steps import FailoverPolicy, Step
from dr.failover.run_drivers import SILENT_AFTER_MS
from wire.control.cluster_pb2 import LinkRecord

RAISED = LinkRecord(name="a-b", source_site="a", target_site="b", active_site="b", epoch=2)
AUTOMATIC = RunRecord(
    link="a-b",
    to_site="b",
    who="the agents of b",
    command="",
    began_at_ms=1,
    updated_at_ms=1,
    outcome=RUNNING,
    reason="raise",
    epoch=1,
    policy=to_builtins(FailoverPolicy(needs_lost_source=True)),
)


def is_due_after_silence(run: RunRecord | None) -> bool:
    runs = InterruptedRuns(SILENT_AFTER_MS)
    stored = [] if run is None else [run.to_json()]
    assert not runs.is_due(RAISED, stored, now_ms=0)
    return runs.is_due(RAISED, stored, now_ms=SILENT_AFTER_MS)


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_run_whose_report_stays_the_same_is_continued(epoch: int) -> None:
    """Its last report is from before or after the raise."""
    assert is_due_after_silence(replace(AUTOMATIC, epoch=epoch))


def test_a_run_that_reports_is_left_to_its_process() -> None:
    runs = InterruptedRuns(SILENT_AFTER_MS)
    for number in range(20):
        reported = replace(AUTOMATIC, updated_at_ms=number)
        assert not runs.is_due(RAISED, [reported.to_json()], now_ms=number * (SILENT_AFTER_MS - 1))


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"policy": to_builtins(FailoverPolicy())}, id="of a person"),
        pytest.param({"outcome": REFUSED, "policy": to_builtins(FailoverPolicy())}, id="refused, of a person"),
        pytest.param({"outcome": REFUSED, "epoch": 0}, id="refused, of an earlier epoch"),
        pytest.param({"outcome": REFUSED}, id="refused before the raise, which is of a person"),
        pytest.param(
            {"outcome": REFUSED, "steps": ({"step": Step.RAISE.value}, {"step": Step.GIVE_BACK.value})},
            id="refused, gave the writes back",
        ),
        pytest.param({"outcome": "done"}, id="done"),
        pytest.param({"to_site": "a"}, id="of the other direction"),
        pytest.param({"epoch": 0}, id="of an earlier epoch"),
    ],
)
def test_another_run_is_not_continued(changes: dict[str, Any]) -> None:
    assert not is_due_after_silence(replace(AUTOMATIC, **changes))


def test_a_link_without_runs_has_none_to_continue() -> None:
    assert not is_due_after_silence(None)


def test_a_run_that_ended_without_an_answer_to_its_raise_is_repeated() -> None:
    assert is_due_after_silence(replace(AUTOMATIC, outcome=REFUSED, steps=({"step": Step.RAISE.value},)))


@pytest.mark.parametrize(("refusals", "is_due"), [(1, True), (RUNS_MAX - 1, True), (RUNS_MAX, False)])
def test_runs_that_steps_ended_are_repeated_a_limited_number_of_times(refusals: int, *, is_due: bool) -> None:
    """The process may die in the pause before the next run."""
    runs = InterruptedRuns(SILENT_AFTER_MS)
    stored = [replace(AUTOMATIC, began_at_ms=number, outcome=REFUSED, epoch=2).to_json() for number in range(refusals)]
    assert not runs.is_due(RAISED, stored, now_ms=0)
    assert runs.is_due(RAISED, stored, now_ms=SILENT_AFTER_MS) is is_due


def test_a_run_that_cannot_be_read_is_not_continued() -> None:
    runs = InterruptedRuns(SILENT_AFTER_MS)
    for now_ms in (0, SILENT_AFTER_MS):
        assert not runs.is_due(RAISED, ["{}"], now_ms=now_ms)
