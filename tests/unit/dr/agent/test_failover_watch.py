"""From the raise on no view watches the link, so the agents that began a failover go on with it
until it is finished.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec import to_builtins

from dr.agent import failover_watch
from dr.agent.core.failover_gates import Views
from dr.agent.failover_watch import FailoverWatch
from dr.failover.core.recorded_run import RUNNING, RunRecord
from dr.failover.core.steps import FailoverPolicy
from dr.failover.report import FailoverReport
from dr.failover.run_drivers import SILENT_AFTER_MS
from dr.sites.channels import Channels
from tests.support.clock import ManualClock
from wire.control.cluster_pb2 import LinkPhase, LinkRecord, LinkSite
from wire.control.site_pb2 import ArbiterRecord

RECORD = LinkRecord(
    name="a-b",
    source_site="a",
    target_site="b",
    active_site="a",
    epoch=1,
    phase=LinkPhase.MIRRORING,
    lease_ms=10_000,
    failover_mode="automatic",
    sites={name: LinkSite(agents=[f"{name}:1"]) for name in ("a", "b")},
)
VIEWS = Views(
    arbiter=ArbiterRecord(link="a-b", epoch=1, active_site="a"),
    arbiter_problem="",
    present_brokers=0,
    is_peer_reachable=False,
    mirror_age_ms=-1,
)


def report(outcome: str, epoch: int, *, may_be_raised: bool = False) -> FailoverReport:
    return FailoverReport(
        link="a-b",
        from_site="a",
        to_site="b",
        outcome=outcome,
        reason="",
        epoch=epoch,
        may_be_raised=may_be_raised,
    )


RAISED = report("refused", 2, may_be_raised=True)


@pytest.mark.parametrize(
    ("reports", "wanted"),
    [
        pytest.param([RAISED, RAISED, report("done", 2)], report("done", 2), id="raised"),
        pytest.param([report("refused", 1), report("done", 2)], report("refused", 1), id="nothing changed"),
        pytest.param([report("refused", 2), report("done", 3)], report("refused", 2), id="given back"),
        pytest.param([report("refused", 0), report("done", 2)], report("refused", 0), id="no site answers"),
    ],
)
async def test_a_failover_that_has_raised_the_epoch_is_finished(
    monkeypatch: pytest.MonkeyPatch, reports: list[FailoverReport], wanted: FailoverReport
) -> None:
    left = list(reports)

    async def run() -> FailoverReport:
        return left.pop(0)

    monkeypatch.setattr(failover_watch, "FINISH_PAUSE_S", 0)
    assert await watch_with_open_gates(monkeypatch, run).request(RECORD, asked_by="an application") == wanted


def watch_with_open_gates(
    monkeypatch: pytest.MonkeyPatch, run: Callable[[], Awaitable[FailoverReport]]
) -> FailoverWatch:
    """The watch of an agent of b, where nothing stands against a failover."""

    def answering(answer: Any) -> Any:
        async def answered(*_: Any) -> Any:
            return answer

        return answered

    monkeypatch.setattr(failover_watch, "FailoverRun", lambda **_: SimpleNamespace(run=run))
    for name, answer in (
        ("_views", VIEWS),
        ("_own_evidence", None),
        ("_is_copy_complete", True),
        ("_closed_gates", []),
    ):
        monkeypatch.setattr(FailoverWatch, name, answering(answer))
    parts: dict[str, Any] = dict.fromkeys(("arbiter", "cache", "store", "peers"))
    return FailoverWatch(site="b", channels=Channels(), own_address="b:1", clock=ManualClock(), **parts)


async def test_a_requested_failover_ends_although_its_caller_does_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC cancels the answer to an application whose deadline has passed."""
    has_fenced, may_end, has_ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def run() -> FailoverReport:
        has_fenced.set()
        await may_end.wait()
        has_ended.set()
        return report("done", 2)

    watch = watch_with_open_gates(monkeypatch, run)
    request = asyncio.create_task(watch.request(RECORD, asked_by="an application"))
    await has_fenced.wait()
    request.cancel()
    with pytest.raises(asyncio.CancelledError):
        await request
    may_end.set()
    async with asyncio.timeout(10):
        await has_ended.wait()
    await watch.stop()


class Runs:
    """The runs that the watch carries out; `ended` is set when each of `outcomes` was reported."""

    def __init__(self, *outcomes: FailoverReport) -> None:
        self._left = list(outcomes)
        self.ended = asyncio.Event()

    def __call__(self, **_: Any) -> Any:
        return SimpleNamespace(run=self._run)

    async def _run(self) -> FailoverReport:
        outcome = self._left.pop(0)
        if not self._left:
            self.ended.set()
        return outcome


class Store:
    """The standby's store after a process has died that had raised the epoch."""

    def __init__(self, clock: ManualClock, *, opened: int) -> None:
        self._clock = clock
        self._opened = opened
        self.asked = 0

    async def opened(self, _: str) -> int:
        self.asked += 1
        self._clock.advance(SILENT_AFTER_MS)
        return self._opened

    async def runs(self, _: str) -> list[str]:
        policy = to_builtins(FailoverPolicy(needs_lost_source=True))
        run = RunRecord(
            link="a-b",
            to_site="b",
            who="",
            command="",
            began_at_ms=1,
            updated_at_ms=1,
            outcome=RUNNING,
            reason="",
            epoch=1,
            policy=policy,
        )
        return [run.to_json()]


def watch_at_b(clock: ManualClock, store: Store) -> FailoverWatch:
    """The watch of the agent of b's only broker, after b became active in epoch 2."""
    raised = LinkRecord()
    raised.CopyFrom(RECORD)
    raised.epoch, raised.active_site = 2, "b"
    facts = SimpleNamespace(has_lowest_node_id=lambda _: True, links={"a-b": raised})
    parts: dict[str, Any] = {"arbiter": None, "peers": None, "store": store, "cache": SimpleNamespace(facts=facts)}
    return FailoverWatch(site="b", channels=Channels(), own_address="b:1", clock=clock, **parts)


async def test_a_failover_whose_process_died_after_the_raise_is_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, clock = Runs(report("refused", 2), report("done", 2)), ManualClock()
    monkeypatch.setattr(failover_watch, "FailoverRun", runs)
    monkeypatch.setattr(failover_watch, "FINISH_PAUSE_S", 0)
    monkeypatch.setattr(failover_watch, "IDLE_INTERVAL_S", 0)
    watch = watch_at_b(clock, Store(clock, opened=1))
    watch.start()
    try:
        async with asyncio.timeout(10):
            await runs.ended.wait()
    finally:
        await watch.stop()


async def test_an_epoch_that_is_open_needs_no_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The process died after the promotion, so its run has not ended for ever."""
    clock = ManualClock()
    store, looked_often, looks = Store(clock, opened=2), asyncio.Event(), []

    async def looked(pause_s: float) -> None:
        looks.append(pause_s)
        if len(looks) > 3:
            looked_often.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(failover_watch, "FailoverRun", None)
    monkeypatch.setattr(failover_watch, "asyncio", SimpleNamespace(gather=asyncio.gather, sleep=looked))
    watch = watch_at_b(clock, store)
    watch.start()
    try:
        async with asyncio.timeout(10):
            await looked_often.wait()
    finally:
        await watch.stop()
    assert store.asked == 1
    assert not watch.counts()
