"""Several log directories: the directory of a new log, and a disk that fails."""

import asyncio
import errno
import os
import shutil

import pytest

from broker.log.errors import DirectoryOffline, StorageError
from runtime.disk import RealDisk
from tests.support.disks.faulty_disk import FaultyDisk
from tests.support.disks.logs_on_disk import fill
from tests.support.disks.two_directories import create, filled, opened
from wire.protocol.ids import TopicPartition


def test_a_nearly_full_directory_gets_no_new_log(tmp_path):
    class Uneven(RealDisk):
        def capacity_bytes(self, path):
            return 1000

        def free_bytes(self, path):
            return 40 if path.endswith("/a") else 60

    logs = opened(tmp_path, Uneven())
    homes = {os.path.basename(logs.home_of(create(logs, partition))) for partition in range(4)}
    assert homes == {"b"}
    logs.close()


def test_a_failed_disk_takes_only_its_partitions_away(tmp_path):
    disk = FaultyDisk(str(tmp_path))
    logs = opened(tmp_path, disk)
    first, second = filled(logs, 0), filled(logs, 1)
    assert os.path.dirname(first.directory) != os.path.dirname(second.directory)
    disk.fail_next("write", ".log")
    with pytest.raises(StorageError) as raised:
        fill(first, 1, leader_epoch=3)
    logs.note_failure(raised.value)
    (failure,) = logs.failures
    assert failure.partitions == (TopicPartition("t", 0),)
    assert logs.offline == {os.path.dirname(first.directory): failure.reason}
    assert logs.get("t", 0) is None
    assert logs.is_offline("t", 0)
    fill(second, 1, leader_epoch=3)
    with pytest.raises(DirectoryOffline):
        create(logs, 0)
    with pytest.raises(DirectoryOffline):
        create(logs, 7, is_new=False)
    create(logs, 8)
    asyncio.run(logs.checkpoint())
    logs.close()


def test_a_full_disk_takes_no_directory_offline(tmp_path):
    disk = FaultyDisk(str(tmp_path))
    logs = opened(tmp_path, disk)
    log = filled(logs)
    disk.fail_next("write", ".log", code=errno.ENOSPC)
    with pytest.raises(StorageError) as raised:
        fill(log, 1, leader_epoch=3)
    logs.note_failure(raised.value)
    assert logs.offline == {}
    logs.close()


async def test_a_failure_that_a_flush_met_takes_the_directory_offline(tmp_path):
    disk = FaultyDisk(str(tmp_path))
    logs = opened(tmp_path, disk)
    log = filled(logs)
    disk.fail_next("fdatasync", ".log")
    with pytest.raises(StorageError):
        await log.flush()
    await logs.flush_due()
    assert list(logs.offline) == [os.path.dirname(log.directory)]
    logs.abandon()


def test_a_directory_that_cannot_be_opened_at_a_start_is_left_out_but_not_the_last(tmp_path):
    (tmp_path / "a").write_text("no directory")
    logs = opened(tmp_path)
    assert list(logs.offline) == [f"{tmp_path}/a"]
    assert logs.home_of(create(logs)) == f"{tmp_path}/b"
    logs.close()
    shutil.rmtree(tmp_path / "b")
    (tmp_path / "b").write_text("no directory")
    with pytest.raises(StorageError):
        opened(tmp_path)


def test_a_directory_that_fails_while_logs_are_loaded_is_left_out(tmp_path):
    logs = opened(tmp_path)
    homes = {logs.home_of(filled(logs, partition)) for partition in range(2)}
    assert len(homes) == 2
    logs.abandon()
    disk = FaultyDisk(str(tmp_path))
    disk.fail_next("open", "t-0/00000000000000000000.log")
    again = opened(tmp_path, disk)
    assert len(again.offline) == 1
    assert [log.partition for log in again] == [1]
    again.abandon()
