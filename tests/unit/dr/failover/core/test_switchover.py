"""A switchover needs both sites; a failover over a silent site needs the operator's declaration
that it is down; a fence that does not hold is noticed.
"""

from __future__ import annotations

import pytest

from dr.failover.core.steps import FailoverPolicy, Step
from dr.sites.core.loss import LossAccount
from tests.unit.dr.core.link_model import KEY, ModelLink, Operator
from wire.control.cluster_pb2 import LinkPhase

SWITCHOVER = FailoverPolicy(is_switchover=True)
NOT_DECLARED = FailoverPolicy(is_old_site_down=False, drain_timeout_ms=2_000)


def link_with_records(count: int = 6) -> ModelLink:
    link = ModelLink()
    for number in range(count):
        assert link.a.write(f"v{number}")
    link.mirror()
    return link


def refusal(operator: Operator) -> str:
    assert operator.outcome is not None
    assert operator.outcome.step is Step.REFUSE
    return operator.outcome.reason


def test_a_switchover_loses_nothing() -> None:
    link = link_with_records()
    assert Operator(link, policy=SWITCHOVER).run().step is Step.DONE
    assert link.b.partitions[KEY].log == link.a.partitions[KEY].log
    assert link.b.accounts[2].loses_nothing
    # read back, as a later failover does that counts those before it
    assert LossAccount.from_json(link.b.accounts[2].to_json()).promotion.is_planned


def test_a_failover_that_a_switchover_finishes_is_not_planned() -> None:
    link = link_with_records()
    link.a.is_up = False
    for step in Operator(link).steps():
        if step is Step.ACCOUNT:
            break
    link.b.accounts.clear()
    link.a.is_up = True
    assert Operator(link, policy=SWITCHOVER).run().step is Step.DONE
    assert not link.b.accounts[2].promotion.is_planned


def test_f_i_a_switchover_from_a_silent_site_is_refused() -> None:
    link = link_with_records()
    link.a.is_up = False
    operator = Operator(link, policy=SWITCHOVER)
    operator.run()
    assert refusal(operator).startswith("a does not answer (no answer): a switchover needs both sites")
    assert link.b.record.epoch == 1


@pytest.mark.parametrize("lost_at", [Step.FENCE, Step.DRAIN, Step.RAISE])
def test_f_i_a_switchover_whose_source_goes_silent_gives_the_fence_back(lost_at: Step) -> None:
    link = link_with_records()
    assert link.a.write("not mirrored")
    operator = Operator(link, policy=SWITCHOVER)
    for step in operator.steps():
        if step is lost_at:
            link.a.is_up = False
    if lost_at is Step.RAISE:  # the epoch was on its way: the move is finished
        assert operator.outcome is not None
        assert operator.outcome.step is Step.DONE
        return
    assert "a switchover needs both sites" in refusal(operator)
    link.a.is_up = True
    link.a.adopt(link.b.record)
    link.a.confirmed_epoch = link.a.record.epoch
    assert link.a.record.phase != LinkPhase.FENCED
    assert link.a.write("goes on")
    assert not link.b.write("not active")


def test_f_j_a_silent_site_that_is_not_declared_down_is_not_abandoned() -> None:
    link = link_with_records()
    link.a.is_up = False
    operator = Operator(link, policy=NOT_DECLARED)
    operator.run()
    assert "nothing proves that it is down" in refusal(operator)
    assert "agents of b reached it 0.0 s ago" in refusal(operator)
    assert "--old-site-is-down" in refusal(operator)
    assert link.b.record.epoch == 1
    declared = Operator(link, policy=FailoverPolicy(drain_timeout_ms=2_000))
    assert declared.run().step is Step.DONE


def test_f_j_a_site_that_goes_silent_after_its_fence_was_proven_takes_no_write_and_needs_no_declaration() -> None:
    link = link_with_records()
    operator = Operator(link, policy=NOT_DECLARED)
    for step in operator.steps():
        if step is Step.DRAIN:
            link.a.is_up = False
    assert operator.outcome is not None
    assert operator.outcome.step is Step.DONE


@pytest.mark.parametrize("policy", [SWITCHOVER, FailoverPolicy()])
def test_f_k_a_writer_that_the_fence_does_not_stop_has_the_writes_given_back(policy: FailoverPolicy) -> None:
    link = link_with_records()
    link.carries_groups = False
    assert link.a.commit(3)
    operator = Operator(link, policy=policy)
    for count, step in enumerate(operator.steps()):
        if step is Step.DRAIN and count > 4:
            link.a.partitions[KEY].log.append((0, "past the fence"))
    assert "flights-0 grew from 6 to 7 at a although every broker" in refusal(operator)
    assert link.a.is_writable()


def test_f_k_markers_of_decided_transactions_are_no_writer() -> None:
    link = link_with_records()
    link.a.committing_transactions = 1
    operator = Operator(link, policy=SWITCHOVER)
    for count, step in enumerate(operator.steps()):
        if step is Step.DRAIN and count == 6:
            link.a.partitions[KEY].log.append((0, "a marker"))
            link.a.committing_transactions = 0
    assert operator.outcome is not None
    assert operator.outcome.step is Step.DONE
    assert link.b.partitions[KEY].log == link.a.partitions[KEY].log


def test_f_k_with_data_loss_accepted_the_move_goes_on() -> None:
    link = link_with_records()
    link.carries_groups = False
    assert link.a.commit(3)
    operator = Operator(link, policy=FailoverPolicy(accepts_data_loss=True))
    for step in operator.steps():
        if step is Step.DRAIN:
            link.a.partitions[KEY].log.append((0, "past the fence"))
    assert operator.outcome is not None
    assert operator.outcome.step is Step.DONE


def under_a_lease() -> ModelLink:
    link = link_with_records()
    for site in (link.a, link.b):
        site.record.lease_ms = 1_000
    return link


def test_f_j_a_silent_site_whose_lease_runs_out_need_not_be_declared_down() -> None:
    link = under_a_lease()
    link.a.is_up = False
    assert Operator(link, policy=NOT_DECLARED).run().step is Step.DONE
    assert link.b.accounts[2].from_site == "a"


@pytest.mark.parametrize("is_source_up", [True, False])
def test_without_the_arbiter_no_writer_of_a_link_with_a_lease_is_stopped(*, is_source_up: bool) -> None:
    link = under_a_lease()
    link.a.is_up, link.b.arbiter_problem = is_source_up, "the arbiter does not answer"
    operator = Operator(link, policy=NOT_DECLARED)
    operator.run()
    assert refusal(operator).startswith("the arbiter does not answer: b takes writes only when the arbiter opens")
    assert not operator.story or operator.story[0].startswith("refuse")
    assert (link.a.record.epoch, link.b.record.epoch) == (1, 1)


def test_an_arbiter_that_is_lost_under_a_fence_gives_the_writes_back() -> None:
    link = under_a_lease()
    assert link.a.write("not mirrored")
    operator = Operator(link, policy=SWITCHOVER)
    for step in operator.steps():
        if step is Step.FENCE:
            link.b.arbiter_problem = "the arbiter does not answer"
    assert "the arbiter does not answer" in refusal(operator)
    assert link.a.record.phase == LinkPhase.MIRRORING


@pytest.mark.parametrize("has_moved", [False, True])
def test_an_epoch_in_which_writes_were_given_back_has_no_account(has_moved: bool) -> None:
    """The site stays active in the band of its last promotion, so nothing is lost and nothing is
    to be compared with the other site.
    """
    link = under_a_lease()
    active, standby = ("b", "a") if has_moved else ("a", "b")
    if has_moved:
        Operator(link, to_site="b").run()
    moved_epochs = sorted(link.site(active).accounts)
    operator = Operator(link, to_site=standby, policy=SWITCHOVER)
    for step in operator.steps():
        if step is Step.FENCE:
            link.site(standby).arbiter_problem = "the arbiter does not answer"
    assert "the arbiter does not answer" in refusal(operator)
    assert link.site(active).write("after the give-back")
    again = Operator(link, to_site=active)
    again.run()
    assert "is active for link a-b already" in refusal(again)
    assert sorted(link.site(active).accounts) == moved_epochs


def test_agents_that_fail_over_by_themselves_stop_when_the_active_site_answers_again() -> None:
    link = under_a_lease()
    operator = Operator(link, policy=FailoverPolicy(needs_lost_source=True))
    operator.run()
    assert refusal(operator) == "a answers again"
    assert (link.a.record.epoch, link.b.record.epoch) == (1, 1)
