"""A flush that cannot begin, or does not move the recovery point, leaves its work to the next
flush.
"""

from __future__ import annotations

import asyncio
import errno
from pathlib import Path
from threading import Event

import pytest

from broker.log.errors import DiskFull, StorageError
from broker.log.partition_log import PartitionLog
from broker.log.segments.descriptors import DescriptorCache
from tests.support.disks.faulty_disk import FaultyDisk
from tests.support.disks.logs_on_disk import NOW_MS, config, fill

FLUSH_MS = 1000


def log_without_idle_descriptors(directory: Path, disk: FaultyDisk) -> PartitionLog:
    directory.mkdir()
    settings = config(flush_ms=FLUSH_MS, segment_ms=10)
    return PartitionLog(str(directory), DescriptorCache(disk, idle_max=0), settings, topic="t", partition=0)


async def test_new_names_are_durable_with_the_flush_after_one_without_descriptors(tmp_path: Path) -> None:
    disk = FaultyDisk(str(tmp_path))
    log = log_without_idle_descriptors(tmp_path / "t-0", disk)
    await log.flush()
    fill(log, 1)
    assert log.roll_if_due(NOW_MS + 100)
    disk.operations.clear()
    disk.fail_next("open", ".log", code=errno.EMFILE)
    with pytest.raises(StorageError, match="Too many open files"):
        await log.flush()
    assert log.failure is None
    assert log.is_flush_due(NOW_MS + FLUSH_MS)
    assert ("fsync_directory", log.directory) not in disk.operations
    await log.flush()
    assert ("fsync_directory", log.directory) in disk.operations
    assert not log.is_flush_due(NOW_MS + FLUSH_MS)
    log.close()
    assert [path for path in disk._paths.values() if path.endswith(".log")] == []


async def test_a_flush_that_a_full_disk_prevented_stays_due(tmp_path: Path) -> None:
    disk = FaultyDisk(str(tmp_path))
    log = log_without_idle_descriptors(tmp_path / "t-0", disk)
    fill(log, 1)
    disk.fail_next("write", "leader-epoch-checkpoint.tmp", code=errno.ENOSPC)
    with pytest.raises(DiskFull):
        await log.flush()
    assert (log.failure, log.recovery_point) == (None, 0)
    assert log.is_flush_due(NOW_MS + FLUSH_MS)
    await log.flush()
    assert (log.recovery_point, log.is_flush_due(NOW_MS + FLUSH_MS)) == (2, False)
    log.close()


async def test_the_part_of_a_flush_that_a_truncation_leaves_stays_due(tmp_path: Path) -> None:
    disk = FaultyDisk(str(tmp_path))
    log = log_without_idle_descriptors(tmp_path / "t-0", disk)
    fill(log, 3)
    loop, is_truncated = asyncio.get_running_loop(), Event()

    def truncate() -> None:
        log.truncate_to(2)
        is_truncated.set()

    def during_the_flush(operation: str, path: str) -> None:
        if operation == "fdatasync" and path.endswith(".log") and not is_truncated.is_set():
            loop.call_soon_threadsafe(truncate)
            is_truncated.wait()

    disk.before_operation = during_the_flush
    await log.flush()
    assert (log.recovery_point, log.log_end_offset) == (0, 2)
    assert log.is_flush_due(NOW_MS + FLUSH_MS)
    await log.flush()
    assert (log.recovery_point, log.is_flush_due(NOW_MS + FLUSH_MS)) == (2, False)
    log.close()
