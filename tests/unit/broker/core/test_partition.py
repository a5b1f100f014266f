"""Leadership, ISR and high watermark of one replica."""

from __future__ import annotations

from broker.core.cluster_image import PartitionImage
from broker.core.partition import LeadershipChange, Partition


def decided(
    *, leader: int = 1, epoch: int = 0, isr: tuple[int, ...] = (1,), replicas: tuple[int, ...] = (1,)
) -> PartitionImage:
    return PartitionImage(index=0, leader=leader, leader_epoch=epoch, partition_epoch=0, replicas=replicas, isr=isr)


def led(**fields: object) -> Partition:
    partition = Partition(node_id=1)
    assert partition.change(decided(**fields), now_ms=0) is LeadershipChange.BECAME_LEADER  # type: ignore[arg-type]
    return partition


def test_a_lone_replica_moves_its_high_watermark_with_its_log() -> None:
    partition = led()
    assert partition.record_append(10)
    assert partition.high_watermark == 10
    assert not partition.record_append(10)


def test_the_high_watermark_waits_for_the_slowest_in_sync_replica() -> None:
    partition = led(replicas=(1, 2, 3), isr=(1, 2, 3))
    assert not partition.record_append(10)
    assert not partition.record_fetch(2, 10, now_ms=1)
    assert partition.record_fetch(3, 7, now_ms=1)
    assert partition.high_watermark == 7


def test_a_smaller_isr_frees_the_high_watermark() -> None:
    partition = led(replicas=(1, 2), isr=(1, 2))
    partition.record_append(10)
    partition.change(decided(replicas=(1, 2), isr=(1,)), now_ms=2)
    assert partition.refresh_high_watermark()
    assert partition.high_watermark == 10


def test_an_older_leader_epoch_is_refused() -> None:
    partition = led(epoch=5)
    assert partition.change(decided(epoch=4, leader=2), now_ms=0) is LeadershipChange.STALE
    assert partition.is_leader


def test_the_same_leadership_again_changes_nothing() -> None:
    partition = led(replicas=(1, 2), isr=(1, 2))
    partition.record_fetch(2, 4, now_ms=1)
    assert partition.change(decided(replicas=(1, 2), isr=(1, 2)), now_ms=2) is LeadershipChange.UNCHANGED
    assert partition.followers[2].log_end_offset == 4


def test_a_follower_does_not_move_its_own_high_watermark() -> None:
    partition = Partition(node_id=1)
    partition.change(decided(leader=2, replicas=(1, 2)), now_ms=0)
    assert not partition.record_append(10)
    assert partition.high_watermark == 0


def test_acks_all_needs_enough_in_sync_replicas_but_never_more_than_there_are() -> None:
    assert led().has_enough_in_sync(2)
    assert not led(replicas=(1, 2), isr=(1,)).has_enough_in_sync(2)


def test_truncation_takes_the_high_watermark_along() -> None:
    partition = led()
    partition.record_append(10)
    partition.record_truncation(4)
    assert (partition.log_end_offset, partition.high_watermark) == (4, 4)
