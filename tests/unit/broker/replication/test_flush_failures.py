"""A flush that fails takes the log directory offline at once, whichever part asked for it."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.coordination.internal_log import AwaitedCommit
from broker.handlers.links.mirror_append import _answer_flushed
from broker.log.errors import StorageError
from broker.metadata.core.topic_images import PartitionImage
from broker.metrics import TopicMetrics
from broker.replication.core.partition import Partition
from broker.replication.following.follower_append import flush_if_demanded
from broker.replication.hosted_partition import HostedPartition, PartitionFailure
from broker.replication.mirror_append import Outcome
from broker.settings.core.topic_configs import LogConfig
from tests.support.disks.faulty_disk import FaultyDisk
from tests.support.disks.logs_on_disk import fill, open_log
from tests.support.memory.quiet_replicas import QuietReplicas


def unflushed(directory: Path) -> HostedPartition:
    """A led partition with a record that flush.messages=1 wants flushed; its disk fails."""
    disk = FaultyDisk(str(directory))
    log = open_log(directory / "t-0", disk, flush_messages=1)
    fill(log, 1)
    disk.fail_next("fdatasync", ".log")
    state = Partition(node_id=1, log_end_offset=log.log_end_offset)
    image = PartitionImage(index=0, leader=1, leader_epoch=0, partition_epoch=0, replicas=(1,), isr=(1,))
    state.change(image, now_ms=0)
    return HostedPartition(
        topic="t", topic_id=bytes(16), index=0, log=log, state=state, config=LogConfig(), metrics=TopicMetrics()
    )


def is_disk_failure_of(replicas: Any, hosted: HostedPartition) -> bool:
    (failure,) = replicas.failures
    assert isinstance(failure, StorageError)
    return failure.path.startswith(hosted.log.directory) and failure.is_disk_failure


async def test_a_followers_flush_before_its_next_fetch(tmp_path: Path) -> None:
    hosted, replicas = unflushed(tmp_path), QuietReplicas()
    await flush_if_demanded(replicas, hosted)  # type: ignore[arg-type]
    assert is_disk_failure_of(replicas, hosted)


async def test_a_coordinators_flush_before_its_answer(tmp_path: Path) -> None:
    hosted, replicas = unflushed(tmp_path), QuietReplicas()
    with pytest.raises(PartitionFailure) as refused:
        await AwaitedCommit(replicas, hosted, 0).committed(1000)  # type: ignore[arg-type]
    assert refused.value.code is ErrorCode.kafka_storage_error
    assert is_disk_failure_of(replicas, hosted)


async def test_a_mirrors_flush_before_its_answer(tmp_path: Path) -> None:
    hosted, replicas = unflushed(tmp_path), QuietReplicas()
    outcome = Outcome(0, 1)
    outcome.hosted = hosted
    outcome.took(hosted)
    exchange: Any = SimpleNamespace(
        count_errors=lambda codes: list(codes),
        throttle_time_ms=lambda: 0,
        reply_body=lambda parts, *, body_size: None,
    )
    doors: Any = SimpleNamespace(replicas=replicas)
    await _answer_flushed(doors, exchange, [("t", [outcome])], [outcome])
    assert outcome.error is ErrorCode.kafka_storage_error
    assert is_disk_failure_of(replicas, hosted)
