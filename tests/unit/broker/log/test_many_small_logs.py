"""Work that a broker with thousands of small partitions avoids: files without information, and
writes at a stop that change nothing.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from broker.log.directories.log_store import LogStore
from broker.settings.core.topic_configs import LogConfig
from runtime.disk import RealDisk
from tests.support.disks.faulty_disk import FaultyDisk
from tests.support.disks.logs_on_disk import NOW_MS, fill, open_log, read_all

ID = bytes(range(16))
CONFIG = LogConfig(file_delete_delay_ms=0)


def _store(path: Path, disk: FaultyDisk | None = None) -> LogStore:
    logs = LogStore([str(path)], disk or RealDisk(), now_ms=lambda: NOW_MS)
    logs.open(node_id=1, cluster_id="c")
    logs.load(lambda _: CONFIG)
    return logs


def _names(path: Path) -> set[str]:
    return set(os.listdir(path))


def test_a_new_partition_is_two_names_and_one_file_of_its_own(tmp_path: Path) -> None:
    logs = _store(tmp_path)
    for partition in range(3):
        logs.open_or_create("t", partition, topic_id=ID, config=CONFIG)
    assert _names(tmp_path / "t-1") == {f"{0:020d}.log", "partition.metadata"}
    assert (tmp_path / "t-2" / "partition.metadata").stat().st_nlink == 3
    logs.abandon()


async def test_partitions_keep_their_topic_id_when_one_that_shared_its_file_goes(tmp_path: Path) -> None:
    logs = _store(tmp_path)
    first, second = (logs.open_or_create("t", partition, topic_id=ID, config=CONFIG) for partition in (0, 1))
    logs.delete(first)
    await logs.remove_due()
    logs.open_or_create("t", 2, topic_id=ID, config=CONFIG)
    second.assign_topic_id(ID)  # replaces the name, not what others see under theirs
    logs.close()
    again = _store(tmp_path)
    assert [again.get("t", partition).topic_id for partition in (1, 2)] == [ID, ID]  # type: ignore[union-attr]
    again.abandon()


def test_a_topic_id_is_written_where_no_second_name_can_be_given(tmp_path: Path) -> None:
    disk = FaultyDisk(str(tmp_path))
    logs = _store(tmp_path, disk)
    logs.open_or_create("t", 0, topic_id=ID, config=CONFIG)
    disk.fail_next("link")
    logs.open_or_create("t", 1, topic_id=ID, config=CONFIG)
    assert (tmp_path / "t-1" / "partition.metadata").stat().st_nlink == 1
    logs.close()
    again = _store(tmp_path)
    assert again.get("t", 1).topic_id == ID  # type: ignore[union-attr]
    again.abandon()


def test_a_small_log_is_found_again_whole_without_indexes_and_snapshot(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", is_clean=True)
    fill(log, 20)
    log.close()
    assert _names(tmp_path / "t-0") == {f"{0:020d}.log", "leader-epoch-checkpoint"}
    again = open_log(tmp_path / "t-0", is_clean=True)
    assert again.recovery.is_clean
    assert (again.log_end_offset, len(read_all(again)), again.latest_epoch) == (40, 20, 0)
    found = again.offset_for_timestamp(NOW_MS + 7)
    assert found is not None
    assert found.offset == 14
    fill(again, 1, first_time_ms=20)
    again.close()


@pytest.mark.parametrize("is_large", [False, True], ids=["small", "large"])
def test_a_stop_after_a_start_without_changes_writes_nothing_into_the_logs(tmp_path: Path, *, is_large: bool) -> None:
    disk = FaultyDisk(str(tmp_path))
    log = open_log(tmp_path / "t-0", disk, is_clean=True, segment_bytes=40_000)
    fill(log, 1000 if is_large else 3)
    log.close()
    again = open_log(tmp_path / "t-0", disk, is_clean=True, segment_bytes=40_000)
    disk.operations.clear()
    again.close()
    assert [operation for operation, _ in disk.operations if operation not in ("open", "read")] == []


def test_a_missing_index_beside_one_that_is_there_is_rebuilt(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", is_clean=True, index_interval_bytes=1)
    fill(log, 700)
    log.close()
    (tmp_path / "t-0" / f"{0:020d}.timeindex").unlink()
    again = open_log(tmp_path / "t-0", is_clean=True, index_interval_bytes=1)
    assert len(again.segments.active.offset_index.entries()) == 699
    again.abandon()


def test_a_stop_flushes_the_names_of_all_new_logs_together(tmp_path: Path) -> None:
    disk = FaultyDisk(str(tmp_path))
    logs = _store(tmp_path, disk)
    for partition in range(3):
        fill(logs.open_or_create("t", partition, topic_id=ID, config=CONFIG), 1)
    disk.operations.clear()
    logs.close()
    flushed = [path for operation, path in disk.operations if operation == "fsync_directory"]
    assert [flushed.count(str(tmp_path / f"t-{partition}")) for partition in range(3)] == [1, 1, 1]
    of_all_names = [index for index, path in enumerate(flushed) if path == str(tmp_path)]
    assert len([index for index in of_all_names if flushed[index - 1].startswith(str(tmp_path / "t-"))]) == 1
    again = _store(tmp_path)
    assert [len(read_all(again.get("t", partition))) for partition in range(3)] == [1, 1, 1]  # type: ignore[arg-type]
    again.abandon()
