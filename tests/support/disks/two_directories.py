"""A store of logs in two directories, for tests of placement, failures and moves."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from broker.log.directories.log_directory import LogDirectory
from broker.log.directories.log_store import LogStore
from broker.log.partition_log import PartitionLog
from broker.settings.core.topic_configs import LogConfig
from runtime.disk import Disk, RealDisk
from tests.support.disks.logs_on_disk import NOW_MS, fill

ID: Final = bytes(range(16))


class TwoDirectories(LogStore):
    """A store of logs in the directories a and b; `failures` has those that went offline."""

    failures: list[Any]


def opened(root: Path, disk: Disk | None = None) -> TwoDirectories:
    """The store, open and loaded."""
    made = TwoDirectories([f"{root}/a", f"{root}/b"], disk or RealDisk(), now_ms=lambda: NOW_MS)
    made.open(node_id=1, cluster_id="c")
    made.failures = []
    made.on_failure(made.failures.append)
    made.load(lambda topic: LogConfig(segment_bytes=2000))
    return made


def create(logs: LogStore, partition: int = 0, **options: Any) -> PartitionLog:
    """A log of topic t with small segments."""
    config = LogConfig(segment_bytes=2000, file_delete_delay_ms=0)
    return logs.open_or_create("t", partition, topic_id=ID, config=config, **options)


def filled(logs: LogStore, partition: int = 0, count: int = 40) -> PartitionLog:
    """Such a log with records, all below the high watermark."""
    log = create(logs, partition)
    fill(log, count, leader_epoch=3)
    log.advance_high_watermark(log.log_end_offset)
    return log


def other_directory(logs: LogStore, log: PartitionLog) -> LogDirectory:
    """The directory in which the log is not."""
    return next(directory for directory in logs.directories if directory.path != logs.home_of(log))
