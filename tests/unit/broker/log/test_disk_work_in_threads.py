"""Slow disk work never blocks the event loop, and work in threads keeps its order."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from msgspec.structs import replace

from broker.log.directories import checkpoints
from broker.log.directories.checkpoints import read_offsets
from broker.log.directories.directory_checkpoints import _OffsetFile
from broker.log.errors import StorageError
from broker.log.partition_log import PartitionLog
from broker.metadata.core.topic_images import PartitionImage, TopicImage
from broker.settings.core.topic_configs import LogConfig
from runtime.disk import RealDisk
from tests.support.disks.faulty_disk import FaultyDisk
from tests.support.disks.log_batches import batch
from tests.support.disks.log_stores import ID, KEY, create_log, open_store
from tests.support.disks.logs_on_disk import NOW_MS, data_records, fill
from tests.support.disks.thread_noting_disk import ThreadNotingDisk
from tests.support.eventually import eventually

OTHER_ID = bytes(range(1, 17))


def image(topic_id: bytes = ID, partitions: int = 1) -> TopicImage:
    one = PartitionImage(index=0, replicas=(1,), isr=(1,), leader=1, leader_epoch=0, partition_epoch=0)
    return TopicImage(
        name="t", topic_id=topic_id, partitions={n: replace(one, index=n) for n in range(partitions)}, configs={}
    )


def directories(path: Path) -> list[str]:
    return [entry.name for entry in os.scandir(path) if entry.is_dir()]


async def test_checkpoints_deletion_and_creation_leave_the_loop_free(tmp_path: Path) -> None:
    disk, now = ThreadNotingDisk(), [NOW_MS]
    logs = open_store(tmp_path, disk, now)
    disk.on_loop.clear()
    made = [create_log(logs, partition=number, file_delete_delay_ms=1000) for number in range(20)]
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
    logs = open_store(tmp_path, RealDisk())
    fill(create_log(logs), 3)
    logs.close()
    (tmp_path / "t-0" / checkpoints.PARTITION_METADATA).unlink()
    disk = ThreadNotingDisk()
    again = open_store(tmp_path, disk)
    disk.on_loop.clear()
    await again.make_way([image()], node_id=1)
    log = again.open_or_create("t", 0, topic_id=ID, config=LogConfig())
    assert (log.topic_id, log.log_end_offset) == (ID, 6)
    assert disk.on_loop == []
    await asyncio.to_thread(again.close)
    found = open_store(tmp_path, RealDisk()).get("t", 0)
    assert found is not None
    assert found.topic_id == ID


async def test_retention_leaves_the_loop_free(tmp_path: Path) -> None:
    disk, now = ThreadNotingDisk(), [NOW_MS]
    logs = open_store(tmp_path, disk, now)
    log = create_log(logs, segment_bytes=500, retention_bytes=1000, file_delete_delay_ms=10)
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
    logs = open_store(tmp_path, disk)
    log = create_log(logs, is_compacted=True, is_deleted=False, segment_bytes=1000)
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
    assert {r.key: r.value for r in data_records(open_store(tmp_path, RealDisk()).get("t", 0))} == expected


@pytest.mark.parametrize("work", ["flush", "retention"])
async def test_work_under_way_for_a_deleted_log_leaves_the_log_alone_that_is_made_under_its_name(
    tmp_path: Path, work: str
) -> None:
    disk = ThreadNotingDisk()
    logs = open_store(tmp_path, disk)
    log = create_log(logs, segment_bytes=300, retention_bytes=400)
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
    again = open_store(tmp_path, RealDisk()).get("t", 0)
    assert again is not None
    assert (again.log_end_offset, again.latest_epoch) == (4, 0)


async def test_a_deleted_topic_of_hundreds_of_partitions_is_gone_after_its_delay(tmp_path: Path) -> None:
    now = [NOW_MS]
    logs = open_store(tmp_path, RealDisk(), now)
    made = [create_log(logs, partition=number) for number in range(400)]
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
    logs = open_store(tmp_path, disk)
    for number in range(3):
        logs.delete(create_log(logs, partition=number, file_delete_delay_ms=0))
    disk.fail_next("remove_directory", "-delete", code=1)
    with pytest.raises(StorageError):
        await logs.remove_due()
    assert list(logs.offline) == [str(tmp_path)]


def test_a_log_whose_deletion_a_stop_interrupts_is_renamed_and_gone_at_the_next_start(tmp_path: Path) -> None:
    logs = open_store(tmp_path, RealDisk())
    logs.delete(create_log(logs))
    assert directories(tmp_path) == ["t-0"]
    logs.close()
    assert [name.endswith("-delete") for name in directories(tmp_path)] == [True]
    again = open_store(tmp_path, RealDisk())
    assert directories(tmp_path) == []
    again.close()


def test_offsets_collected_earlier_never_replace_offsets_collected_later(tmp_path: Path) -> None:
    file = _OffsetFile(RealDisk(), f"{tmp_path}/f", lambda log: log.recovery_point)
    earlier, later = file.begin(), file.begin()
    earlier.offsets[KEY], later.offsets[KEY] = 9, 4
    file.write(later)
    file.write(earlier)
    assert read_offsets(RealDisk(), f"{tmp_path}/f") == {KEY: 4}
    assert file.lines == {KEY: 4}


async def test_a_checkpoint_that_is_cancelled_ends_with_its_write(tmp_path: Path) -> None:
    disk = ThreadNotingDisk()
    logs = open_store(tmp_path, disk)
    create_log(logs)
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
    logs = open_store(tmp_path, disk)
    log = create_log(logs)
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
    assert open_store(tmp_path, RealDisk()).get("t", 0).log_end_offset == 2  # type: ignore[union-attr]


async def test_all_who_ask_while_a_checkpoint_is_written_share_the_next(tmp_path: Path) -> None:
    disk = ThreadNotingDisk()
    logs = open_store(tmp_path, disk)
    log = create_log(logs)
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
    logs = open_store(tmp_path, disk)
    log = create_log(logs)
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
    again = open_store(tmp_path, RealDisk())
    found = again.get("t", 0)
    assert found is not None
    assert (found.log_start_offset, found.log_end_offset) == (0, 4)
    again.close()


@pytest.mark.parametrize("operation", ["rename", "fdatasync"])
async def test_a_disk_that_fails_before_a_log_is_made_takes_its_directory_offline(
    tmp_path: Path, operation: str
) -> None:
    disk = FaultyDisk(str(tmp_path))
    logs = open_store(tmp_path, disk)
    fill(create_log(logs), 3)
    await logs.checkpoint()
    log = logs.get("t", 0)
    assert log is not None
    logs.delete(log)
    disk.fail_next(operation)
    await logs.make_way([image(OTHER_ID)], node_id=1)
    assert list(logs.offline) == [str(tmp_path)]
