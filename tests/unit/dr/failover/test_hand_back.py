"""Writes are handed back to the old site only when the promoted site cannot take any: another run
may be finishing the truncation at that moment.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from dr.failover.actions import SiteActions
from dr.failover.core.playbook import FailoverPlaybook
from dr.failover.core.steps import Decision, FailoverPolicy, Step
from dr.failover.report import FailoverTimeouts
from dr.sites.core.fencing import raised
from dr.sites.site_client import SiteRefused, SiteUnreachable
from runtime.clock import SystemClock
from tests.unit.dr.core.link_model import ModelLink, ModelSite, Operator
from wire.control.cluster_pb2 import LinkRecord


class Client:
    """A client of a site of the model; `calls` are those of both sites."""

    def __init__(self, site: ModelSite, calls: list[str], *, is_silent: bool = False) -> None:
        self.name = site.name
        self._site = site
        self._calls = calls
        self._is_silent = is_silent

    async def adopt_link(self, record: LinkRecord, *, unless_accounted: bool = False, **_: Any) -> Any:
        self._calls.append(f"adopt at {self.name}")
        if self._is_silent:
            raise SiteUnreachable(f"site {self.name} does not answer AdoptLink")
        if unless_accounted and record.epoch - 1 in self._site.accounts:
            raise SiteRefused("the account is stored", grpc.StatusCode.FAILED_PRECONDITION)
        return SimpleNamespace(record=self._site.adopt(record), has_leaders=False)

    async def confirm_link(self, *_: Any, **__: Any) -> Any:
        self._calls.append(f"confirm at {self.name}")
        return SimpleNamespace(are_writable=True)


def link_that_waits_for_a_truncation() -> ModelLink:
    link = ModelLink()
    assert link.a.write("v0")
    link.mirror()
    policy = FailoverPolicy(drain_timeout_ms=2_000, kept_before_ms=700)
    for step in Operator(link, policy=policy).steps():
        if step is Step.TRUNCATE:
            break
    return link


async def handed_back(link: ModelLink, *, is_target_silent: bool = False) -> tuple[list[str], LinkRecord | None, str]:
    """The calls at both sites, the record that the source has, and the problem."""
    calls: list[str] = []
    target: Any = Client(link.b, calls, is_silent=is_target_silent)
    source: Any = Client(link.a, calls)
    unused: Any = None
    actions = SiteActions(
        link="a-b",
        target=target,
        source=source,
        observer=unused,
        members=unused,
        playbook=FailoverPlaybook(to_site="b", policy=FailoverPolicy()),
        policy=FailoverPolicy(),
        timeouts=FailoverTimeouts(),
        clock=SystemClock(),
    )
    record = raised(link.b.record, to_site="a", highest_leader_epoch=0, now_ms=1)
    stored, problem = await actions.carry_out(Decision(step=Step.HAND_BACK, reason="", record=record), unused)
    return calls, stored, problem


async def test_the_source_takes_writes_after_the_target_has_the_record() -> None:
    link = link_that_waits_for_a_truncation()
    calls, stored, problem = await handed_back(link)
    assert calls == ["adopt at b", "adopt at a", "confirm at a"]
    assert (stored, problem) == (link.a.record, "")
    assert link.a.record == link.b.record


async def test_a_target_that_does_not_answer_may_be_taking_writes() -> None:
    calls, stored, problem = await handed_back(link_that_waits_for_a_truncation(), is_target_silent=True)
    assert calls == ["adopt at b", "adopt at a"]
    assert stored is not None
    assert problem == "b does not have the record (site b does not answer AdoptLink): fail over to a"


@pytest.mark.parametrize("is_promoted", [True, False])
async def test_a_failover_that_another_run_has_finished_is_not_handed_back(is_promoted: bool) -> None:
    link = link_that_waits_for_a_truncation()
    for step in Operator(link).steps():
        if step is Step.PROMOTE and not is_promoted:
            break
    assert link.b.is_writable() is is_promoted
    calls, stored, problem = await handed_back(link)
    assert (calls, stored) == (["adopt at b"], None)
    assert problem == "the account is stored"
