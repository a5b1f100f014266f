"""A sync link's policy: an operator sets it, a failover suspends it, and the waiting site restores
it.
"""

from __future__ import annotations

import pytest

from dr.sites.core.link_checks import record_problems
from dr.sites.core.sync_policies import (
    altered,
    is_suspended,
    may_restore,
    policy_sentence,
    reinstating,
    restored,
    suspended,
)
from tests.unit.dr.core.link_model import new_record
from wire.control.broker_pb2 import DescribePartitionsReply, PartitionDescription
from wire.control.cluster_pb2 import LinkRecord
from wire.rules.links import SYNC_TIMEOUT_MS, ReinstatePolicy, SyncPolicy, reinstate_policy, supersedes


def record(policy: str, *, timeout_ms: int = 700, to_restore: str = "") -> LinkRecord:
    found = new_record()
    found.sync_policy, found.sync_timeout_ms, found.sync_policy_to_restore = policy, timeout_ms, to_restore
    return found


def reply(*degraded: bool) -> DescribePartitionsReply:
    return DescribePartitionsReply(partitions=[PartitionDescription(is_degraded=item) for item in degraded])


@pytest.mark.parametrize("policy", list(SyncPolicy))
@pytest.mark.parametrize("before", list(SyncPolicy))
def test_every_policy_may_follow_every_other_and_the_same_again_changes_nothing(
    before: SyncPolicy, policy: SyncPolicy
) -> None:
    stored = record(before.value, timeout_ms=0 if before is SyncPolicy.NONE else 700)
    stored.sync_bound_ms = 300 if before is SyncPolicy.BOUND else 0
    bound_ms = 300 if policy is SyncPolicy.BOUND else 0
    after = altered(stored, policy=policy, timeout_ms=0, bound_ms=bound_ms, now_ms=9)
    assert after.sync_bound_ms == bound_ms
    assert after.sync_policy == policy.value
    assert record_problems(after) == []
    assert supersedes(after, stored) is (policy is not before)
    assert altered(after, policy=policy, timeout_ms=0, now_ms=10) is after
    known_ms = 700 if before is not SyncPolicy.NONE else SYNC_TIMEOUT_MS
    assert after.sync_timeout_ms == (0 if policy is SyncPolicy.NONE else known_ms)


def test_a_timeout_alone_is_a_change() -> None:
    after = altered(record("degrade"), policy=SyncPolicy.DEGRADE, timeout_ms=900, now_ms=9)
    assert (after.revision, after.sync_timeout_ms) == (1, 900)


def test_a_bounded_link_is_suspended_and_comes_back_with_its_bound() -> None:
    bounded = record("bound")
    bounded.sync_bound_ms = 300
    lost = suspended(bounded)
    assert (lost.sync_policy, lost.sync_policy_to_restore, lost.sync_bound_ms) == ("degrade", "bound", 300)
    assert record_problems(lost) == []
    assert restored(lost, now_ms=9).sync_bound_ms == 300
    assert "more than 300 ms behind" in policy_sentence(bounded)


def test_only_a_link_that_blocks_is_suspended_and_it_comes_back_as_it_was() -> None:
    for policy in ("", "degrade"):
        assert suspended(record(policy)) == record(policy)
    lost = suspended(record("block", timeout_ms=0))
    assert is_suspended(lost)
    assert record_problems(lost) == []
    assert suspended(lost) == lost
    back = restored(lost, now_ms=9)
    assert not is_suspended(back)
    assert back.sync_policy == "block"
    assert supersedes(back, lost)


def test_an_operators_word_ends_a_suspension() -> None:
    for policy in SyncPolicy:
        after = altered(suspended(record("block")), policy=policy, timeout_ms=0, now_ms=9)
        assert not is_suspended(after)
        assert after.sync_policy == policy.value


def test_it_is_restored_when_every_broker_of_the_waiting_site_says_that_nothing_is_missing() -> None:
    lost = suspended(record("block"))
    assert may_restore(lost, site="a", replies=[reply(False, False), reply()])
    assert not may_restore(lost, site="b", replies=[reply(False)])
    assert not may_restore(lost, site="a", replies=[reply(False), reply(False, True)])
    assert not may_restore(lost, site="a", replies=[reply(False), None])
    assert not may_restore(lost, site="a", replies=[])
    assert not may_restore(record("block"), site="a", replies=[reply(False)])


def test_each_policy_has_a_sentence() -> None:
    assert policy_sentence(record("")) == ""
    assert "waits for b without end" in policy_sentence(record("block"))
    assert "at most 700 ms" in policy_sentence(record("degrade"))
    assert "does not wait for b until it has everything again; then block" in policy_sentence(
        suspended(record("block"))
    )


def test_another_reinstate_policy_is_a_revision_and_leaves_the_sync_policy_suspended() -> None:
    stored = suspended(record("block"))
    after = reinstating(stored, policy="automatic", now_ms=9)
    assert reinstate_policy(after) is ReinstatePolicy.AUTOMATIC
    assert (after.revision, after.updated_at_ms) == (stored.revision + 1, 9)
    assert is_suspended(after)
    assert reinstating(after, policy="automatic", now_ms=10) is after
    assert reinstate_policy(reinstating(after, policy="", now_ms=10)) is ReinstatePolicy.MANUAL


def test_a_reinstate_policy_that_is_not_known_waits_for_a_person() -> None:
    assert reinstate_policy(LinkRecord(reinstate_policy="later")) is ReinstatePolicy.MANUAL
    assert any("reinstate policy 'later'" in one for one in record_problems(LinkRecord(reinstate_policy="later")))
