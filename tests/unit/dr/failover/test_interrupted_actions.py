"""A site that falls silent within a step ends no run without a report: the next decision names the
step and what an operator can do.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, Self

import pytest

from dr.failover import accounting, execution
from dr.failover.accounting import Accounting
from dr.failover.core.playbook import FailoverPlaybook
from dr.failover.core.steps import Decision, FailoverPolicy, Step
from dr.failover.execution import FailoverRun
from dr.failover.journal import Journal
from dr.sites.core.evidence import Evidence
from dr.sites.core.fencing import raised
from dr.sites.site_client import SiteUnreachable
from runtime.clock import SystemClock
from runtime.process import OperationalFailure
from tests.unit.dr.core.link_model import KEY, ModelLink
from wire.client.client_errors import Unreachable
from wire.control.cluster_pb2 import LinkRecord

SILENT = "site b does not answer ObserveLink"


def link_that_lost_its_source() -> ModelLink:
    link = ModelLink()
    assert link.a.write("v0")
    link.mirror()
    link.a.is_up = False
    return link


class Observer:
    """Looks at the sites of a model link."""

    def __init__(self, link: ModelLink) -> None:
        self._link = link

    async def evidence(self, **_: Any) -> Evidence:
        return self._link.evidence("b")

    def reuse_logs(self) -> None:
        pass


class Actions:
    """Raises an epoch at the model's target, which falls silent when it is asked for its
    account.
    """

    account = None

    def __init__(self, link: ModelLink) -> None:
        self._link = link

    async def carry_out(self, decision: Decision, _: Evidence) -> tuple[LinkRecord | None, str]:
        if decision.step is Step.RAISE:
            assert decision.record is not None
            return self._link.b.adopt(decision.record), ""
        raise SiteUnreachable(SILENT)

    def is_over(self, _: LinkRecord) -> bool:
        return False

    async def kept_account(self, _: Evidence) -> None:
        return None


async def test_a_target_that_falls_silent_within_a_step_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    link = link_that_lost_its_source()
    monkeypatch.setattr(execution, "LinkObserver", lambda *_, **__: Observer(link))
    monkeypatch.setattr(execution, "SiteActions", lambda **_: Actions(link))
    runs: list[str] = []

    async def record_run(_link: str, *, run: str, document: str) -> None:
        runs.append(document)

    clock, target = SystemClock(), SimpleNamespace(name="b", record_run=record_run)
    policy = FailoverPolicy(settle_ms=0, drain_timeout_ms=0)
    with Journal(None, clock) as journal:
        run = FailoverRun(
            link="a-b",
            target=target,
            source=None,
            journal=journal,
            policy=policy,
            clock=clock,  # type: ignore[arg-type]
        )
        report = await run.run()
    assert report.outcome == "refused"
    assert f"the account of epoch 2 could not be stored ({SILENT})" in report.reason
    assert (report.steps[-1].step, report.steps[-1].problem) == ("account", SILENT)
    assert '"outcome":"refused"' in runs[-1]


class SilentBroker:
    """A client whose bootstrap brokers do not answer."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def metadata(self, _: list[str]) -> None:
        raise Unreachable("127.0.0.1:1 metadata: connection refused")


async def test_a_broker_that_falls_silent_while_the_account_is_made_is_a_problem_of_the_site(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Clients have written at the promoted site, so its brokers are asked for the ends of
    epochs.
    """
    monkeypatch.setattr(accounting, "site_client", lambda *_: SilentBroker())
    link = link_that_lost_its_source()
    record = raised(link.b.record, to_site="b", highest_leader_epoch=0, now_ms=1)
    link.b.adopt(record)
    link.b.confirmed_epoch = record.epoch
    assert link.b.write("after", KEY)

    async def view(**_: Any) -> None:
        return None

    target: Any = SimpleNamespace(view=view)
    playbook = FailoverPlaybook(to_site="b", policy=FailoverPolicy())
    made = Accounting("a-b", target=target, playbook=playbook, security=None)
    observer: Any = SimpleNamespace()
    with pytest.raises(OperationalFailure, match=r"site b .* connection refused"):
        await made.after_the_raise(record, link.b.evidence(1), observer, unix_ms=1)
