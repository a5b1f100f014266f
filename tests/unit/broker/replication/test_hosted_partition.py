"""Writers that are admitted after a change of leaders: known producers, and producers that begin
with their first batch.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from kio.schema.errors import ErrorCode

from broker.log.core.producer_values import PrecedingBatchPending
from broker.log.source_seen import SourceSeen
from broker.metadata.core.topic_images import PartitionImage
from broker.metrics import TopicMetrics
from broker.replication.core.partition import Partition
from broker.replication.hosted_partition import SETTLING_MS, HostedPartition
from broker.replication.topic_roles import lossy_floor
from broker.settings.core.topic_configs import LogConfig
from tests.support.disks.log_batches import batch
from tests.support.disks.logs_on_disk import NOW_MS, open_log
from wire.control.cluster_pb2 import LinkRecord

FLOOR = 1 << 20


def led(directory: Path, *, leader_epoch: int) -> HostedPartition:
    """A partition with a record that was written under epoch 0, led here."""
    log = open_log(directory / "t-0")
    log.append_as_leader(batch([b"a"], producer_id=5, sequence=0, timestamp_ms=NOW_MS), leader_epoch=0, now_ms=NOW_MS)
    hosted = HostedPartition(
        topic="t",
        topic_id=bytes(16),
        index=0,
        log=log,
        state=Partition(node_id=1, log_end_offset=log.log_end_offset),
        config=LogConfig(),
        metrics=TopicMetrics(),
    )
    lead(hosted, leader_epoch=leader_epoch)
    return hosted


def lead(hosted: HostedPartition, *, leader_epoch: int) -> None:
    image = PartitionImage(
        index=0, leader=1, leader_epoch=leader_epoch, partition_epoch=leader_epoch, replicas=(1,), isr=(1,)
    )
    hosted.state.change(image, now_ms=0)


def append(hosted: HostedPartition, *, producer_id: int, sequence: int) -> int:
    records = batch([b"b"], producer_id=producer_id, sequence=sequence, timestamp_ms=NOW_MS)
    return hosted.log.append_as_leader(records, leader_epoch=hosted.state.leader_epoch, now_ms=NOW_MS).first_offset


def test_a_new_leader_lets_a_producer_that_it_does_not_know_begin_with_its_first_batch_alone(tmp_path: Path) -> None:
    hosted = led(tmp_path, leader_epoch=1)
    hosted.begin_writing(lossy_floor=0, now_ms=1_000)
    with pytest.raises(PrecedingBatchPending) as refused:
        append(hosted, producer_id=6, sequence=4)
    assert refused.value.code is ErrorCode.not_enough_replicas
    assert append(hosted, producer_id=6, sequence=0) == 1
    assert append(hosted, producer_id=6, sequence=1) == 2
    assert append(hosted, producer_id=5, sequence=1) == 3


def test_once_nothing_can_be_on_its_way_a_producer_that_was_forgotten_goes_on_where_it_was(tmp_path: Path) -> None:
    hosted = led(tmp_path, leader_epoch=1)
    hosted.begin_writing(lossy_floor=0, now_ms=1_000)
    hosted.settle(1_000 + SETTLING_MS - 1)
    with pytest.raises(PrecedingBatchPending):
        append(hosted, producer_id=6, sequence=4)
    hosted.settle(1_000 + SETTLING_MS)
    assert append(hosted, producer_id=6, sequence=4) == 1


def test_nothing_is_on_its_way_to_another_leader_of_a_new_partition(tmp_path: Path) -> None:
    hosted = led(tmp_path, leader_epoch=0)
    hosted.begin_writing(lossy_floor=0, now_ms=1_000)
    assert append(hosted, producer_id=6, sequence=4) == 1


def test_a_producer_cut_off_by_a_promotion_goes_on_at_once_and_later_leaders_wait_again(
    tmp_path: Path,
) -> None:
    hosted, link = led(tmp_path, leader_epoch=FLOOR), LinkRecord(leader_epoch_floor=FLOOR)
    hosted.begin_writing(lossy_floor=lossy_floor(link), now_ms=1_000)
    assert append(hosted, producer_id=6, sequence=4) == 1
    lead(hosted, leader_epoch=FLOOR + 1)
    hosted.begin_writing(lossy_floor=lossy_floor(link), now_ms=2_000)
    with pytest.raises(PrecedingBatchPending):
        append(hosted, producer_id=7, sequence=4)


def test_a_standby_that_had_every_acknowledged_record_waits_for_what_comes_again(tmp_path: Path) -> None:
    hosted = led(tmp_path, leader_epoch=FLOOR)
    hosted.begin_writing(
        lossy_floor=lossy_floor(LinkRecord(leader_epoch_floor=FLOOR, sync_policy="block")), now_ms=1_000
    )
    with pytest.raises(PrecedingBatchPending):
        append(hosted, producer_id=6, sequence=4)


def test_a_producer_whose_acknowledged_records_a_failover_to_a_time_removed_goes_on(tmp_path: Path) -> None:
    hosted = led(tmp_path, leader_epoch=FLOOR)
    link = LinkRecord(leader_epoch_floor=FLOOR, sync_policy="block", kept_before_ms=NOW_MS)
    hosted.begin_writing(lossy_floor=lossy_floor(link), now_ms=1_000)
    assert append(hosted, producer_id=5, sequence=9) == 1
    assert append(hosted, producer_id=6, sequence=4) == 2


def test_a_log_that_becomes_a_copy_forgets_the_epoch_of_a_leadership_that_wrote_nothing(tmp_path: Path) -> None:
    hosted = led(tmp_path, leader_epoch=FLOOR)
    hosted.begin_writing(lossy_floor=lossy_floor(LinkRecord(leader_epoch_floor=FLOOR)), now_ms=1_000)
    assert (hosted.log.latest_epoch, hosted.log.written_epochs) == (FLOOR, ([0], [0]))
    hosted.begin_following()
    assert (hosted.log.latest_epoch, hosted.log.log_end_offset) == (0, 1)


def test_a_log_that_becomes_a_copy_keeps_the_epochs_of_its_records(tmp_path: Path) -> None:
    hosted = led(tmp_path, leader_epoch=FLOOR)
    hosted.begin_writing(lossy_floor=lossy_floor(LinkRecord(leader_epoch_floor=FLOOR)), now_ms=1_000)
    append(hosted, producer_id=6, sequence=4)
    hosted.begin_following()
    assert hosted.log.leader_epochs == [(0, 0), (FLOOR, 1)]
    assert hosted.log.written_epochs == ([0, FLOOR], [0, 1])


def test_a_report_about_the_source_counts_only_while_the_log_ends_with_records_of_that_source(tmp_path: Path) -> None:
    """A checkpoint may be older than the promotion after which this site wrote."""
    hosted = led(tmp_path, leader_epoch=FLOOR)
    hosted.log.source = SourceSeen(700, NOW_MS, log_epoch=0)
    assert hosted.source_of_copy(hosted.last_record_epoch) is hosted.log.source
    append(hosted, producer_id=5, sequence=1)
    assert not hosted.source_of_copy(hosted.last_record_epoch).is_known
    hosted.log.source = SourceSeen(700, NOW_MS)
    assert not hosted.source_of_copy(hosted.last_record_epoch).is_known
