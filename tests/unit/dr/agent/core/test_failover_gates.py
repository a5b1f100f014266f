"""The conditions under which a standby's agents fail over by themselves or wait for a person."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from dr.agent.core.failover_gates import (
    FAILOVERS_MAX,
    PERIOD_MS,
    LossState,
    LossWatch,
    Views,
    closed_gates,
    failover_times_ms,
)
from dr.sites.core.evidence import Promotion, SiteEvidence
from dr.sites.core.positions import PartitionPosition
from dr.sites.core.unprotected_topics import UnprotectedTopic
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.control.site_pb2 import ArbiterRecord
from wire.protocol.ids import UNKNOWN, TopicPartition

NOW_MS = 10_000_000
LEASE_MS = 2_000
KEY, OTHER = TopicPartition("flights", 0), TopicPartition("flights", 1)
RECORD = LinkRecord(
    name="a-b",
    source_site="a",
    target_site="b",
    active_site="a",
    epoch=3,
    phase=LinkPhase.MIRRORING,
    lease_ms=LEASE_MS,
    failover_mode="automatic",
    topic_whitelist=["flights"],
)
HELD = ArbiterRecord(link="a-b", epoch=3, active_site="a", is_open=True, lease_ms=LEASE_MS)
NOTHING_SEEN = Views(
    arbiter=HELD, arbiter_problem="", present_brokers=0, is_peer_reachable=False, mirror_age_ms=LEASE_MS
)
COPY = PartitionPosition(
    leader_epoch=0,
    last_log_epoch=0,
    log_start_offset=0,
    log_end_offset=100,
    is_writable=False,
    source_high_watermark=100,
    source_seen_at_ms=NOW_MS - 5_000,
    max_timestamp_ms=NOW_MS - 5_000,
)


def evidence(copies: dict[TopicPartition, PartitionPosition], **fields: Any) -> SiteEvidence:
    return SiteEvidence(site="b", seen_at_ms=NOW_MS, record=RECORD, partitions=copies, **fields)


def gates(found: SiteEvidence, *, record: LinkRecord = RECORD, failovers: tuple[int, ...] = ()) -> list[str]:
    return closed_gates(record, found, failovers_at_ms=failovers, now_ms=NOW_MS, is_copy_complete=True)


@pytest.mark.parametrize(
    ("view", "reason"),
    [
        ({"present_brokers": 2}, "2 brokers of a reach the arbiter"),
        ({"is_peer_reachable": True}, "a does not reach the arbiter, but answers here"),
        ({"mirror_age_ms": LEASE_MS - 1}, "the mirror reached a 1999 ms ago"),
    ],
)
def test_g_a_one_view_that_reaches_the_active_site_outweighs_the_others(view: dict[str, Any], reason: str) -> None:
    watch = LossWatch()
    for now_ms in (0, LEASE_MS, 10 * LEASE_MS):
        loss = watch.observe(RECORD, replace(NOTHING_SEEN, **view), now_ms=now_ms)
        assert (loss.state, loss.reason) == (LossState.ANSWERS, reason)


@pytest.mark.parametrize(
    ("view", "reason"),
    [
        ({"arbiter": None, "arbiter_problem": "the arbiter does not answer"}, "the arbiter does not answer"),
        ({"arbiter": None}, "the arbiter knows nothing of the link; here it is epoch 3 with a"),
        (
            {"arbiter": ArbiterRecord(epoch=4, active_site="b")},
            "the arbiter is at epoch 4 with b active; here it is epoch 3 with a",
        ),
    ],
)
def test_g_a_nothing_is_known_without_the_arbiter(view: dict[str, Any], reason: str) -> None:
    watch = LossWatch()
    for now_ms in (0, LEASE_MS, 10 * LEASE_MS):
        loss = watch.observe(RECORD, replace(NOTHING_SEEN, **view), now_ms=now_ms)
        assert (loss.state, loss.reason) == (LossState.UNKNOWN, reason)


def test_a_site_that_is_lost_before_it_receives_that_writes_were_given_back_is_lost() -> None:
    """The record is stored at the standby first, and the active site is the one that stores it at
    the arbiter.
    """
    watch = LossWatch()
    behind = replace(NOTHING_SEEN, arbiter=ArbiterRecord(link="a-b", epoch=2, active_site="a"))
    assert watch.observe(RECORD, behind, now_ms=0).state is LossState.SILENT
    assert watch.observe(RECORD, behind, now_ms=LEASE_MS).state is LossState.LOST
    assert watch.observe(RECORD, replace(behind, present_brokers=1), now_ms=LEASE_MS).state is LossState.ANSWERS
    moved = replace(NOTHING_SEEN, arbiter=ArbiterRecord(link="a-b", epoch=2, active_site="b"))
    assert watch.observe(RECORD, moved, now_ms=LEASE_MS).state is LossState.UNKNOWN


def test_g_b_a_site_is_lost_after_a_whole_lease_without_a_break() -> None:
    watch = LossWatch()
    assert watch.observe(RECORD, NOTHING_SEEN, now_ms=0).state is LossState.SILENT
    assert watch.observe(RECORD, NOTHING_SEEN, now_ms=LEASE_MS - 1).state is LossState.SILENT
    seen = replace(NOTHING_SEEN, is_peer_reachable=True)
    assert watch.observe(RECORD, seen, now_ms=LEASE_MS).state is LossState.ANSWERS
    assert watch.observe(RECORD, NOTHING_SEEN, now_ms=LEASE_MS + 1).state is LossState.SILENT
    assert watch.observe(RECORD, NOTHING_SEEN, now_ms=2 * LEASE_MS).state is LossState.SILENT
    lost = watch.observe(RECORD, NOTHING_SEEN, now_ms=2 * LEASE_MS + 1)
    assert (lost.state, lost.reason) == (LossState.LOST, "a has been silent for 2.0 s, by every view from here")


def test_a_mirror_that_has_never_reported_reaches_nothing() -> None:
    watch, views = LossWatch(), replace(NOTHING_SEEN, mirror_age_ms=UNKNOWN)
    watch.observe(RECORD, views, now_ms=0)
    assert watch.observe(RECORD, views, now_ms=LEASE_MS).state is LossState.LOST


def test_a_whole_copy_may_be_promoted() -> None:
    assert gates(evidence({KEY: COPY, OTHER: COPY}, mirror_age_ms=3_000)) == []


@pytest.mark.parametrize(("policy", "is_closed"), [("block", True), ("degrade", True), ("bound", False), ("", False)])
def test_g_e_a_sync_link_whose_marks_the_arbiter_may_have_lost_waits_for_a_person(policy: str, is_closed: bool) -> None:
    record = LinkRecord()
    record.CopyFrom(RECORD)
    record.sync_policy = policy
    found = closed_gates(
        record,
        evidence({KEY: COPY, OTHER: COPY}),
        failovers_at_ms=(),
        now_ms=NOW_MS,
        is_copy_complete=True,
        has_lost_marks=True,
    )
    sentence = "the arbiter has lost its data, and may have lost that brokers of a were out of sync"
    assert found == ([sentence] if is_closed else [])


def test_g_c_an_incomplete_copy_waits_for_a_person() -> None:
    missing = UnprotectedTopic(topic="flights", partitions=(1,), reason="flights is not here in full")
    assert gates(evidence({KEY: COPY}, unprotected=(missing,))) == ["flights is not here in full"]
    assert gates(evidence({KEY: COPY}, leaderless=frozenset({OTHER}))) == [
        "1 partitions have no leader here (flights-1)"
    ]
    assert gates(evidence({})) == ["no mirror has ever reported to b"]


def test_g_c_a_site_that_has_just_become_the_standby_is_not_promoted_before_a_mirror_reports() -> None:
    fresh = replace(COPY, source_seen_at_ms=0, source_high_watermark=UNKNOWN)
    assert gates(evidence({KEY: COPY, OTHER: fresh})) == [
        "no mirror has reported on 1 partitions since b is the standby (flights-1)"
    ]


def test_g_c_a_lag_beyond_the_links_bounds_waits_for_a_person() -> None:
    behind = replace(COPY, log_end_offset=60, max_timestamp_ms=COPY.source_seen_at_ms - 700)
    bounded = LinkRecord()
    bounded.CopyFrom(RECORD)
    bounded.failover_lag_records_max, bounded.failover_lag_ms_max = 39, 699
    assert gates(evidence({KEY: behind, OTHER: COPY}), record=bounded) == [
        "b is known to lack 40 records, more than the 39 allowed",
        "b was 700 ms behind, more than the 699 ms allowed",
    ]
    bounded.failover_lag_records_max, bounded.failover_lag_ms_max = 40, 700
    assert gates(evidence({KEY: behind, OTHER: COPY}), record=bounded) == []
    assert gates(evidence({KEY: behind})) == []  # no bound


def test_g_c_a_partition_that_the_mirror_left_behind_counts_by_its_age() -> None:
    stale = replace(COPY, source_seen_at_ms=COPY.source_seen_at_ms - 9_000)
    bounded = LinkRecord()
    bounded.CopyFrom(RECORD)
    bounded.failover_lag_ms_max = 8_999
    assert gates(evidence({KEY: stale, OTHER: COPY}), record=bounded) == [
        "b was 9000 ms behind, more than the 8999 ms allowed"
    ]


def test_g_d_a_link_that_has_failed_over_again_and_again_waits_for_a_person() -> None:
    lately = tuple(NOW_MS - number for number in range(FAILOVERS_MAX))
    found = evidence({KEY: COPY})
    assert gates(found, failovers=lately) == ["the link has failed over 2 times within the last hour"]
    assert gates(found, failovers=(*lately[:-1], NOW_MS - PERIOD_MS)) == []


def test_g_d_planned_moves_do_not_count() -> None:
    lost = Promotion(epoch=2, to_site="a", leader_epoch_floor=1, kept_below={}, accounted_at_ms=NOW_MS - 3)
    moves = tuple(replace(lost, epoch=3 + number, is_planned=True) for number in range(FAILOVERS_MAX))
    found = evidence({KEY: COPY}, promotions=(lost, *moves))
    assert failover_times_ms(found) == [NOW_MS - 3]
    assert gates(found, failovers=tuple(failover_times_ms(found))) == []


def test_g_d_a_failover_counts_before_its_account_is_here() -> None:
    """The promoted site may be lost before its account is copied."""
    raised = LinkRecord()
    raised.CopyFrom(RECORD)
    raised.leader_epoch_floor, raised.updated_at_ms = 32, NOW_MS - 1
    former = Promotion(epoch=2, to_site="b", leader_epoch_floor=16, kept_below={}, accounted_at_ms=NOW_MS - 3)
    found = replace(evidence({KEY: COPY}, promotions=(former,)), record=raised)
    assert failover_times_ms(found) == [NOW_MS - 3, NOW_MS - 1]
    copied = replace(former, epoch=3, to_site="a", leader_epoch_floor=32, accounted_at_ms=NOW_MS - 1)
    assert failover_times_ms(replace(found, promotions=(former, copied))) == [NOW_MS - 3, NOW_MS - 1]
    moved = replace(copied, is_planned=True)
    assert failover_times_ms(replace(found, promotions=(former, moved))) == [NOW_MS - 3]


def test_g_d_an_epoch_that_gave_writes_back_does_not_count() -> None:
    given_back = LinkRecord()
    given_back.CopyFrom(RECORD)
    given_back.leader_epoch_floor, given_back.updated_at_ms = 16, NOW_MS - 1
    former = Promotion(epoch=2, to_site="a", leader_epoch_floor=16, kept_below={}, accounted_at_ms=NOW_MS - 3)
    found = replace(evidence({KEY: COPY}), record=given_back)
    assert failover_times_ms(replace(found, promotions=(former,))) == [NOW_MS - 3]
    never_promoted = replace(found, record=RECORD)
    assert failover_times_ms(never_promoted) == []


def test_g_e_a_sync_link_waits_for_a_person_while_its_active_site_was_out_of_sync() -> None:
    found = evidence({KEY: COPY})
    sync = LinkRecord()
    sync.CopyFrom(RECORD)
    sync.sync_policy, sync.sync_timeout_ms = "degrade", 500
    closed = closed_gates(sync, found, failovers_at_ms=(), now_ms=NOW_MS, is_copy_complete=True, out_of_sync=(2, 1))
    assert closed == ["brokers 1, 2 of a acknowledged records that the standby may lack"]
    assert closed_gates(sync, found, failovers_at_ms=(), now_ms=NOW_MS, is_copy_complete=True) == []
    assert closed_gates(RECORD, found, failovers_at_ms=(), now_ms=NOW_MS, is_copy_complete=True, out_of_sync=(1,)) == []


def test_g_f_a_first_copy_that_is_not_complete_waits_for_a_person() -> None:
    found = evidence({KEY: COPY})
    (problem,) = closed_gates(RECORD, found, failovers_at_ms=(), now_ms=NOW_MS, is_copy_complete=False)
    assert problem == "the first copy at b was not complete yet in epoch 3"


def test_a_silence_that_ends_by_itself_is_counted_and_one_of_an_unknown_site_is_not() -> None:
    watch = LossWatch()
    answering = replace(NOTHING_SEEN, present_brokers=1)
    watch.observe(RECORD, NOTHING_SEEN, now_ms=1_000)
    watch.observe(RECORD, NOTHING_SEEN, now_ms=2_500)
    watch.observe(RECORD, answering, now_ms=2_700)
    watch.observe(RECORD, NOTHING_SEEN, now_ms=3_000)
    watch.observe(RECORD, replace(NOTHING_SEEN, arbiter_problem="silent"), now_ms=9_000)
    watch.observe(RECORD, answering, now_ms=9_100)
    assert (watch.silences.longest_ms, watch.silences.sum_ms) == (1_700, 1_700)
    assert watch.silences.buckets()[-1] == (float("inf"), 1)
