"""Slow disk work never blocks the event loop, and work in threads keeps its order."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from broker.log.directories import checkpoints
from broker.log.directories.checkpoints import read_offsets
from broker.log.directories.directory_checkpoints import _OffsetFile
from broker.log.directories.log_store import LogStore
from broker.log.errors import StorageError
from broker.log.partition_log import PartitionLog
from broker.metadata.core.topic_images import PartitionImage, TopicImage
from broker.settings.core.topic_configs import LogConfig
from runtime.disk import Disk, RealDisk
from tests.support.disks.faulty_disk import FaultyDisk
from tests.support.disks.log_batches import batch
from tests.support.disks.logs_on_disk import NOW_MS, config, data_records, fill
from tests.support.disks.thread_noting_disk import ThreadNotingDisk
from tests.support.eventually import eventually
from wire.protocol.ids import TopicPartition

ID, OTHER_ID = bytes(range(16)), bytes(range(1, 17))
KEY = TopicPartition("t", 0)


def opened(path: Path, disk: Disk, now: list[int] | None = None) -> LogStore:
    logs = LogStore([str(path)], disk, now_ms=lambda: now[0] if now else NOW_MS)
    logs.open(node_id=1, cluster_id="c")
    logs.load(lambda _: LogConfig())
    return logs


def create(logs: LogStore, topic: str = "t", partition: int = 0, **fields: object) -> PartitionLog:
    return logs.open_or_create(topic, partition, topic_id=ID, config=config(**fields))


def image(topic_id: bytes = ID, partitions: int = 1) -> TopicImage:
    one = PartitionImage(index=0, replicas=(1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0)
    return TopicImage(
        name="t", topic_id=topic_id, partitions={n: replace(one, index=n) for n in range(partitions)}, configs={}
    )


def directories(path: Path) -> list[str]:
    return [entry.name for entry in os.scandir(path) if entry.is_dir()]


async def test_checkpoints_deletion_and_creation_leave_the_loop_free(tmp_path: Path) -> None:
    disk, now = ThreadNotingDisk(), [NOW_MS]
    logs = opened(tmp_path, disk, now)
    disk.on_loop.clear()
    made = [create(logs, partition=number, file_delete_delay_ms=1000) for number in range(20)]
    for log in made:
        fill(log, 3)
        log.advance_high_watermark(6)
    await logs.flush_due()
    await logs.checkpoint()
    await logs.checkpoint_high_watermarks()
    made[0].advance_log_start_offset(2)
    await logs.checkpoint_log_start_offsets()
    for log in made:
        logs.delete(log)
    await logs.make_way([image(OTHER_ID, 20)], node_id=1)
    again = logs.open_or_create("t", 0, topic_id=OTHER_ID, config=LogConfig())
    assert again.log_end_offset == 0
    now[0] += 1000
    await logs.remove_due()
    assert directories(tmp_path) == ["t-0"]
    assert disk.on_loop == []
    await asyncio.to_thread(logs.close)


async def test_the_topic_id_of_an_old_log_is_written_without_holding_the_loop(tmp_path: Path) -> None:
    logs = opened(tmp_path, RealDisk())
    fill(create(logs), 3)
    logs.close()
    (tmp_path / "t-0" / checkpoints.PARTITION_METADATA).unlink()
    disk = ThreadNotingDisk()
    again = opened(tmp_path, disk)
    disk.on_loop.clear()
    await again.make_way([image()], node_id=1)
    log = again.open_or_create("t", 0, topic_id=ID, config=LogConfig())
    assert (log.topic_id, log.log_end_offset) == (ID, 6)
    assert disk.on_loop == []
    await asyncio.to_thread(again.close)
    found = opened(tmp_path, RealDisk()).get("t", 0)
    assert found is not None
    assert found.topic_id == ID


async def test_retention_leaves_the_loop_free(tmp_path: Path) -> None:
    disk, now = ThreadNotingDisk(), [NOW_MS]
    logs = opened(tmp_path, disk, now)
    log = create(logs, segment_bytes=500, retention_bytes=1000, file_delete_delay_ms=10)
    disk.on_loop.clear()
    fill(log, 50)
    log.advance_high_watermark(log.log_end_offset)
    assert await logs.maintain(10**9)
    now[0] += 10
    await logs.remove_due()
    assert {operation for operation, _ in disk.in_threads} >= {"rename", "unlink", "fsync"}
    assert disk.on_loop == []
    assert not [name for name in os.listdir(tmp_path / "t-0") if name.endswith(".deleted")]
    await asyncio.to_thread(logs.close)


async def test_compaction_leaves_the_loop_free_and_readers_see_whole_records_at_every_step(tmp_path: Path) -> None:
    disk = ThreadNotingDisk()
    logs = opened(tmp_path, disk)
    log = create(logs, is_compacted=True, is_deleted=False, segment_bytes=1000)
    for number in range(100):
        records = batch([(b"k%d" % (number % 4), b"v%d" % number)], timestamp_ms=NOW_MS)
        log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    await log.flush()
    expected = {record.key: record.value for record in data_records(log)}
    disk.on_loop.clear()
    compacting = asyncio.create_task(logs.compact())
    looks = 0
    while not compacting.done():
        found = {record.key: record.value for record in data_records(log)}
        assert found == expected
        looks += 1
        await asyncio.sleep(0)
    assert "compacted up to" in (await compacting)[0]
    assert looks > 1
    assert disk.on_loop == []
    assert not [name for name in os.listdir(tmp_path / "t-0") if name.endswith((".swap", ".cleaned"))]
    await asyncio.to_thread(logs.close)
    assert {r.key: r.value for r in data_records(opened(tmp_path, RealDisk()).get("t", 0))} == expected


async def test_a_log_that_is_cut_while_a_segment_is_swapped_in_finishes_the_swap_first(tmp_path: Path) -> None:
    disk = ThreadNotingDisk()
    logs = opened(tmp_path, disk)
    log = create(logs, is_compacted=True, is_deleted=False, segment_bytes=1000)
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
    assert len(data_records(opened(tmp_path, RealDisk()).get("t", 0))) == len(data_records(log))


async def test_a_truncation_waits_for_the_segment_that_is_swapped_in_and_leaves_the_loop_free(tmp_path: Path) -> None:
    disk = ThreadNotingDisk()
    logs = opened(tmp_path, disk)
    log = create(logs, is_compacted=True, is_deleted=False, segment_bytes=1000)
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
    again = opened(tmp_path, RealDisk()).get("t", 0)
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
    again = opened(tmp_path, RealDisk()).get("t", 0)
    assert again is not None
    assert (again.log_start_offset, again.log_end_offset, len(data_records(again))) == (offset, offset + 6, 6)


def cut_log(path: Path, disk: Disk) -> tuple[LogStore, PartitionLog]:
    """A log of 40 offsets in segments of 4 or so, all of it flushed and in the checkpoints."""
    logs = opened(path, disk)
    log = create(logs, segment_bytes=300)
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
    again = opened(tmp_path, RealDisk()).get("t", 0)
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
    again = opened(tmp_path, RealDisk())
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
    again = opened(tmp_path, RealDisk()).get("t", 0)
    assert again is not None
    assert (again.log_end_offset, again.latest_epoch, len(data_records(again))) == (30, 2, 30)


async def test_a_flush_after_a_truncation_renames_the_files_first(tmp_path: Path) -> None:
    logs, log = cut_log(tmp_path, ThreadNotingDisk())
    async with log.truncation(11):
        log.truncate_to(11)
        await log.flush()
        assert not log.removals.needs_settling
    logs.abandon()


@pytest.mark.parametrize("work", ["flush", "retention"])
async def test_work_under_way_for_a_deleted_log_leaves_the_log_alone_that_is_made_under_its_name(
    tmp_path: Path, work: str
) -> None:
    disk = ThreadNotingDisk()
    logs = opened(tmp_path, disk)
    log = create(logs, segment_bytes=300, retention_bytes=400)
    fill(log, 20, leader_epoch=7)
    log.advance_high_watermark(40)

    async def do_work() -> None:
        if work == "flush":
            await logs.flush_due()
            with pytest.raises(StorageError, match="deleted"):
                await log.flush()
        else:
            await logs.maintain(10**9)

    async def make_again() -> PartitionLog:
        await logs.make_way([image(OTHER_ID)], node_id=1)
        made = logs.open_or_create("t", 0, topic_id=OTHER_ID, config=LogConfig())
        fill(made, 2, leader_epoch=0)
        return made

    disk.gate.clear()
    working = asyncio.create_task(do_work())
    await eventually(lambda: bool(disk.in_threads))
    logs.delete(log)
    making = asyncio.create_task(make_again())
    # if nothing delays the new log, it exists when the old one's work continues
    await asyncio.wait([making], timeout=0.2)
    disk.gate.set()
    await asyncio.gather(working, making)
    assert sorted(os.listdir(tmp_path / "t-0")) == [f"{0:020d}.log", "partition.metadata"]
    logs.abandon()
    again = opened(tmp_path, RealDisk()).get("t", 0)
    assert again is not None
    assert (again.log_end_offset, again.latest_epoch) == (4, 0)


async def test_a_deleted_topic_of_hundreds_of_partitions_is_gone_after_its_delay(tmp_path: Path) -> None:
    now = [NOW_MS]
    logs = opened(tmp_path, RealDisk(), now)
    made = [create(logs, partition=number) for number in range(400)]
    for log in made[:3]:
        fill(log, 40)
    for log in made:
        logs.delete(log)
    await logs.remove_due()
    assert len(directories(tmp_path)) == 400
    assert all(name.endswith("-delete") for name in directories(tmp_path))
    now[0] += LogConfig().file_delete_delay_ms - 1
    await logs.remove_due()
    assert len(directories(tmp_path)) == 400
    now[0] += 1
    await logs.remove_due()
    assert directories(tmp_path) == []
    logs.close()


async def test_a_directory_that_cannot_be_removed_keeps_no_other(tmp_path: Path) -> None:
    disk = FaultyDisk(str(tmp_path))
    logs = opened(tmp_path, disk)
    for number in range(3):
        logs.delete(create(logs, partition=number, file_delete_delay_ms=0))
    disk.fail_next("remove_directory", "-delete", code=1)
    with pytest.raises(StorageError):
        await logs.remove_due()
    assert list(logs.offline) == [str(tmp_path)]


def test_what_a_stop_finds_undone_is_renamed_and_gone_at_the_next_start(tmp_path: Path) -> None:
    logs = opened(tmp_path, RealDisk())
    logs.delete(create(logs))
    assert directories(tmp_path) == ["t-0"]
    logs.close()
    assert [name.endswith("-delete") for name in directories(tmp_path)] == [True]
    again = opened(tmp_path, RealDisk())
    assert directories(tmp_path) == []
    again.close()


def test_what_was_collected_earlier_never_replaces_what_was_collected_later(tmp_path: Path) -> None:
    file = _OffsetFile(RealDisk(), f"{tmp_path}/f", lambda log: log.recovery_point)
    earlier, later = file.begin(), file.begin()
    earlier.offsets[KEY], later.offsets[KEY] = 9, 4
    file.write(later)
    file.write(earlier)
    assert read_offsets(RealDisk(), f"{tmp_path}/f") == {KEY: 4}
    assert file.lines == {KEY: 4}


async def test_a_checkpoint_that_is_cancelled_ends_with_its_write(tmp_path: Path) -> None:
    disk = ThreadNotingDisk()
    logs = opened(tmp_path, disk)
    create(logs)
    disk.gate.clear()
    saving = asyncio.create_task(logs.checkpoint_high_watermarks())
    await eventually(lambda: bool(disk.in_threads))
    saving.cancel()
    await asyncio.sleep(0)
    saving.cancel()
    assert (await asyncio.wait([saving], timeout=0.05))[0] == set()
    disk.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await saving
    assert read_offsets(RealDisk(), f"{tmp_path}/{checkpoints.HIGH_WATERMARKS}") == {KEY: 0}
    await asyncio.to_thread(logs.close)


async def test_a_flush_that_is_cancelled_ends_with_its_thread(tmp_path: Path) -> None:
    disk = ThreadNotingDisk()
    logs = opened(tmp_path, disk)
    log = create(logs)
    fill(log, 1)
    disk.gate.clear()
    flushing = asyncio.create_task(log.flush())
    await eventually(lambda: bool(disk.in_threads))
    flushing.cancel()
    assert (await asyncio.wait([flushing], timeout=0.05))[0] == set()
    disk.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await flushing
    await asyncio.to_thread(logs.close)
    assert opened(tmp_path, RealDisk()).get("t", 0).log_end_offset == 2  # type: ignore[union-attr]


async def test_all_who_ask_while_a_checkpoint_is_written_share_the_next(tmp_path: Path) -> None:
    disk = ThreadNotingDisk()
    logs = opened(tmp_path, disk)
    log = create(logs)
    fill(log, 10)
    log.advance_high_watermark(20)
    disk.gate.clear()
    asking = [asyncio.create_task(logs.checkpoint_log_start_offsets())]
    await eventually(lambda: bool(disk.in_threads))
    for offset in range(1, 9):
        log.advance_log_start_offset(offset)
        asking.append(asyncio.create_task(logs.checkpoint_log_start_offsets()))
    await asyncio.sleep(0)
    disk.gate.set()
    await asyncio.gather(*asking)
    path = f"{tmp_path}/{checkpoints.LOG_START_OFFSETS}"
    assert read_offsets(RealDisk(), path) == {KEY: 8}
    assert disk.in_threads.count(("fdatasync", f"{path}.tmp")) == 2
    await asyncio.to_thread(logs.close)


async def test_a_new_log_does_not_inherit_from_a_checkpoint_that_was_under_way_when_the_old_one_was_deleted(
    tmp_path: Path,
) -> None:
    disk = ThreadNotingDisk()
    logs = opened(tmp_path, disk)
    log = create(logs)
    fill(log, 10)
    log.advance_high_watermark(20)
    log.advance_log_start_offset(9)
    disk.gate.clear()
    saving = asyncio.create_task(logs.checkpoint_log_start_offsets())
    await eventually(lambda: bool(disk.in_threads))
    logs.delete(log)
    making = asyncio.create_task(logs.make_way([image(OTHER_ID)], node_id=1))
    await asyncio.sleep(0)
    disk.gate.set()
    await asyncio.gather(saving, making)
    fill(logs.open_or_create("t", 0, topic_id=OTHER_ID, config=LogConfig()), 2)
    logs.abandon()
    again = opened(tmp_path, RealDisk())
    found = again.get("t", 0)
    assert found is not None
    assert (found.log_start_offset, found.log_end_offset) == (0, 4)
    again.close()


@pytest.mark.parametrize("operation", ["rename", "fdatasync"])
async def test_a_disk_that_fails_before_a_log_is_made_takes_its_directory_offline(
    tmp_path: Path, operation: str
) -> None:
    disk = FaultyDisk(str(tmp_path))
    logs = opened(tmp_path, disk)
    fill(create(logs), 3)
    await logs.checkpoint()
    log = logs.get("t", 0)
    assert log is not None
    logs.delete(log)
    disk.fail_next(operation)
    await logs.make_way([image(OTHER_ID)], node_id=1)
    assert list(logs.offline) == [str(tmp_path)]
