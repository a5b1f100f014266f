"""The preparation of a failover: it fences no site without a mirror, a leader of each partition,
and a copy that follows closely.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from dr.failover.core.assess import assess
from dr.failover.core.preparation import CatchUp
from dr.failover.core.steps import FailoverPolicy, Step
from tests.unit.dr.core.link_model import KEY, ModelLink, ModelPartition, Operator
from wire.protocol.ids import TopicPartition

OTHER = TopicPartition("flights", 1)


def link_with_records(count: int = 6) -> ModelLink:
    link = ModelLink()
    for site in (link.a, link.b):
        site.partitions[OTHER] = ModelPartition()
    for number in range(count):
        assert link.a.write(f"v{number}")
        assert link.a.write(f"w{number}", OTHER)
    link.mirror()
    return link


@pytest.mark.parametrize("age_ms", [-1, 60_000])
def test_f_g_without_a_living_mirror_the_writers_are_not_stopped(age_ms: int) -> None:
    link = link_with_records()
    link.b.mirror_age_ms = age_ms
    operator = Operator(link)
    planned = assess(link.evidence("b"), to_site="b", policy=FailoverPolicy(), now_ms=link.now_ms)
    for _ in operator.steps():
        assert link.a.is_writable()
    assert operator.outcome is not None
    assert "no mirror of link a-b into b runs" in operator.outcome.reason
    assert "antipode mirror --config FILE, with link.name=a-b" in operator.outcome.reason
    assert planned.refusal == operator.outcome.reason
    assert link.a.record.epoch == 1


def test_f_g_a_report_may_be_as_old_as_the_mirror_s_own_rounds_take() -> None:
    link = link_with_records()
    found = link.b.evidence(link.now_ms)
    for round_ms, age_ms, is_alive in ((500, 11_000, False), (3_000, 11_000, True), (3_000, 13_000, False)):
        assert replace(found, mirror_age_ms=age_ms, mirror_round_ms=round_ms).carries_all is is_alive
    assert not replace(found, mirror_age_ms=61_000, mirror_round_ms=60_000).carries_all


def test_f_g_a_mirror_that_has_just_been_started_is_awaited() -> None:
    link = link_with_records()
    link.b.mirror_age_ms = -1
    operator = Operator(link)
    for count, step in enumerate(operator.steps()):
        if count == 10:
            assert step is Step.PREPARE
            link.b.mirror_age_ms = 100
    assert operator.outcome is not None
    assert operator.outcome.step is Step.DONE


def test_f_e_partitions_without_a_leader_at_the_living_source_stop_a_failover_before_the_fence() -> None:
    link = link_with_records()
    assert link.a.write("not mirrored", OTHER)
    link.a.leaderless.add(OTHER)
    operator = Operator(link)
    for _ in operator.steps():
        assert link.a.is_writable()
    assert operator.outcome is not None
    assert operator.outcome.step is Step.REFUSE
    assert "1 partitions have no leader at a (flights-1)" in operator.outcome.reason


def test_f_e_a_leader_that_is_lost_under_the_fence_has_the_writes_given_back() -> None:
    link = link_with_records()
    operator = Operator(link)
    for step in operator.steps():
        if step is Step.DRAIN:
            link.a.leaderless.add(OTHER)
    assert operator.outcome is not None
    assert operator.outcome.step is Step.REFUSE
    assert "1 partitions have no leader at a (flights-1)" in operator.outcome.reason
    assert link.a.is_writable()


def test_f_e_with_data_loss_accepted_the_account_of_a_partition_without_a_leader_is_not_exact() -> None:
    link = link_with_records()
    assert link.a.write("not mirrored", OTHER)
    link.a.leaderless.add(OTHER)
    policy = FailoverPolicy(accepts_data_loss=True, drain_timeout_ms=500, unavailability_max_ms=500)
    assert Operator(link, policy=policy).run().step is Step.DONE
    led, leaderless = link.b.accounts[2].partitions
    assert led.is_source_end_exact
    assert not leaderless.is_source_end_exact
    assert "records that the old site acknowledged at or above 6 are lost" in leaderless.sentence


@pytest.mark.parametrize("bound_ms", [200, 1_000, 5_000])
def test_f_g_one_run_stops_writers_no_longer_than_the_policy_allows(bound_ms: int) -> None:
    link = link_with_records()
    stopped_at_ms = None
    operator = Operator(link, policy=FailoverPolicy(unavailability_max_ms=bound_ms))
    for step in operator.steps():
        if step is Step.FENCE:
            assert link.a.write("the last one")
            link.is_link_up = False
        if stopped_at_ms is None and not link.a.is_writable():
            stopped_at_ms = link.now_ms
    assert operator.outcome is not None
    assert operator.outcome.step is Step.REFUSE
    assert stopped_at_ms is not None
    assert link.now_ms - stopped_at_ms <= bound_ms + 50
    assert link.a.is_writable()


def test_f_g_writers_are_stopped_when_the_copy_follows_closely_although_more_is_written_all_the_time() -> None:
    link = link_with_records()
    operator = Operator(link, policy=FailoverPolicy(unavailability_max_ms=2_000))
    for step in operator.steps():
        if step is Step.PREPARE:
            assert link.a.write("one more")
    assert operator.outcome is not None
    assert operator.outcome.step is Step.DONE
    assert link.b.accounts[2].loses_nothing


def test_f_g_a_copy_that_falls_behind_more_and_more_has_no_writer_stopped() -> None:
    link = link_with_records()
    operator = Operator(link, policy=FailoverPolicy(unavailability_max_ms=200, drain_timeout_ms=3_000))
    link.a.partitions[KEY].log.extend((0, "backlog") for _ in range(1_000))
    for step in operator.steps():
        assert step is Step.PREPARE
        for number in range(4):
            assert link.a.write(f"faster than the mirror {number}")
    assert operator.outcome is not None
    assert "the mirror does not catch up within 3000 ms" in operator.outcome.reason


@pytest.mark.parametrize("crash_before", range(20))
def test_f7_a_run_that_dies_in_its_preparation_or_later_is_finished_by_another_one(crash_before: int) -> None:
    link = link_with_records()
    for _ in range(5):
        link.a.partitions[KEY].log.append((0, "backlog"))
    for count, _ in enumerate(Operator(link).steps()):
        if count == crash_before:
            break
    outcome = Operator(link).run()
    assert outcome.step is Step.DONE or "active for link a-b already" in outcome.reason
    assert link.b.accounts[2].loses_nothing
    assert link.b.is_writable()
    assert not link.a.is_writable()


def test_how_closely_a_copy_follows_is_measured_by_when_it_reaches_what_the_source_had() -> None:
    follows = CatchUp()
    assert not follows.is_close(within_ms=1_000, now_ms=0)
    follows.observe({KEY: 5}, {KEY: 10}, 0)
    assert not follows.is_close(within_ms=1_000, now_ms=0)
    follows.observe({KEY: 10}, {KEY: 20}, 700)
    assert follows.is_close(within_ms=1_000, now_ms=700)
    assert not follows.is_close(within_ms=500, now_ms=700)
    follows.observe({KEY: 12}, {KEY: 30}, 2_000)
    assert not follows.is_close(within_ms=1_000, now_ms=2_000)
    follows.observe({KEY: 30}, {KEY: 30}, 2_100)
    assert follows.is_close(within_ms=0, now_ms=2_100)
    follows.observe({KEY: 30}, {KEY: 30, OTHER: 0}, 2_200)
    assert not follows.is_close(within_ms=500, now_ms=2_800)
