"""Leadership, ISR and high watermark of one replica."""

from __future__ import annotations

from broker.metadata.core.topic_images import PartitionImage
from broker.replication.core.partition import LeadershipChange, Partition
from broker.replication.core.partition_effects import FirstFetchAwaited, IsrProposed
from broker.replication.core.replica_progress import REFUSAL_PAUSE_MS
from tests.support.memory.checked_partition import CheckedPartition, moves

LAG_MS_MAX = 100


def decided(
    *, leader: int = 1, epoch: int = 0, isr: tuple[int, ...] = (1,), replicas: tuple[int, ...] = (1,)
) -> PartitionImage:
    return PartitionImage(index=0, leader=leader, leader_epoch=epoch, partition_epoch=0, replicas=replicas, isr=isr)


def led(**fields: object) -> Partition:
    partition = CheckedPartition(node_id=1)
    assert partition.change(decided(**fields), now_ms=0)[0] is LeadershipChange.BECAME_LEADER  # type: ignore[arg-type]
    return partition


def test_a_lone_replica_moves_its_high_watermark_with_its_log() -> None:
    partition = led()
    assert moves(partition.record_append(10))
    assert partition.high_watermark == 10
    assert not moves(partition.record_append(10))


def test_the_high_watermark_waits_for_the_slowest_in_sync_replica() -> None:
    partition = led(replicas=(1, 2, 3), isr=(1, 2, 3))
    assert not moves(partition.record_append(10))
    assert not moves(partition.record_fetch(2, 10, now_ms=1))
    assert moves(partition.record_fetch(3, 7, now_ms=1))
    assert partition.high_watermark == 7


def test_an_append_names_the_in_sync_replicas_that_have_not_fetched_yet() -> None:
    partition = led(replicas=(1, 2, 3, 4), isr=(1, 2, 3))
    assert FirstFetchAwaited((2, 3)) in partition.record_append(10)
    partition.record_fetch(2, 0, now_ms=1)
    assert FirstFetchAwaited((3,)) in partition.record_append(11)
    partition.record_fetch(3, 0, now_ms=1)
    assert not any(isinstance(effect, FirstFetchAwaited) for effect in partition.record_append(12))


def test_a_smaller_isr_frees_the_high_watermark() -> None:
    partition = led(replicas=(1, 2), isr=(1, 2))
    partition.record_append(10)
    partition.change(decided(replicas=(1, 2), isr=(1,)), now_ms=2)
    assert partition.high_watermark == 10


def test_an_older_leader_epoch_is_refused() -> None:
    partition = led(epoch=5)
    assert partition.change(decided(epoch=4, leader=2), now_ms=0)[0] is LeadershipChange.STALE
    assert partition.is_leader


def test_the_same_leadership_again_changes_nothing() -> None:
    partition = led(replicas=(1, 2), isr=(1, 2))
    partition.record_fetch(2, 4, now_ms=1)
    assert partition.change(decided(replicas=(1, 2), isr=(1, 2)), now_ms=2)[0] is LeadershipChange.UNCHANGED
    assert partition.followers[2].log_end_offset == 4


def test_a_follower_does_not_move_its_own_high_watermark() -> None:
    partition = CheckedPartition(node_id=1)
    partition.change(decided(leader=2, replicas=(1, 2)), now_ms=0)
    assert not moves(partition.record_append(10))
    assert partition.high_watermark == 0


def test_acks_all_needs_enough_in_sync_replicas_but_never_more_than_there_are() -> None:
    for replicas, is_enough in (((1,), True), ((1, 2), False)):
        partition = led(replicas=replicas, isr=(1,))
        partition.require_in_sync(2)
        assert partition.has_enough_in_sync is is_enough


def test_the_high_watermark_waits_for_the_disk_where_a_flush_is_asked_for() -> None:
    partition = led()
    partition.record_append(3)
    partition.await_flush(3, 6)
    partition.record_append(6)
    partition.await_flush(6, 10)
    partition.record_append(10)
    assert (partition.high_watermark, partition.mirrorable_end) == (3, 3)
    partition.record_flush(6, is_done=True)
    assert (partition.high_watermark, partition.mirrorable_end) == (6, 6)
    partition.record_flush(10, is_done=True)
    assert (partition.high_watermark, partition.mirrorable_end) == (10, 10)


def test_records_that_need_no_flush_do_not_keep_the_high_watermark_back() -> None:
    """Appends of followers and markers need no flush; their records go to the disk later."""
    partition = led()
    partition.await_flush(0, 3)
    partition.record_append(3)
    partition.record_append(5)
    partition.record_flush(3, is_done=True)
    assert partition.high_watermark == 5


def test_a_flush_that_outlives_its_leadership_does_not_keep_the_next_one_back() -> None:
    partition = led()
    partition.await_flush(0, 10)
    partition.record_append(10)
    assert partition.change(decided(leader=2, epoch=8), now_ms=0)[0] is LeadershipChange.BECAME_FOLLOWER
    partition.record_truncation(4)
    partition.record_flush(4, is_done=True)
    assert partition.change(decided(leader=1, epoch=9), now_ms=0)[0] is LeadershipChange.BECAME_LEADER
    partition.record_append(6)
    assert partition.high_watermark == 6


def test_truncation_takes_the_high_watermark_along() -> None:
    partition = led()
    partition.record_append(10)
    partition.record_truncation(4)
    assert (partition.log_end_offset, partition.high_watermark) == (4, 4)


def test_a_truncated_copy_counts_nothing_that_followers_fetched_of_the_removed_end() -> None:
    partition = led(replicas=(1, 2, 3), isr=(1, 2, 3))
    partition.record_append(10)
    partition.record_fetch(2, 10, now_ms=1)
    partition.record_fetch(3, 3, now_ms=1)
    partition.record_fetch(3, 10, now_ms=2)
    assert partition.high_watermark == 10
    partition.record_copy_truncation(4)
    assert (partition.log_end_offset, partition.high_watermark, partition.mirrorable_end) == (4, 4, 4)
    assert not moves(partition.record_append(12)), "no follower has fetched what is there now"
    assert not moves(partition.record_fetch(2, 12, now_ms=3))
    assert moves(partition.record_fetch(3, 12, now_ms=3))
    assert partition.high_watermark == 12


def test_an_in_sync_replica_may_have_removed_records_until_it_fetches_again() -> None:
    partition = with_outsider()
    assert partition.exceeding_in_sync == ()
    partition.record_copy_truncation(4)
    assert partition.exceeding_in_sync == (2,), "broker 3 is not in sync: it cannot lead next"
    partition.record_fetch(2, 4, now_ms=2)
    assert partition.exceeding_in_sync == ()


def test_a_replica_that_has_not_fetched_from_this_leader_may_have_more_records() -> None:
    partition = led(replicas=(1, 2), isr=(1, 2))
    assert partition.exceeding_in_sync == (2,)
    partition.record_fetch(2, 0, now_ms=1)
    assert partition.exceeding_in_sync == ()


def test_a_follower_joins_a_truncated_copy_that_ends_below_where_the_leadership_began() -> None:
    partition = with_outsider()
    partition.change(decided(epoch=partition.leader_epoch + 1, replicas=(1, 2, 3), isr=(1, 2)), now_ms=2)
    assert partition.leader_epoch_start_offset == 10
    partition.record_copy_truncation(4)
    partition.record_fetch(3, 4, now_ms=3)
    assert partition.expanded_isr(3, {3: 1}, lag_ms_max=1_000) == (1, 2, 3)


def followed(high_watermark: int = 0, log_end_offset: int = 0) -> Partition:
    """A partition that follows broker 2."""
    partition = CheckedPartition(node_id=1, high_watermark=high_watermark, log_end_offset=log_end_offset)
    partition.change(decided(leader=2, replicas=(2, 1), isr=(2, 1)), now_ms=0)
    return partition


def with_outsider() -> Partition:
    """A partition led here, with log end 10 and broker 3 out of sync."""
    partition = led(replicas=(1, 2, 3), isr=(1, 2))
    partition.record_append(10)
    partition.record_fetch(2, 10, now_ms=1)
    return partition


def test_a_follower_takes_the_leaders_high_watermark_as_far_as_its_own_log_goes() -> None:
    partition = followed(log_end_offset=5)
    assert moves(partition.follow_high_watermark(9))
    assert partition.high_watermark == 5
    assert not moves(partition.follow_high_watermark(3))
    assert partition.high_watermark == 5


def test_a_leader_accepts_no_high_watermark() -> None:
    partition = led()
    partition.record_append(4)
    assert not moves(partition.follow_high_watermark(2))


def test_a_follower_that_has_caught_up_is_proposed_once() -> None:
    partition = with_outsider()
    partition.record_fetch(3, 9, now_ms=2)
    assert partition.expanded_isr(3, {3: 7}, lag_ms_max=LAG_MS_MAX) is None
    partition.record_fetch(3, 10, now_ms=3)
    assert partition.expanded_isr(3, {3: 7}, lag_ms_max=LAG_MS_MAX) == (1, 2, 3)
    partition.propose_isr((1, 2, 3))
    assert partition.expanded_isr(3, {3: 7}, lag_ms_max=LAG_MS_MAX) is None


def test_a_follower_is_not_proposed_before_it_is_past_where_the_leadership_began() -> None:
    partition = CheckedPartition(node_id=1, log_end_offset=10, high_watermark=4)
    partition.change(decided(replicas=(1, 2, 3), isr=(1, 2)), now_ms=0)
    partition.record_fetch(3, 9, now_ms=1)
    assert partition.expanded_isr(3, {3: 7}, lag_ms_max=LAG_MS_MAX) is None
    partition.record_fetch(3, 10, now_ms=2)
    assert partition.expanded_isr(3, {3: 7}, lag_ms_max=LAG_MS_MAX) == (1, 2, 3)


def test_a_follower_of_an_older_registration_is_not_proposed() -> None:
    partition = with_outsider()
    partition.record_fetch(3, 10, now_ms=2, broker_epoch=6)
    assert partition.expanded_isr(3, {3: 7}, lag_ms_max=LAG_MS_MAX) is None
    assert partition.expanded_isr(3, {}, lag_ms_max=LAG_MS_MAX) is None
    assert partition.expanded_isr(3, {3: 6}, lag_ms_max=LAG_MS_MAX) == (1, 2, 3)


def test_the_high_watermark_waits_for_a_replica_that_is_only_proposed() -> None:
    partition = with_outsider()
    partition.record_fetch(3, 10, now_ms=2)
    partition.propose_isr((1, 2, 3))
    partition.record_append(20)
    partition.record_fetch(2, 20, now_ms=3)
    assert partition.high_watermark == 10
    partition.record_fetch(3, 20, now_ms=4)
    assert partition.high_watermark == 20


def test_the_high_watermark_waits_for_a_replica_whose_removal_is_only_proposed() -> None:
    partition = led(replicas=(1, 2), isr=(1, 2))
    partition.record_append(10)
    partition.propose_isr((1,))
    assert partition.high_watermark == 0


def test_a_refused_proposal_leaves_the_in_sync_replicas_as_they_were() -> None:
    partition = with_outsider()
    partition.record_fetch(3, 10, now_ms=2)
    partition.propose_isr((1, 2, 3))
    partition.withdraw_proposal()
    partition.record_append(20)
    assert moves(partition.record_fetch(2, 20, now_ms=3))
    assert (partition.isr, partition.high_watermark) == ((1, 2), 20)


def test_an_image_of_a_newer_partition_epoch_settles_a_proposal_and_an_older_one_is_passed_over() -> None:
    partition = with_outsider()
    partition.propose_isr((1, 2, 3))
    accepted = PartitionImage(index=0, leader=1, leader_epoch=0, partition_epoch=1, replicas=(1, 2, 3), isr=(1, 2, 3))
    partition.change(accepted, now_ms=3)
    assert (partition.proposed_isr, partition.isr) == (None, (1, 2, 3))
    partition.change(decided(replicas=(1, 2, 3), isr=(1, 2)), now_ms=4)
    assert (partition.partition_epoch, partition.isr) == (1, (1, 2, 3))


def test_replicas_that_have_not_been_at_the_end_for_long_are_proposed_to_leave() -> None:
    partition = led(replicas=(1, 2, 3), isr=(1, 2, 3))
    partition.record_append(10)
    partition.record_fetch(2, 10, now_ms=50)
    assert not partition.shrink_isr(now_ms=100, lag_ms_max=100)
    assert partition.shrink_isr(now_ms=101, lag_ms_max=100) == (IsrProposed((1, 2)),)
    partition.withdraw_proposal()
    partition.record_append(20)
    assert partition.shrink_isr(now_ms=151, lag_ms_max=100) == (IsrProposed((1,)),)
    assert not partition.shrink_isr(now_ms=152, lag_ms_max=100), "one proposal at a time"


def test_a_replica_that_lost_what_all_in_sync_replicas_have_leaves_them_at_once() -> None:
    partition = led(replicas=(1, 2, 3), isr=(1, 2, 3))
    partition.record_append(10)
    partition.record_fetch(2, 10, now_ms=1)
    assert not any(isinstance(effect, IsrProposed) for effect in partition.record_fetch(3, 8, now_ms=1))
    assert partition.high_watermark == 8
    assert IsrProposed((1, 2)) in partition.record_fetch(3, 0, now_ms=2)
    again = partition.record_fetch(3, 0, now_ms=3)
    assert not any(isinstance(effect, IsrProposed) for effect in again), "one proposal at a time"
    left = PartitionImage(index=0, leader=1, leader_epoch=0, partition_epoch=1, replicas=(1, 2, 3), isr=(1, 2))
    partition.change(left, now_ms=4)
    assert partition.high_watermark == 10
    # nothing waits for it until it has caught up again
    assert partition.expanded_isr(3, {3: 7}, lag_ms_max=LAG_MS_MAX) is None
    assert not partition.joining


def test_a_replica_that_keeps_up_with_a_busy_leader_stays_though_it_is_never_quite_at_the_end() -> None:
    partition = led(replicas=(1, 2), isr=(1, 2))
    for step in range(1, 20):
        now_ms = step * 40.0
        partition.record_append(step * 10)
        partition.record_fetch(2, step * 10 - 5, now_ms=now_ms)
        partition.record_append(step * 10 + 5)
    assert not partition.shrink_isr(now_ms=now_ms + 60, lag_ms_max=100)


def test_an_idle_partition_keeps_its_in_sync_replicas() -> None:
    partition = led(replicas=(1, 2), isr=(1, 2))
    partition.record_append(10)
    partition.record_fetch(2, 10, now_ms=1)
    assert not partition.shrink_isr(now_ms=1_000_000, lag_ms_max=100)


def test_an_unbroken_leadership_is_distinguished_from_one_with_a_gap() -> None:
    partition = led(epoch=3, replicas=(1, 2))
    partition.change(decided(epoch=4, replicas=(1, 2)), now_ms=0)
    assert partition.led_since_epoch == 3
    partition.change(decided(epoch=5, leader=2, replicas=(1, 2)), now_ms=0)
    partition.change(decided(epoch=6, replicas=(1, 2)), now_ms=0)
    assert partition.led_since_epoch == 6


def test_a_new_leadership_knows_nothing_of_how_far_followers_are() -> None:
    partition = led(epoch=3, replicas=(1, 2), isr=(1, 2))
    partition.record_append(10)
    partition.record_fetch(2, 10, now_ms=1)
    partition.change(decided(epoch=4, replicas=(1, 2), isr=(1, 2)), now_ms=2)
    partition.record_append(20)
    assert partition.high_watermark == 10
    partition.record_fetch(2, 15, now_ms=3)
    assert partition.high_watermark == 15


def test_a_fetch_of_a_broker_without_a_replica_counts_for_nothing() -> None:
    partition = led(replicas=(1, 2), isr=(1, 2))
    partition.record_append(10)
    assert not moves(partition.record_fetch(9, 10, now_ms=1))
    assert 9 not in partition.followers


def test_the_low_watermark_is_the_lowest_log_start_of_the_living() -> None:
    partition = led(replicas=(1, 2, 3), isr=(1, 2, 3))
    assert partition.low_watermark(5, {1, 2, 3}) == -1
    partition.record_fetch(2, 10, now_ms=1, log_start_offset=5)
    partition.record_fetch(3, 10, now_ms=1, log_start_offset=2)
    assert partition.low_watermark(5, {1, 2, 3}) == 2
    assert partition.low_watermark(5, {1, 2}) == 5
    assert partition.low_watermark(5, {1}) == 5


def test_nothing_becomes_visible_while_too_few_replicas_are_in_sync() -> None:
    partition = led(replicas=(1, 2, 3), isr=(1, 2))
    partition.require_in_sync(2)
    partition.record_append(10)
    partition.record_fetch(2, 10, now_ms=1)
    partition.change(decided(replicas=(1, 2, 3), isr=(1,)), now_ms=2)
    assert not moves(partition.record_append(20))
    assert (partition.high_watermark, partition.mirrorable_end) == (10, 10)
    partition.change(decided(replicas=(1, 2, 3), isr=(1, 3)), now_ms=3)
    partition.record_fetch(3, 15, now_ms=4)
    assert partition.high_watermark == 15


def test_a_smaller_minimum_frees_what_waited() -> None:
    partition = led(replicas=(1, 2), isr=(1,))
    partition.require_in_sync(2)
    assert not moves(partition.record_append(10))
    assert moves(partition.require_in_sync(1))


def test_no_more_replicas_are_asked_for_than_there_are() -> None:
    partition = led()
    partition.require_in_sync(3)
    assert moves(partition.record_append(10))


def test_a_follower_one_round_trip_behind_a_busy_leader_gets_into_the_isr() -> None:
    partition = led(replicas=(1, 2), isr=(1,))
    proposed = None
    for turn in range(10):
        partition.record_append(10 * turn + 10)  # between every two of its fetches
        partition.record_fetch(2, 10 * turn, now_ms=turn)
        proposed = proposed or partition.expanded_isr(2, {2: 7}, lag_ms_max=LAG_MS_MAX)
    assert proposed == (1, 2)
    assert partition.high_watermark == 90


def joining() -> Partition:
    """A partition whose broker 2 was at the log end at its fetch before and has offset 10. The high
    watermark waits for it there.
    """
    partition = led(replicas=(1, 2), isr=(1,))
    partition.record_append(10)
    partition.record_fetch(2, 9, now_ms=1)
    partition.record_append(20)
    partition.record_fetch(2, 10, now_ms=2)
    assert partition.expanded_isr(2, {2: 7}, lag_ms_max=LAG_MS_MAX) is None
    assert not moves(partition.record_append(30))
    assert partition.high_watermark == 20
    return partition


def test_the_high_watermark_waits_for_a_joining_follower_until_it_lags() -> None:
    partition = joining()
    assert not partition.drop_joining({2: 7}, now_ms=1 + LAG_MS_MAX, lag_ms_max=LAG_MS_MAX)
    assert moves(partition.drop_joining({2: 7}, now_ms=2 + LAG_MS_MAX, lag_ms_max=LAG_MS_MAX))
    assert partition.high_watermark == 30


def test_a_joining_follower_that_is_gone_is_not_waited_for() -> None:
    partition = joining()
    assert moves(partition.drop_joining({}, now_ms=3, lag_ms_max=LAG_MS_MAX))


def test_a_joining_follower_that_fell_back_is_not_waited_for() -> None:
    partition = joining()
    partition.record_fetch(2, 11, now_ms=3 + LAG_MS_MAX)
    assert partition.expanded_isr(2, {2: 7}, lag_ms_max=LAG_MS_MAX) is None


def test_a_follower_that_never_was_at_the_end_does_not_hold_anything_up() -> None:
    partition = led(replicas=(1, 2), isr=(1,))
    partition.record_append(100)
    partition.record_fetch(2, 5, now_ms=1)
    partition.expanded_isr(2, {2: 7}, lag_ms_max=LAG_MS_MAX)
    assert moves(partition.record_append(200))


def test_a_registration_that_the_controller_refuses_is_left_alone_for_a_while() -> None:
    partition = joining()
    partition.refuse(2, 7, now_ms=2)
    partition.record_fetch(2, 30, now_ms=3)
    assert partition.expanded_isr(2, {2: 7}, lag_ms_max=LAG_MS_MAX) is None
    assert partition.expanded_isr(2, {2: 8}, lag_ms_max=LAG_MS_MAX) == (1, 2)
    partition.record_fetch(2, 30, now_ms=3 + REFUSAL_PAUSE_MS)
    assert partition.expanded_isr(2, {2: 7}, lag_ms_max=LAG_MS_MAX) == (1, 2)
