"""A mirror's batches lack records that the source's compaction has removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker.log.directories.log_store import LogStore
from broker.log.partition_log import PartitionLog
from broker.metadata.core.topic_images import PartitionImage
from broker.metrics import BrokerMetrics, TopicMetrics
from broker.replication.core.partition import Partition
from broker.replication.hosted_partition import HostedPartition
from broker.replication.mirror_append import append_mirrored
from broker.replication.replicas import Replicas
from broker.replication.truncated_records import TruncatedRecords
from broker.settings.core.topic_configs import LogConfig
from broker.settings.loading import load_broker_settings
from runtime.disk import RealDisk
from tests.support.clock import ManualClock
from tests.support.disks.log_batches import batch
from tests.support.disks.logs_on_disk import NOW_MS, open_log
from wire.protocol.messages.mirror_append_codec import PartitionToMirror

SOURCE_END = 40


def own_replicas(directory: Path) -> Replicas:
    settings = load_broker_settings(
        {"node.id": "1", "listeners": "CLIENT://:0", "log.dirs": str(directory), "zookeeper.connect": "none:1"}
    )
    clock = ManualClock(NOW_MS)
    logs = LogStore([str(directory)], RealDisk(), now_ms=clock.now_ms)
    cuts = TruncatedRecords(RealDisk(), bytes_max=0)
    return Replicas(settings, clock, logs, BrokerMetrics(), cuts=cuts)


@pytest.mark.parametrize(("first_offset", "thinned_to"), [(0, 0), (5, SOURCE_END)])
async def test_a_copy_knows_up_to_where_its_source_may_have_removed_records(
    tmp_path: Path, first_offset: int, thinned_to: int
) -> None:
    log: PartitionLog = open_log(tmp_path / "t-0")
    state = Partition(node_id=1, log_end_offset=0)
    image = PartitionImage(index=0, leader=1, leader_epoch=1, partition_epoch=1, replicas=(1,), isr=(1,))
    state.change(image, now_ms=0)
    hosted = HostedPartition(
        topic="t", topic_id=bytes(16), index=0, log=log, state=state, config=LogConfig(), metrics=TopicMetrics()
    )
    replicas = own_replicas(tmp_path)
    sent = PartitionToMirror(0, 0, SOURCE_END, 0, 1, batch(base_offset=first_offset, leader_epoch=1))
    append_mirrored(replicas, hosted, sent, now_ms=NOW_MS)
    assert log.log_end_offset > first_offset
    assert log.thinned_to == thinned_to
    # a batch without a hole changes nothing, although the source has grown
    end = log.log_end_offset
    sent = PartitionToMirror(0, end, SOURCE_END + 1, 0, 1, batch(base_offset=end, leader_epoch=1))
    append_mirrored(replicas, hosted, sent, now_ms=NOW_MS)
    assert log.thinned_to == thinned_to
    log.close()
