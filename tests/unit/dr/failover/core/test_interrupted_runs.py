"""Interrupted runs of the playbook, and operators that take turns: another run finishes the
failover, and at most one site is writable (F7).
"""

from __future__ import annotations

import itertools

import pytest

from dr.failover.core.steps import FailoverPolicy, Step
from dr.sites.core.fencing import fenced
from tests.unit.dr.core.link_model import KEY, ModelLink, Operator
from tests.unit.dr.failover.core.failover_links import assert_promoted, link_with_records


@pytest.mark.parametrize("source_state", ["alive", "dead", "dies_after_fence", "dies_after_raise"])
@pytest.mark.parametrize("crash_before", range(12))
def test_f7_a_run_interrupted_before_any_step_is_finished_by_another_operator(
    source_state: str, crash_before: int
) -> None:
    link = link_with_records(written=12, mirrored=3)
    link.a.is_up = source_state != "dead"
    first = Operator(link)
    for count, step in enumerate(first.steps()):
        if source_state == "dies_after_fence" and step is Step.DRAIN:
            link.a.is_up = False
        if source_state == "dies_after_raise" and step is Step.ACCOUNT:
            link.a.is_up = False
        if count == crash_before:
            break
    second = Operator(link)
    outcome = second.run()
    assert outcome.step is Step.DONE or "active for link a-b already" in outcome.reason
    assert_promoted(link)
    kept = link.b.accounts[2].partitions[0].kept_below
    assert link.b.partitions[KEY].log[:kept] == link.a.partitions[KEY].log[:kept]
    assert all(epoch >= link.b.record.leader_epoch_floor for epoch, _ in link.b.partitions[KEY].log[kept:])


def test_a_run_may_have_raised_the_epoch_from_its_raise_on() -> None:
    """Also when no site answers afterwards."""
    link = link_with_records(written=3, mirrored=3)
    link.a.is_up = False
    operator = Operator(link)
    for step in operator.steps():
        if step is Step.RAISE:
            assert not operator.playbook.may_be_raised(link.evidence("b"))
        if step is Step.ACCOUNT:
            link.b.is_up = False
    assert operator.outcome is not None
    assert operator.outcome.step is Step.REFUSE
    assert operator.playbook.may_be_raised(link.evidence("b"))


def test_a_run_that_no_site_answers_has_raised_nothing() -> None:
    link = link_with_records(written=3, mirrored=3)
    link.a.is_up = link.b.is_up = False
    operator = Operator(link)
    assert operator.run().step is Step.REFUSE
    assert not operator.playbook.may_be_raised(link.evidence("b"))


@pytest.mark.parametrize("source_state", ["alive", "dead", "dies_after_fence"])
@pytest.mark.parametrize("crash_before", range(12))
def test_a_site_promoted_over_a_lost_one_does_not_wait_for_it_wherever_the_run_was_interrupted(
    source_state: str, crash_before: int
) -> None:
    link = link_with_records(written=12, mirrored=3)
    for site in (link.a, link.b):
        site.record.sync_policy, site.record.sync_timeout_ms = "block", 5_000
    link.a.is_up = source_state != "dead"
    first = Operator(link)
    for count, step in enumerate(first.steps()):
        if source_state == "dies_after_fence" and step is Step.DRAIN:
            link.a.is_up = False
        if count == crash_before:
            break
    Operator(link).run()
    assert_promoted(link)
    expected = ("block", "") if link.a.is_up else ("degrade", "block")
    assert (link.b.record.sync_policy, link.b.record.sync_policy_to_restore) == expected
    assert link.b.record.sync_timeout_ms == 5_000


def test_a_site_that_could_not_be_fenced_is_not_waited_for_either() -> None:
    link = link_with_records(written=3, mirrored=3)
    link.a.record.sync_policy = link.b.record.sync_policy = "block"
    link.a.may_be_fenced = False
    assert Operator(link, policy=FailoverPolicy(accepts_data_loss=True)).run().step is Step.DONE
    assert (link.b.record.sync_policy, link.b.record.sync_policy_to_restore) == ("degrade", "block")


@pytest.mark.parametrize("turns", list(itertools.product([0, 1], repeat=7)))
def test_f7_two_operators_of_the_same_failover_end_in_one_epoch(turns: tuple[int, ...]) -> None:
    link = link_with_records(written=5, mirrored=5)
    operators = [Operator(link), Operator(link)]
    runs = [operator.steps() for operator in operators]
    for turn in turns:
        next(runs[turn], None)
    for run in runs:
        for _ in run:
            pass
    assert_promoted(link)
    assert all(operator.outcome is not None for operator in operators)
    assert link.b.accounts[2].partitions[0].kept_below == 5


@pytest.mark.parametrize("turns", list(itertools.product([0, 1], repeat=8)))
def test_f7_one_promotes_while_another_gives_back_and_one_of_them_wins(turns: tuple[int, ...]) -> None:
    link = link_with_records(written=6, mirrored=2)
    link.is_link_up = False
    bold = Operator(link, policy=FailoverPolicy(accepts_data_loss=True, drain_timeout_ms=100, settle_ms=50))
    careful = Operator(link, policy=FailoverPolicy(drain_timeout_ms=100, settle_ms=50))
    runs = [bold.steps(), careful.steps()]
    for turn in turns:
        next(runs[turn], None)
        assert not (link.a.is_writable() and link.b.is_writable())
    for run in runs:
        for _ in run:
            assert not (link.a.is_writable() and link.b.is_writable())
    active = {site.record.active_site for site in (link.a, link.b) if site.record.epoch == link.b.record.epoch}
    assert len(active) == 1
    assert link.a.is_writable() != link.b.is_writable()


@pytest.mark.parametrize("crash_before", range(8))
def test_opposite_failovers_never_leave_both_sites_writable(crash_before: int) -> None:
    link = link_with_records(written=6, mirrored=6)
    to_b, to_a = Operator(link, to_site="b").steps(), Operator(link, to_site="a")
    for _ in range(crash_before):
        next(to_b, None)
    to_a.run()
    for _ in to_b:
        assert not (link.a.is_writable() and link.b.is_writable())
    assert link.a.is_writable() != link.b.is_writable()


def test_ends_observed_under_a_removed_fence_are_not_trusted() -> None:
    link = link_with_records(written=6, mirrored=2)
    link.is_link_up = False
    first = Operator(link, policy=FailoverPolicy(accepts_data_loss=True, drain_timeout_ms=60_000, settle_ms=50))
    run = first.steps()
    assert [next(run), next(run), next(run)] == [Step.FENCE, Step.DRAIN, Step.DRAIN]
    assert first.playbook.source.is_fence_proven
    Operator(link, policy=FailoverPolicy(drain_timeout_ms=100)).run()
    assert link.a.write("more")
    link.a.is_up = False
    for _ in run:
        pass
    lost = link.b.accounts[3].partitions[0]
    assert not lost.is_source_end_exact
    assert link.b.is_writable()


def test_f_d_a_fence_whose_answer_was_lost_does_not_outlive_the_refusal() -> None:
    """The source has stored the fence, and gives no answer from then on."""
    link = link_with_records(written=6, mirrored=6)
    operator = Operator(link, policy=FailoverPolicy(is_old_site_down=False))
    for step in operator.steps():
        if step is Step.FENCE:
            link.a.adopt(fenced(link.a.record, now_ms=link.now_ms))
            link.a.is_up = False
    assert operator.outcome is not None
    assert "nothing proves that it is down" in operator.outcome.reason
    link.a.is_up = True
    link.a.adopt(link.b.record)
    link.a.confirmed_epoch = link.a.record.epoch
    assert link.a.write("goes on")
    assert not link.b.write("not active")


def test_f_d_a_raise_that_the_target_refuses_gives_the_fence_back() -> None:
    """Under a lease the target's agent asks the arbiter again before it stores the epoch."""
    link = link_with_records(written=6, mirrored=6)
    operator = Operator(link)
    for step in operator.steps():
        link.b.problems = {Step.RAISE: "the arbiter does not answer"} if step is Step.RAISE else {}
    assert operator.outcome is not None
    assert operator.outcome.step is Step.REFUSE
    assert "the arbiter does not answer" in operator.outcome.reason
    assert link.a.write("goes on")
    assert not link.b.write("not active")


def test_a_site_that_could_not_be_confirmed_is_not_reported_as_active() -> None:
    link = link_with_records(written=6, mirrored=6)
    link.a.is_up = False
    link.b.problems[Step.PROMOTE] = "broker 2 has no permit: the arbiter does not answer"
    operator = Operator(link)
    assert operator.run().step is Step.REFUSE
    assert operator.outcome is not None
    assert "takes no writes yet" in operator.outcome.reason
    assert link.b.problems[Step.PROMOTE] in operator.outcome.reason
    link.b.problems.clear()
    assert Operator(link).run().step is Step.DONE
    assert link.b.write("after")


def test_a_target_that_is_silent_from_the_beginning_is_named_with_what_to_do() -> None:
    link = link_with_records(written=3, mirrored=3)
    link.b.is_up = False
    operator = Operator(link)
    assert operator.run().reason == (
        "site b does not answer: no answer; nothing is changed: run the command again when b answers"
    )
    assert link.a.write("after")


def test_a_target_that_goes_silent_under_a_fence_is_named_with_what_gives_the_writes_back() -> None:
    link = link_with_records(written=6, mirrored=6)
    operator = Operator(link)
    for step in operator.steps():
        if step is Step.DRAIN:
            link.b.is_up = False
    assert operator.outcome is not None
    assert not link.a.write("stopped")
    assert "site b does not answer: no answer; the other site takes no writes" in operator.outcome.reason
    assert "antipode failovers abort a-b" in operator.outcome.reason
    assert "lost for good, delete the link at the other site (antipode links delete a-b" in operator.outcome.reason


def test_a_target_that_goes_silent_after_the_raise_is_named_with_what_finishes_the_failover() -> None:
    link = link_with_records(written=6, mirrored=6)
    operator = Operator(link)
    for step in operator.steps():
        if step is Step.PROMOTE:
            link.b.problems[Step.PROMOTE] = "no answer"
            link.b.is_up = False
    assert operator.outcome is not None
    assert operator.outcome.reason.endswith("its epoch is raised: run the failover again when it answers")


def test_f_c_no_client_writes_while_the_account_is_not_stored() -> None:
    link = link_with_records(written=6, mirrored=3)
    link.a.is_up = False
    link.b.problems[Step.ACCOUNT] = "this site's ZooKeeper does not answer"
    operator = Operator(link)
    assert operator.run().step is Step.REFUSE
    assert operator.outcome is not None
    assert link.b.problems[Step.ACCOUNT] in operator.outcome.reason
    assert not link.b.write("too early")
    link.b.problems.clear()
    assert Operator(link).run().step is Step.DONE
    assert_promoted(link)


def test_f_f_a_coordinator_that_has_not_applied_the_fence_of_a_run_that_died_is_waited_for() -> None:
    """It leads no partition that would show the missing fence, and still commits offsets."""
    link = ModelLink()
    assert link.a.write("v0")
    link.mirror()
    link.a.adopt(fenced(link.a.record, now_ms=link.now_ms))
    link.a.unfenced_brokers = (2,)
    operator = Operator(link)
    steps = list(operator.steps())
    assert operator.outcome is not None
    assert operator.outcome.step is Step.DONE
    assert steps.index(Step.FENCE) < steps.index(Step.RAISE)
    assert link.b.accounts[2].loses_nothing
