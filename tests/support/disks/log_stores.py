"""A store of logs in one directory, open and loaded."""

from __future__ import annotations

from pathlib import Path

from broker.log.directories.log_store import LogStore
from broker.log.partition_log import PartitionLog
from broker.settings.core.topic_configs import LogConfig
from runtime.disk import Disk
from tests.support.disks.logs_on_disk import NOW_MS, config
from wire.protocol.ids import TopicPartition

ID = bytes(range(16))
"""The topic id of the logs."""
KEY = TopicPartition("t", 0)


def open_store(path: Path, disk: Disk, now: list[int] | None = None) -> LogStore:
    """The store, with the logs that the directory has; `now` holds the time in milliseconds."""
    logs = LogStore([str(path)], disk, now_ms=lambda: now[0] if now else NOW_MS)
    logs.open(node_id=1, cluster_id="c")
    logs.load(lambda _: LogConfig())
    return logs


def create_log(logs: LogStore, topic: str = "t", partition: int = 0, **fields: object) -> PartitionLog:
    """A new log; the fields are those of its configuration."""
    return logs.open_or_create(topic, partition, topic_id=ID, config=config(**fields))
