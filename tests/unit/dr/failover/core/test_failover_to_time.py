"""A failover to a time against the model link: interrupted everywhere, resumed by operators who
know nothing of the time, and given back.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dr.failover.core.assess import assess
from dr.failover.core.playbook import FailoverPlaybook
from dr.failover.core.steps import ABORTED, FailoverPolicy, Step
from dr.failover.core.truncation_check import TruncationCheck
from dr.sites.core.evidence import Evidence
from dr.sites.core.fencing import fenced, given_back, raised
from tests.unit.dr.core.link_model import KEY, ModelLink, Operator

SINCE_MS = 700
TO_TIME = FailoverPolicy(drain_timeout_ms=2_000, kept_before_ms=SINCE_MS)
KEPT = 12


def link_to_undo() -> ModelLink:
    link = ModelLink()
    for number in range(20):
        assert link.a.write(f"v{number}")
    link.mirror()
    link.truncation_offset = KEPT
    return link


def test_the_logs_are_truncated_after_the_raise_and_before_the_account() -> None:
    link = link_to_undo()
    operator = Operator(link, policy=TO_TIME)
    assert operator.run().step is Step.DONE
    steps = [line.split(":")[0] for line in operator.story]
    assert steps[steps.index("raise") : steps.index("promote")] == ["raise", "truncate", "account"]
    (loss,) = link.b.accounts[2].partitions
    assert (loss.kept_below, link.b.accounts[2].known_lost_records) == (KEPT, 20 - KEPT)
    assert link.b.write("after")
    assert len(link.b.partitions[KEY].log) == KEPT + 1


@pytest.mark.parametrize("policy", [TO_TIME, FailoverPolicy(drain_timeout_ms=2_000)])
@pytest.mark.parametrize("survived", range(12))
def test_another_operator_finishes_the_truncation_of_one_that_died(survived: int, policy: FailoverPolicy) -> None:
    """After the raise, an operator who gave no time does so too: the link's record has the time."""
    link = link_to_undo()
    first = Operator(link, policy=TO_TIME)
    done = []
    for count, step in enumerate(first.steps()):
        if count == survived:
            break
        done.append(step)
    is_raised = link.b.record.active_site == "b"
    second = Operator(link, policy=policy)
    assert second.run().step in (Step.DONE, Step.REFUSE)
    is_truncated = is_raised or policy is TO_TIME
    assert len(link.b.partitions[KEY].log) == (KEPT if is_truncated else 20)
    assert link.b.accounts[2].known_lost_records == (20 - KEPT if is_truncated else 0)


def test_no_client_writes_while_the_truncation_fails_and_another_run_finishes_it() -> None:
    """The source is lost: no other site can take the writes."""
    link = link_to_undo()
    link.a.is_up = False
    link.truncation_problem = "the disk of broker 2 is full"
    operator = Operator(link, policy=TO_TIME)
    assert operator.run().step is Step.REFUSE
    assert operator.outcome is not None
    assert "the disk of broker 2 is full" in operator.outcome.reason
    assert not link.b.write("too early")
    assert 2 not in link.b.accounts
    link.truncation_problem = ""
    assert Operator(link).run().step is Step.DONE
    assert link.b.write("after")


def test_a_truncation_that_fails_gives_the_writers_back_to_a_source_that_answers() -> None:
    link = link_to_undo()
    link.truncation_problem = "the quarantine is full"
    operator = Operator(link, policy=TO_TIME)
    assert operator.run().step is Step.REFUSE
    assert operator.outcome is not None
    assert "the quarantine is full" in operator.outcome.reason
    assert "a is active again" in operator.outcome.reason
    assert sum(line.startswith("truncate") for line in operator.story) == 3
    assert link.a.write("goes on")
    assert not link.b.write("standby")
    assert link.a.record == link.b.record
    assert link.a.record.kept_before_ms == 0
    link.mirror()
    assert link.b.partitions[KEY].log == link.a.partitions[KEY].log
    link.truncation_problem = ""
    assert Operator(link, policy=TO_TIME).run().step is Step.DONE
    assert len(link.b.partitions[KEY].log) == KEPT


@pytest.mark.parametrize("survived", range(14))
def test_one_site_writes_whenever_the_run_that_gives_back_dies(survived: int) -> None:
    link = link_to_undo()
    link.truncation_problem = "the quarantine is full"
    for count, _ in enumerate(Operator(link, policy=TO_TIME).steps()):
        if count == survived:
            break
    assert Operator(link, policy=TO_TIME).run().step is Step.REFUSE
    assert link.a.write("goes on") != link.b.write("goes on")


def test_an_abort_gives_the_writers_back_while_the_truncation_waits() -> None:
    link = link_to_undo()
    for step in Operator(link, policy=TO_TIME).steps():
        if step is Step.TRUNCATE:
            break
    assert not link.a.write("stopped")
    aborted = Operator(link, policy=FailoverPolicy(is_abort=True))
    assert aborted.run().step is Step.REFUSE
    assert aborted.outcome is not None
    assert aborted.outcome.reason == ABORTED
    assert link.a.write("goes on")
    assert not link.b.write("standby")


def test_an_abort_is_refused_once_the_account_is_kept() -> None:
    link = link_to_undo()
    for step in Operator(link, policy=TO_TIME).steps():
        if step is Step.PROMOTE:
            break
    aborted = Operator(link, policy=FailoverPolicy(is_abort=True))
    assert "point of no return" in aborted.run().reason
    assert link.b.record.active_site == "b"


def test_the_next_epoch_has_no_time() -> None:
    link = link_to_undo()
    assert Operator(link, policy=TO_TIME).run().step is Step.DONE
    assert link.b.record.kept_before_ms == SINCE_MS
    assert given_back(link.b.record, now_ms=1).kept_before_ms == 0
    assert link.b.write("after")
    for _ in range(3):
        link.mirror()
    returned = Operator(link, to_site="a", policy=FailoverPolicy(accepts_data_loss=True))
    assert returned.run().step is Step.DONE
    assert not any(line.startswith("truncate") for line in returned.story)
    assert link.a.record.kept_before_ms == 0


def test_no_epoch_is_raised_in_which_a_log_without_a_leader_would_keep_its_records() -> None:
    link = link_to_undo()
    link.a.is_up = False
    link.b.leaderless.add(KEY)
    refused = Operator(link, policy=TO_TIME).run()
    assert refused.step is Step.REFUSE
    assert "1 partitions have no leader at b (flights-0): their logs cannot be truncated" in refused.reason
    assert link.b.record.epoch == 1
    link.b.leaderless.clear()
    assert Operator(link, policy=TO_TIME).run().step is Step.DONE
    assert len(link.b.partitions[KEY].log) == KEPT


def test_a_failover_to_the_old_site_opens_it_when_the_promoted_one_fell_silent_during_a_hand_back() -> None:
    link = link_to_undo()
    link.truncation_problem = "the quarantine is full"
    for step in Operator(link, policy=TO_TIME).steps():
        if step is Step.HAND_BACK:
            break
    link.a.adopt(raised(link.b.record, to_site="a", highest_leader_epoch=0, now_ms=link.now_ms))
    link.b.is_up = False
    assert not link.a.write("stopped")
    assert Operator(link, to_site="a").run().step is Step.DONE
    assert link.a.write("goes on")
    link.b.is_up = True
    assert not link.b.write("deposed")


def compacted(evidence: Evidence, thinned_to: int) -> Evidence:
    """The same, with a copy that is compacted up to this offset."""
    target = evidence.target
    assert target is not None
    logs = {key: replace(position, thinned_to=thinned_to) for key, position in target.partitions.items()}
    return replace(evidence, target=replace(target, partitions=logs))


@pytest.mark.parametrize(("thinned_to", "is_refused"), [(KEPT + 1, True), (KEPT, False)])
def test_a_time_before_the_compaction_of_a_copy_is_refused_before_anything_changes(
    thinned_to: int, is_refused: bool
) -> None:
    link = link_to_undo()
    evidence, check = compacted(link.evidence("b"), thinned_to), TruncationCheck(TO_TIME)
    assert check.unknown(evidence) == [KEY]
    check.note([KEY], {KEY: KEPT})
    assert check.unknown(evidence) == []
    planned = assess(evidence, to_site="b", policy=TO_TIME, now_ms=link.now_ms, truncations=check)
    assert (f"at {KEPT} (compacted up to {thinned_to})" in planned.refusal) is is_refused
    assert bool(planned.steps) is not is_refused


def test_a_time_before_the_compaction_gives_back_the_fence_of_an_earlier_run() -> None:
    link = link_to_undo()
    link.a.record = fenced(link.a.record, now_ms=link.now_ms)
    evidence = compacted(link.evidence("b"), 20)
    playbook = FailoverPlaybook(to_site="b", policy=TO_TIME)
    playbook.truncations.note([KEY], {KEY: KEPT})
    playbook.observe(evidence, link.now_ms)
    assert playbook.decide(evidence, link.now_ms).step is Step.GIVE_BACK


@pytest.mark.parametrize(
    "policy", [replace(TO_TIME, accepts_data_loss=True), replace(TO_TIME, is_abort=True), FailoverPolicy()]
)
def test_only_a_failover_to_a_time_that_accepts_no_loss_depends_on_compaction(policy: FailoverPolicy) -> None:
    link = link_to_undo()
    assert TruncationCheck(policy).unknown(compacted(link.evidence("b"), 20)) == []


def test_a_consistent_point_before_the_compaction_of_a_copy_is_refused_before_the_raise() -> None:
    link = link_to_undo()
    link.a.is_up = False
    policy = FailoverPolicy(drain_timeout_ms=2_000, is_cut_consistent=True)
    evidence, check = compacted(link.evidence("b"), KEPT + 1), TruncationCheck(policy)
    assert (check.unknown(evidence), check.unknown_of_point(evidence)) == ([], [KEY])
    check.note_point([KEY], {KEY: KEPT})
    assert check.unknown_of_point(evidence) == []
    planned = assess(evidence, to_site="b", policy=policy, now_ms=link.now_ms, truncations=check)
    assert "the latest point without torn transactions is before the compaction of logs at b" in planned.refusal
    assert f"at {KEPT} (compacted up to {KEPT + 1})" in planned.refusal


def test_a_run_that_continues_after_the_raise_is_not_refused_for_compaction() -> None:
    link = link_to_undo()
    first = Operator(link, policy=TO_TIME)
    for step in first.steps():
        if step is Step.TRUNCATE:
            break
    evidence = compacted(link.evidence("b"), 20)
    assert evidence.governing.active_site == "b"
    assert TruncationCheck(TO_TIME).unknown(evidence) == []


def test_a_copy_without_records_of_the_time_is_not_truncated() -> None:
    link = link_to_undo()
    evidence, check = compacted(link.evidence("b"), 20), TruncationCheck(TO_TIME)
    check.note([KEY], {})
    assert evidence.target is not None
    assert check.refusal(evidence.target) == ""
