"""From the raise on no view watches the link, so the agents that began a failover go on with it
until it is finished.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dr.agent import failover_watch
from dr.agent.core.failover_gates import Views
from dr.agent.failover_watch import FailoverWatch
from dr.failover.report import FailoverReport
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


def report(outcome: str, epoch: int) -> FailoverReport:
    return FailoverReport(link="a-b", from_site="a", to_site="b", outcome=outcome, reason="", epoch=epoch)


@pytest.mark.parametrize(
    ("reports", "wanted"),
    [
        pytest.param([report("refused", 2), report("refused", 2), report("done", 2)], report("done", 2), id="raised"),
        pytest.param([report("refused", 1), report("done", 2)], report("refused", 1), id="nothing changed"),
    ],
)
async def test_a_failover_that_has_raised_the_epoch_is_finished(
    monkeypatch: pytest.MonkeyPatch, reports: list[FailoverReport], wanted: FailoverReport
) -> None:
    left = list(reports)

    async def run() -> FailoverReport:
        return left.pop(0)

    def answering(answer: Any) -> Any:
        async def answered(*_: Any) -> Any:
            return answer

        return answered

    monkeypatch.setattr(failover_watch, "FailoverRun", lambda **_: SimpleNamespace(run=run))
    monkeypatch.setattr(failover_watch, "FINISH_PAUSE_S", 0)
    for name, answer in (
        ("_views", VIEWS),
        ("_own_evidence", None),
        ("_is_copy_complete", True),
        ("_closed_gates", []),
    ):
        monkeypatch.setattr(FailoverWatch, name, answering(answer))
    parts: dict[str, Any] = dict.fromkeys(("arbiter", "cache", "store", "peers"))
    watch = FailoverWatch(site="b", channels=Channels(), own_address="b:1", clock=ManualClock(), **parts)
    assert await watch.request(RECORD, asked_by="an application") == wanted
