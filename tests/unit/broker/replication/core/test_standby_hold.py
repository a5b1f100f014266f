"""The hold of the high watermark for a sync link's standby: its bound, its end for a slow standby,
and its return.
"""

from __future__ import annotations

from broker.metadata.core.topic_images import PartitionImage
from broker.replication.core.partition import Partition
from broker.replication.core.standby_terms import StandbyTerms
from tests.support.memory.checked_partition import CheckedPartition, moves

TIMEOUT_MS = 1_000.0


def image(*, epoch: int = 1, isr: tuple[int, ...] = (1,), replicas: tuple[int, ...] = (1,)) -> PartitionImage:
    return PartitionImage(index=0, leader=1, leader_epoch=epoch, partition_epoch=epoch, replicas=replicas, isr=isr)


def held(*, may_degrade: bool = True, **image_fields: tuple[int, ...]) -> Partition:
    partition = CheckedPartition(node_id=1)
    terms = StandbyTerms(may_degrade=may_degrade, timeout_ms=TIMEOUT_MS)
    partition.change(image(**image_fields), now_ms=0, terms=terms)  # type: ignore[arg-type]
    return partition


def test_nothing_is_shown_before_the_standby_has_it() -> None:
    partition = held()
    assert not moves(partition.record_append(10))
    assert (partition.high_watermark, partition.mirrorable_end) == (0, 10)
    assert moves(partition.record_standby(7, now_ms=1))
    assert partition.high_watermark == 7
    assert moves(partition.record_standby(10, now_ms=2))
    assert partition.high_watermark == 10


def test_the_standby_cannot_make_visible_what_this_sites_replicas_lack() -> None:
    partition = held(isr=(1, 2), replicas=(1, 2))
    partition.record_append(10)
    partition.record_standby(10, now_ms=1)
    assert partition.high_watermark == 0
    assert moves(partition.record_fetch(2, 4, now_ms=2))
    assert partition.high_watermark == partition.mirrorable_end == 4


def test_a_replica_joins_only_with_everything_that_may_be_at_the_standby() -> None:
    """If it were elected with less, it would truncate records that the standby has."""
    partition = held(isr=(1,), replicas=(1, 2))
    partition.record_append(10)
    partition.record_fetch(2, 9, now_ms=1)
    assert partition.expanded_isr(2, {1: 1, 2: 1}, lag_ms_max=1_000) is None
    partition.record_fetch(2, 10, now_ms=2)
    assert partition.expanded_isr(2, {1: 1, 2: 1}, lag_ms_max=1_000) == (1, 2)


def test_a_link_that_blocks_waits_for_ever() -> None:
    partition = held(may_degrade=False)
    partition.record_append(10)
    assert not partition.check_standby(now_ms=1e9)
    assert partition.high_watermark == 0


def test_a_silent_standby_is_given_up_after_the_timeout_and_not_before() -> None:
    partition = held()
    assert not partition.check_standby(now_ms=5_000)  # nothing waits
    partition.record_append(10)
    assert not partition.check_standby(now_ms=5_000 + TIMEOUT_MS - 1)
    assert partition.check_standby(now_ms=5_000 + TIMEOUT_MS)
    assert partition.high_watermark == 10
    assert partition.hold is not None
    assert partition.hold.is_degraded
    assert not partition.check_standby(now_ms=9_000)  # once


def test_a_slow_standby_that_acknowledges_is_not_given_up() -> None:
    partition = held()
    partition.record_append(100)
    for second in range(1, 50):
        partition.record_standby(second, now_ms=second * 900)
        assert not partition.check_standby(now_ms=second * 900 + 800)


def degraded(end: int) -> Partition:
    partition = held()
    partition.record_append(end)
    assert partition.check_standby(now_ms=TIMEOUT_MS)
    return partition


def test_a_standby_that_has_caught_up_is_waited_for_again() -> None:
    partition = degraded(10)
    partition.record_standby(5, now_ms=2_000)
    partition.record_append(20)
    assert partition.high_watermark == 20
    partition.record_standby(10, now_ms=2_100)
    assert partition.hold is not None
    assert partition.hold.is_holding
    assert partition.hold.is_degraded, "up to 20 was shown without it"
    partition.record_append(30)
    assert partition.high_watermark == 20
    partition.record_standby(20, now_ms=2_200)
    assert not partition.hold.is_degraded
    partition.record_standby(30, now_ms=2_300)
    assert partition.high_watermark == 30


def test_a_standby_some_round_trips_behind_a_steady_flow_is_waited_for_again() -> None:
    """It never has the records that were appended since its last fetch."""
    partition = degraded(10)
    for end in range(11, 20):
        partition.record_append(end)
        partition.record_standby(end - 3, now_ms=2_000 + end)
    assert partition.hold is not None
    assert partition.hold.is_holding
    assert not partition.hold.is_degraded
    assert partition.high_watermark == 16


def test_a_standby_seconds_behind_a_steady_flow_is_not_waited_for_before_it_has_caught_up() -> None:
    """Otherwise producers would wait until the standby has all records that it lacks."""
    partition = degraded(1_000)
    for second in range(20):
        partition.record_append(1_000 + 100 * second)
        partition.record_standby(500 + 100 * second, now_ms=2_000 + 1_000 * second)
        assert partition.high_watermark == 1_000 + 100 * second
    assert partition.hold is not None
    for tick in range(10):
        partition.record_append(3_000 + tick)
        partition.record_standby(2_995 + tick, now_ms=30_000 + 10 * tick)
    assert partition.hold.is_holding


def test_a_standby_that_has_everything_is_waited_for_again_however_seldom_it_speaks() -> None:
    partition = degraded(10)
    partition.record_standby(10, now_ms=10_000)
    partition.record_standby(10, now_ms=20_000)
    assert not moves(partition.record_append(11))


def test_the_high_watermark_never_goes_back_when_waiting_begins_again() -> None:
    partition = degraded(10)
    partition.record_standby(3, now_ms=2_000)
    partition.record_standby(10, now_ms=2_001)
    partition.record_append(12)
    assert partition.high_watermark == 10


def test_a_new_leadership_knows_nothing_of_the_standby() -> None:
    partition = held()
    partition.record_append(10)
    partition.record_standby(10, now_ms=1)
    partition.change(image(epoch=2), now_ms=2, terms=StandbyTerms(may_degrade=False, timeout_ms=TIMEOUT_MS))
    assert partition.hold is not None
    assert partition.hold.acknowledged < 0
    partition.record_append(11)
    assert partition.high_watermark == 10
    partition.record_standby(11, now_ms=3)
    assert partition.high_watermark == 11


def test_a_site_promoted_over_a_lost_one_does_not_wait_until_it_is_back() -> None:
    partition = CheckedPartition(node_id=1)
    terms = StandbyTerms(may_degrade=True, timeout_ms=TIMEOUT_MS, begins_released=True)
    partition.change(image(), now_ms=0, terms=terms)
    assert moves(partition.record_append(10))
    assert partition.high_watermark == 10
    assert partition.hold is not None
    assert partition.hold.is_degraded
    partition.record_standby(4, now_ms=1)
    partition.record_append(12)
    assert partition.high_watermark == 12
    assert partition.hold.is_degraded
    partition.record_standby(12, now_ms=2)
    assert not partition.hold.is_degraded
    assert not moves(partition.record_append(13))


def test_a_blocking_link_altered_to_degrade_gives_up_a_silent_standby() -> None:
    partition = held(may_degrade=False)
    partition.record_append(10)
    assert not partition.check_standby(now_ms=10 * TIMEOUT_MS)
    assert partition.hold is not None
    partition.hold.follow_policy(may_degrade=True, timeout_ms=TIMEOUT_MS)
    assert partition.check_standby(now_ms=10 * TIMEOUT_MS)
    assert partition.high_watermark == 10


def test_a_degraded_link_altered_to_block_waits_again_once_the_standby_has_everything() -> None:
    partition = held()
    partition.record_append(10)
    assert partition.check_standby(now_ms=2 * TIMEOUT_MS)
    assert partition.hold is not None
    partition.hold.follow_policy(may_degrade=False, timeout_ms=TIMEOUT_MS)
    assert moves(partition.record_append(11))
    partition.record_standby(9, now_ms=2 * TIMEOUT_MS)
    partition.record_standby(11, now_ms=2 * TIMEOUT_MS)
    assert not moves(partition.record_append(12))
    assert not partition.check_standby(now_ms=1e9)


def test_under_a_lease_a_silent_standby_is_given_up_only_when_the_arbiter_knows() -> None:
    partition = held()
    assert partition.hold is not None
    partition.hold.needs_mark = True
    partition.record_append(10)
    assert not partition.check_standby(now_ms=TIMEOUT_MS)
    assert partition.hold.wants_mark
    assert not partition.check_standby(now_ms=1e9)  # the arbiter is silent: as under block
    partition.hold.is_marked = True
    assert partition.check_standby(now_ms=1e9)
    assert (partition.hold.wants_mark, partition.hold.is_degraded) == (False, True)


def test_a_standby_that_answers_before_the_mark_is_there_needs_none() -> None:
    partition = held()
    assert partition.hold is not None
    partition.hold.needs_mark = True
    partition.record_append(10)
    assert not partition.check_standby(now_ms=TIMEOUT_MS)
    partition.record_standby(10, now_ms=TIMEOUT_MS + 1)
    assert not partition.check_standby(now_ms=2 * TIMEOUT_MS)
    assert not partition.hold.wants_mark


def test_a_standby_is_behind_until_it_has_everything_that_was_shown() -> None:
    partition = held()
    hold = partition.hold
    assert hold is not None
    assert hold.is_behind(0)  # it has not reported yet
    partition.record_standby(0, now_ms=1)
    assert not hold.is_behind(partition.high_watermark)
    partition.record_append(10)
    assert partition.check_standby(now_ms=TIMEOUT_MS + 1)
    assert hold.is_behind(partition.high_watermark)
    partition.record_standby(10, now_ms=TIMEOUT_MS + 2)
    partition.record_standby(10, now_ms=TIMEOUT_MS + 3)
    assert not hold.is_behind(partition.high_watermark)


def test_a_link_that_becomes_a_sync_link_needs_a_mark_until_its_standby_has_what_was_shown_before() -> None:
    partition = CheckedPartition(node_id=1)
    partition.change(image(), now_ms=0)
    partition.record_append(10)
    assert partition.high_watermark == 10
    terms = StandbyTerms(may_degrade=False, timeout_ms=TIMEOUT_MS, needs_mark=True)
    partition.change(image(), now_ms=0, terms=terms)
    assert partition.hold is not None
    assert (partition.hold.wants_mark, partition.hold.is_behind(10)) == (True, True)
    partition.record_standby(9, now_ms=1)
    assert partition.hold.wants_mark
    partition.record_standby(10, now_ms=2)
    assert (partition.hold.wants_mark, partition.hold.is_behind(10)) == (False, False)


def test_a_new_leader_of_a_sync_link_needs_no_mark() -> None:
    partition = CheckedPartition(node_id=1)
    partition.change(image(), now_ms=0)
    partition.record_append(10)
    partition.change(
        image(epoch=2), now_ms=0, terms=StandbyTerms(may_degrade=True, timeout_ms=TIMEOUT_MS, needs_mark=True)
    )
    assert partition.hold is not None
    assert not partition.hold.wants_mark


def test_a_link_that_waits_for_all_records_after_a_bound_needs_a_mark() -> None:
    bounded = StandbyTerms(may_degrade=True, timeout_ms=TIMEOUT_MS, lag_bound_ms=500.0, needs_mark=True)
    partition = CheckedPartition(node_id=1)
    partition.change(image(), now_ms=0, terms=bounded)
    partition.record_standby(0, now_ms=1)
    partition.record_append(10)
    partition.check_standby(now_ms=2)
    partition.change(image(), now_ms=3, terms=bounded._replace(lag_bound_ms=0.0))
    assert partition.hold is not None
    assert partition.hold.wants_mark
