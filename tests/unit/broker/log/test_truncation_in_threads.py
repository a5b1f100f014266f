"""Truncations whose disk work runs in threads: the loop stays free, and a crash at any step leaves
the log as before or as after.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from broker.log.directories import checkpoints
from broker.log.directories.checkpoints import read_offsets
from broker.log.directories.log_store import LogStore
from broker.log.partition_log import PartitionLog
from runtime.disk import Disk, RealDisk
from tests.support.disks.log_batches import batch
from tests.support.disks.log_stores import KEY, create_log, open_store
from tests.support.disks.logs_on_disk import NOW_MS, data_records, fill
from tests.support.disks.thread_noting_disk import ThreadNotingDisk
from tests.support.eventually import eventually


async def test_a_log_that_is_cut_while_a_segment_is_swapped_in_finishes_the_swap_first(tmp_path: Path) -> None:
    disk = ThreadNotingDisk()
    logs = open_store(tmp_path, disk)
    log = create_log(logs, is_compacted=True, is_deleted=False, segment_bytes=1000)
    for number in range(100):
        records = batch([(b"k%d" % (number % 4), b"v%d" % number)], timestamp_ms=NOW_MS)
        log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    await log.flush()
    disk.rename_gate.clear()
    compacting = asyncio.create_task(logs.compact())
    await eventually(lambda: log.swaps.is_under_way)
    disk.rename_gate.set()  # the truncation waits for the thread
    log.truncate_fully_and_start_at(0)
    await compacting
    assert not [name for name in os.listdir(tmp_path / "t-0") if name.endswith((".swap", ".cleaned"))]
    assert (log.log_end_offset, log.compacted_to) == (0, 0)
    log.append_as_leader(batch([(b"k", b"new")], timestamp_ms=NOW_MS), leader_epoch=0, now_ms=NOW_MS)
    logs.abandon()
    assert len(data_records(open_store(tmp_path, RealDisk()).get("t", 0))) == len(data_records(log))


async def test_a_truncation_waits_for_the_segment_that_is_swapped_in_and_leaves_the_loop_free(tmp_path: Path) -> None:
    disk = ThreadNotingDisk()
    logs = open_store(tmp_path, disk)
    log = create_log(logs, is_compacted=True, is_deleted=False, segment_bytes=1000)
    for number in range(200):
        # each segment has keys of its own: none is merged with another
        records = batch([(b"k%d" % (number % 4 + number // 9 * 4), b"v%d" % number)], timestamp_ms=NOW_MS)
        log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    await log.flush()
    disk.on_loop.clear()
    disk.rename_gate.clear()
    compacting = asyncio.create_task(logs.compact())
    await eventually(lambda: log.swaps.is_under_way)

    async def truncate() -> None:
        async with log.truncation(150):
            log.truncate_to(150)

    truncating = asyncio.create_task(truncate())
    assert (await asyncio.wait([truncating], timeout=0.05))[0] == set()
    assert log.log_end_offset == 200
    disk.rename_gate.set()
    await asyncio.gather(truncating, compacting)
    assert disk.on_loop == []
    assert log.log_end_offset == 150
    assert not [name for name in os.listdir(tmp_path / "t-0") if name.endswith((".swap", ".cleaned"))]
    before = [(record.key, record.value) for record in data_records(log)]
    logs.abandon()
    again = open_store(tmp_path, RealDisk()).get("t", 0)
    assert again is not None
    assert [(record.key, record.value) for record in data_records(again)] == before


def segment_starts(path: Path) -> list[int]:
    return sorted(int(name[:-4]) for name in os.listdir(path / "t-0") if name.endswith(".log"))


@pytest.mark.parametrize("which", [0, 3, -1])
async def test_a_restart_where_a_segment_begins_leaves_the_loop_free(tmp_path: Path, which: int) -> None:
    disk = ThreadNotingDisk()
    logs, log = cut_log(tmp_path, disk)
    offset = segment_starts(tmp_path)[which]
    disk.on_loop.clear()
    async with log.truncation(offset):
        log.truncate_fully_and_start_at(offset)
        assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (offset, offset, 0)
    assert disk.on_loop == []
    assert segment_starts(tmp_path) == [offset]
    fill(log, 3, leader_epoch=2)
    assert disk.on_loop == []
    logs.abandon()
    again = open_store(tmp_path, RealDisk()).get("t", 0)
    assert again is not None
    assert (again.log_start_offset, again.log_end_offset, len(data_records(again))) == (offset, offset + 6, 6)


def cut_log(path: Path, disk: Disk) -> tuple[LogStore, PartitionLog]:
    """A log of 40 offsets in segments of 4 or so, all of it flushed and in the checkpoints."""
    logs = open_store(path, disk)
    log = create_log(logs, segment_bytes=300)
    fill(log, 20, leader_epoch=1)
    log.advance_high_watermark(40)
    log.flush_now()
    logs.directories[0].checkpoint_now()
    return logs, log


def saved_recovery_point(path: Path) -> int:
    return read_offsets(RealDisk(), f"{path}/{checkpoints.RECOVERY_POINTS}")[KEY]


@pytest.mark.parametrize("offset", [0, 1, 11, 36, 39, 100])
async def test_a_truncation_leaves_the_loop_free(tmp_path: Path, offset: int) -> None:
    disk = ThreadNotingDisk()
    logs, log = cut_log(tmp_path, disk)
    disk.on_loop.clear()
    async with log.truncation(offset):
        if offset < 40:
            log.truncate_to(offset)
        else:
            log.truncate_fully_and_start_at(offset)
    assert disk.on_loop == []
    end = offset if offset >= 40 else offset // 2 * 2
    assert log.log_end_offset == end
    fill(log, 3, leader_epoch=2)
    assert disk.on_loop == []
    logs.abandon()
    again = open_store(tmp_path, RealDisk()).get("t", 0)
    assert again is not None
    assert again.log_end_offset == end + 6
    assert len(data_records(again)) == end + 6 - again.log_start_offset


async def test_a_flush_and_a_checkpoint_do_not_raise_the_recovery_point_that_a_truncation_lowered(
    tmp_path: Path,
) -> None:
    logs, log = cut_log(tmp_path, ThreadNotingDisk())
    async with log.truncation(11):
        assert saved_recovery_point(tmp_path) <= 10
        fill(log, 1, leader_epoch=1)
        await log.flush()
        await logs.checkpoint()
        assert log.recovery_point == 42
        assert saved_recovery_point(tmp_path) <= 10
        log.truncate_to(11)
    await log.flush()
    await logs.checkpoint()
    assert saved_recovery_point(tmp_path) == 10
    logs.abandon()


async def test_a_truncation_that_is_given_up_changes_nothing(tmp_path: Path) -> None:
    logs, log = cut_log(tmp_path, ThreadNotingDisk())
    async with log.truncation(11):
        pass
    assert (log.log_end_offset, log.recovery_point) == (40, 40)
    await logs.checkpoint()
    assert saved_recovery_point(tmp_path) == 40
    logs.abandon()


@pytest.mark.parametrize("restart_at", [None, 12, 100])
async def test_a_crash_between_the_steps_of_a_truncation_leaves_the_log_as_before_or_as_after(
    tmp_path: Path, restart_at: int | None
) -> None:
    logs, log = cut_log(tmp_path, ThreadNotingDisk())
    async with log.truncation(11 if restart_at is None else restart_at):
        if restart_at is None:
            log.truncate_to(11)
        else:
            log.truncate_fully_and_start_at(restart_at)
        logs.abandon()
    again = open_store(tmp_path, RealDisk())
    found = again.get("t", 0)
    assert found is not None
    assert found.log_end_offset in ({10, 40} if restart_at is None else {restart_at, 40})
    assert all(record.value is not None for record in data_records(found))
    assert len(data_records(found)) == found.log_end_offset - found.log_start_offset
    again.close()


async def test_an_append_before_the_files_are_renamed_renames_them_first(tmp_path: Path) -> None:
    disk = ThreadNotingDisk()
    logs, log = cut_log(tmp_path, disk)
    async with log.truncation(11):
        log.truncate_to(11)
        assert log.removals.needs_settling
        fill(log, 10, leader_epoch=2)
        assert not log.removals.needs_settling
    await log.flush()
    await logs.checkpoint()
    logs.abandon()
    again = open_store(tmp_path, RealDisk()).get("t", 0)
    assert again is not None
    assert (again.log_end_offset, again.latest_epoch, len(data_records(again))) == (30, 2, 30)


async def test_a_flush_after_a_truncation_renames_the_files_first(tmp_path: Path) -> None:
    logs, log = cut_log(tmp_path, ThreadNotingDisk())
    async with log.truncation(11):
        log.truncate_to(11)
        await log.flush()
        assert not log.removals.needs_settling
    logs.abandon()
