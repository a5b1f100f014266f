"""Whole runs of drills whose sites do not answer. Promised: a drill passes only if everything that
its plan states was judged, its clients lived, and all is put right; a stop counts at any time; a
plan that names what is not there begins no step.
"""

from __future__ import annotations

import asyncio
import errno
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from dr.drill.core.measures import Measured
from dr.drill.drill_clients import DrillClients
from dr.drill.drill_results import FAILED, STOPPED, DrillResult
from dr.drill.environment import Environment
from dr.drill.execution import DrillRun, Glance, View
from dr.drill.faults import ProcessFaults
from dr.drill.lag import LagProbe
from dr.drill.plan.drill_plan import parse_plan
from dr.drill.plan_checks import refuse_what_cannot_be
from dr.drill.steps.serving import Serving
from dr.drill.steps.stage import DrillStage
from dr.failover.journal import Journal
from dr.sites.channels import Channels
from runtime.children import Child
from runtime.process import OperationalFailure


def environment_of(tmp_path: Path, **changes: Any) -> Environment:
    process = {"name": "broker-1", "dir": tmp_path, "log": tmp_path / "log", "command": [sys.executable, "-c", "pass"]}
    bare = {"name": "bare", "dir": tmp_path, "log": tmp_path / "log"}
    far = {**process, "name": "far", "host": "nowhere"}
    site = {"bootstrap_servers": "127.0.0.1:1", "grpc": ["127.0.0.1:1"], "processes": [process, bare, far]}
    other = {**site, "processes": [{**process, "dir": tmp_path / "b"}]}
    link = {"name": "a-b", "source": "a", "target": "b"}
    return Environment.model_validate({"sites": {"a": site, "b": other}, "links": [link], **changes})


def run_of(tmp_path: Path, *steps: object, view: View | None = None, **fields: object) -> DrillRun:
    document = {"name": "n", "link": "a-b", "steps": list(steps), **fields}
    plan = parse_plan(document, where="x")
    return DrillRun(plan, environment_of(tmp_path), directory=tmp_path / "report", view=view)


async def outcome_of(run: DrillRun, stop: asyncio.Event | None = None) -> DrillResult:
    result, _ = await run.run(stop or asyncio.Event())
    return result


async def test_a_fault_that_stays_fails_the_drill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProcessFaults, "restore", lambda *_, **__: ["broker-1: no answer"])
    result = await outcome_of(run_of(tmp_path, {"hold": {"duration": "1ms"}}))
    assert (result.outcome, result.reason) == (FAILED, "not put right: broker-1: no answer")


@pytest.mark.parametrize("full_from", ["step begins", "step ends", "restore begins"])
async def test_a_full_disk_of_the_journal_keeps_no_fault_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, full_from: str
) -> None:
    is_full = False
    restored: list[bool] = []

    def write(_: Journal, event: str, **__: object) -> None:
        nonlocal is_full
        is_full = is_full or event == full_from
        if is_full:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Journal, "write", write)
    monkeypatch.setattr(ProcessFaults, "kill", lambda *_, **__: None)

    def restore(*_: object, **__: object) -> list[str]:
        restored.append(True)
        return []

    monkeypatch.setattr(ProcessFaults, "restore", restore)
    run = run_of(tmp_path, {"kill": {"process": "a/broker-1"}}, {"kill": {"site": "b"}})
    result = await outcome_of(run)
    assert restored == [True]
    assert (result.outcome, "No space left" in result.reason) == (FAILED, True)
    done = {"step begins": [], "step ends": ["done"], "restore begins": ["done", "done"]}[full_from]
    assert [step.outcome for step in result.steps if step.outcome != "skipped"] == done


async def test_a_directory_that_cannot_be_written_is_one_message(tmp_path: Path) -> None:
    (tmp_path / "report").touch()
    with pytest.raises(OperationalFailure, match=r"the drill has no report: .*File exists"):
        await outcome_of(run_of(tmp_path, "heal"))


async def test_an_error_of_the_system_fails_the_step_and_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError("the process belongs to another user")

    monkeypatch.setattr(ProcessFaults, "kill", refused)
    result = await outcome_of(run_of(tmp_path, {"kill": {"process": "a/broker-1"}}, {"hold": {"duration": "1ms"}}))
    assert [step.outcome for step in result.steps] == ["failed", "skipped"]
    assert result.reason == "kill a/broker-1: the process belongs to another user"
    assert (tmp_path / "report" / "report.json").exists()


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"terminate": {"process": "a/broker-1"}}, "broker-1 did not end in 20000 ms and had to be killed"),
        ({"kill": {"process": "a/broker-1"}}, "broker-1 did not end within 10000 ms after a kill -9"),
    ],
)
async def test_a_process_that_does_not_end_as_asked_fails_the_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: dict[str, object], message: str
) -> None:
    monkeypatch.setattr(Child, "pid", lambda _: 1)
    monkeypatch.setattr(Child, "send", lambda *_: True)
    monkeypatch.setattr(Child, "stop", lambda *_, **__: False)
    monkeypatch.setattr(Child, "wait_ended", lambda *_, **__: False)
    monkeypatch.setattr(ProcessFaults, "restore", lambda *_, **__: [])
    result = await outcome_of(run_of(tmp_path, step, restores=False))
    assert (result.outcome, result.steps[0].outcome) == (FAILED, "failed")
    assert result.reason.endswith(f": {message}")


async def test_a_client_that_has_failed_fails_the_drill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The load has begun, and its producer cannot be made of these settings."""
    load = {"start_load": {"name": "shop", "settings": {"no.such.setting": "1"}}}

    async def ended(clients: DrillClients, name: str) -> None:
        await asyncio.to_thread(clients.producers[name].process.wait)

    monkeypatch.setattr(DrillClients, "wait_started", ended)
    result = await outcome_of(run_of(tmp_path, load, {"hold": {"duration": "1ms"}}))
    assert result.outcome == FAILED
    assert "shop ended with exit code 1" in result.reason


async def test_a_stop_before_the_steady_state_begins_no_step(tmp_path: Path) -> None:
    stop = asyncio.Event()
    run = run_of(tmp_path, "heal", steady_state={"is_protected": True, "within": "60m"})
    running = asyncio.create_task(outcome_of(run, stop))
    asyncio.get_running_loop().call_soon(stop.set)
    result = await asyncio.wait_for(running, 60)
    assert (result.outcome, result.reason) == (STOPPED, "steady state: stopped from outside")
    assert [step.outcome for step in result.steps] == ["skipped"]


async def test_expectations_without_a_load_are_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def measured(stage: DrillStage) -> Measured:
        stage.result.measured = Measured(reconciliations={"end": "differ"})
        return stage.result.measured

    monkeypatch.setattr("dr.drill.execution.measure_drill", measured)
    monkeypatch.setattr("dr.drill.execution.refuse_what_cannot_be", lambda *_, **__: None)
    result = await outcome_of(run_of(tmp_path, {"hold": {"duration": "1ms"}}, expect={"sites_equal": ["end"]}))
    assert (result.outcome, result.reason) == (FAILED, "not as expected: sites equal (end)")


@pytest.mark.parametrize(
    ("steps", "expect", "message"),
    [
        ([{"fail_over": {"to": "c"}}], {}, "fail over to c: .* accepted is one of a, b"),
        ([{"switch_over": {"to": ""}}], {}, "accepted is one of a, b"),
        (["cut"], {}, "link a-b has no proxy of any kind before any site"),
        ([{"slow": {"kind": "grpc", "site": "a"}}], {}, "link a-b has no proxy grpc before a"),
        ([{"kill": {"process": "a/bare"}}], {}, "kill a/bare: the environment gives no command for bare"),
        ([{"fill_disk": {"process": "a/far"}}], {}, "host 'nowhere' is not in the environment"),
        (["heal"], {"duplicates_max": 0}, "duplicates_max: the plan has no start_load"),
        (
            [{"reconcile": {"name": "end", "quick": True}}, {"reconcile": {"name": "end"}}],
            {"sites_equal": ["end"]},
            "2 reconcile steps named 'end': give each a name of its own",
        ),
        (["heal"], {"sites_equal": ["end"]}, "sites_equal: the plan has no reconcile step named 'end'"),
    ],
)
def test_what_the_plan_names_and_is_not_there_is_refused_before_the_first_step(
    tmp_path: Path, steps: Sequence[object], expect: dict[str, object], message: str
) -> None:
    plan = parse_plan({"name": "n", "link": "a-b", "steps": steps, "expect": expect}, where="x")
    with pytest.raises(OperationalFailure, match=message):
        refuse_what_cannot_be(plan, environment_of(tmp_path))


async def test_only_the_site_whose_process_was_started_is_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both sites have a process of this name, and the other site is away."""
    known = environment_of(tmp_path)
    run = DrillRun(
        parse_plan({"name": "n", "link": "a-b", "steps": ["heal"]}, where="x"), known, directory=tmp_path / "report"
    )
    asked: list[str] = []

    async def is_serving(_: Serving, site: str) -> bool:
        asked.append(site)
        return site == "a"

    monkeypatch.setattr(Serving, "_is_serving", is_serving)
    channels = Channels()
    try:
        await run._stage(channels).serving.wait(known.processes(process="a/broker-1"), within_ms=100, what="start")
    finally:
        await channels.close()
    assert asked == ["a"]


async def test_a_run_that_is_cancelled_while_it_restores_ends_when_all_is_put_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end = threading.Event(), threading.Event()
    restored: list[bool] = []

    def restore(*_: object, **__: object) -> list[str]:
        begun.set()
        may_end.wait(60)
        restored.append(True)
        return []

    async def serving(*_: object, **__: object) -> None:
        restored.append(False)

    monkeypatch.setattr(ProcessFaults, "restore", restore)
    monkeypatch.setattr(Serving, "wait", serving)
    running = asyncio.create_task(outcome_of(run_of(tmp_path, {"hold": {"duration": "1ms"}})))
    await asyncio.to_thread(begun.wait, 60)
    running.cancel()
    asyncio.get_running_loop().call_later(0.05, may_end.set)
    with pytest.raises(asyncio.CancelledError):
        await running
    assert restored == [True, False]


async def test_a_drill_whose_lag_is_not_watched_any_more_does_not_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(LagProbe, "follow", broken)
    run = run_of(tmp_path, {"hold": {"duration": "60m"}}, "heal")
    with pytest.raises(OperationalFailure, match="Broken pipe"):
        await asyncio.wait_for(outcome_of(run), 60)
    assert [step.outcome for step in run._result.steps] == ["stopped", "skipped"]


async def test_a_drill_that_loses_its_terminal_still_writes_its_report(tmp_path: Path) -> None:
    seen: list[str] = []
    stop = asyncio.Event()

    def lost(glance: Glance) -> None:
        seen.append(glance.step)
        stop.set()
        raise OSError(errno.EIO, "Input/output error")

    run = run_of(tmp_path, {"hold": {"duration": "60m"}}, view=lost)
    result = await asyncio.wait_for(outcome_of(run, stop), 60)
    assert seen == ["hold 3600 s"]
    assert (result.outcome, result.reason) == (STOPPED, "hold 3600 s: stopped from outside")
    assert (tmp_path / "report" / "report.json").exists()
