"""A run decides without a look at the sites only where it knows what it has stored."""

from __future__ import annotations

import pytest

from dr.failover.core.foreseen import foreseen
from dr.failover.core.steps import Decision, Step, StepEnded
from dr.sites.core.evidence import Evidence, SiteEvidence
from dr.sites.core.loss import LossAccount
from wire.control.cluster_pb2 import LinkRecord


def record(epoch: int, active_site: str, **fields: object) -> LinkRecord:
    values: dict[str, object] = {"source_site": "a", "target_site": "b", "leader_epoch_floor": epoch << 20, **fields}
    return LinkRecord(name="a-b", epoch=epoch, active_site=active_site, **values)  # type: ignore[arg-type]


OLD, RAISED = record(1, "a"), record(2, "b")
TORN = record(2, "b", is_cut_consistent=True)
EVIDENCE = Evidence(
    link="a-b",
    target_site="b",
    target=SiteEvidence(site="b", seen_at_ms=1, record=OLD),
    source=SiteEvidence(site="a", seen_at_ms=1, record=OLD),
)
ACCOUNT = LossAccount(
    link="a-b",
    epoch=2,
    from_site="a",
    to_site="b",
    accounted_at_ms=1,
    partitions=(),
    leader_epoch_floor=RAISED.leader_epoch_floor,
)


def after(
    step: Step,
    *,
    account: LossAccount | None = ACCOUNT,
    stored: LinkRecord | None = RAISED,
    wanted: LinkRecord = RAISED,
    problem: str = "",
    evidence: Evidence = EVIDENCE,
    with_source: bool = False,
    is_over: bool = False,
) -> Evidence | None:
    decision = Decision(step=step, reason="", record=wanted)
    ended = StepEnded(step=step, stored=stored, problem=problem)
    return foreseen(evidence, decision, ended, account, with_source=with_source, is_over=is_over)


@pytest.mark.parametrize("step", [Step.RAISE, Step.ACCOUNT])
def test_the_raised_epoch_and_its_account_are_known_after_they_were_stored(step: Step) -> None:
    found = after(step)
    assert found is not None
    assert found.target is not None
    assert (found.target.record, found.target.is_confirmed) == (RAISED, False)
    assert found.target.accounted_epochs == {2}
    assert found.source is None
    # a repeated step must not add the account twice
    again = after(step, evidence=found)
    assert again is not None
    assert again.target is not None
    assert again.target.promotions == found.target.promotions


def test_an_epoch_without_an_account_is_known_as_such() -> None:
    found = after(Step.RAISE, account=None, with_source=True)
    assert found is not None
    assert found.target is not None
    assert (found.target.record, found.target.accounted_epochs) == (RAISED, frozenset())
    assert found.source is EVIDENCE.source


def test_a_promotion_is_over_where_the_target_takes_writes_and_the_source_has_the_record() -> None:
    found = after(Step.PROMOTE, evidence=after(Step.RAISE, with_source=True) or EVIDENCE, is_over=True)
    assert found is not None
    assert found.target is not None
    assert found.target.is_confirmed
    assert found.source is not None
    assert found.target.record == found.source.record == RAISED


@pytest.mark.parametrize(
    "found",
    [
        after(Step.RAISE, stored=None, problem="no answer"),
        after(Step.RAISE, stored=record(2, "a")),
        after(Step.RAISE, stored=TORN, wanted=TORN),
        after(Step.RAISE, problem="a broker does not enforce it"),
        after(Step.ACCOUNT, account=None),
        after(Step.FENCE, stored=OLD, wanted=OLD),
        after(Step.PROMOTE),
        after(Step.PROMOTE, problem="no writes are accepted yet", is_over=True),
        after(Step.NOTIFY),
    ],
)
def test_the_sites_are_asked_after_every_other_step_and_outcome(found: Evidence | None) -> None:
    assert found is None
