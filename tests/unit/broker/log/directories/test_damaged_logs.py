"""A log that is too damaged to be opened takes its own partition offline, and no other one."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from broker.log.directories.log_store import LogStore
from broker.log.errors import CorruptLog
from broker.log.partition_log import PartitionLog
from runtime.disk import RealDisk
from tests.support.disks.log_stores import create_log, open_store
from tests.support.disks.logs_on_disk import fill, read_all

MAGIC_AT = 16


def _damage(path: Path) -> bytes:
    """Damage the first header of the segment, and remove the index that a start would use instead
    of it; return the content before.
    """
    before = path.read_bytes()
    content = bytearray(before)
    content[MAGIC_AT] = 9
    path.write_bytes(content)
    path.with_suffix(".index").unlink()
    return before


def _first_segment(path: Path) -> Path:
    return min((path / "t-0").glob("*.log"))


def _log(logs: LogStore) -> PartitionLog:
    log = logs.get("t", 0)
    assert log is not None
    return log


def test_a_damaged_header_without_an_index_keeps_no_other_log_from_opening(tmp_path: Path) -> None:
    logs = open_store(tmp_path, RealDisk())
    for partition in range(2):
        fill(create_log(logs, partition=partition, segment_bytes=400), 20)
    logs.close()
    first = _first_segment(tmp_path)
    _damage(first)
    content = first.read_bytes()

    logs = open_store(tmp_path, RealDisk())
    assert logs.is_offline("t", 0)
    assert logs.offline_count == 1
    whole = logs.get("t", 1)
    assert whole is not None
    assert len(read_all(whole)) == 20
    assert any("t-0 is offline, because its log is damaged" in note for note in logs.notes)
    # nothing takes its place, also under another topic id
    with pytest.raises(CorruptLog):
        create_log(logs)
    assert first.read_bytes() == content
    logs.close()


def test_a_log_that_cannot_be_opened_keeps_its_checkpoints_for_its_repair(tmp_path: Path) -> None:
    logs = open_store(tmp_path, RealDisk())
    log = create_log(logs, segment_bytes=400)
    fill(log, 20)
    log.advance_high_watermark(30)
    # records 0 and 1 are deleted, their segment has others
    log.advance_log_start_offset(2)
    logs.close()
    first = _first_segment(tmp_path)
    whole = _damage(first)

    logs = open_store(tmp_path, RealDisk())
    assert logs.is_offline("t", 0)
    asyncio.run(logs.checkpoint())
    logs.close()

    first.write_bytes(whole)
    logs = open_store(tmp_path, RealDisk())
    assert _log(logs).log_start_offset == 2
    assert _log(logs).high_watermark == 30
    logs.close()


def test_a_clean_stop_spares_a_log_that_was_not_opened_after_a_crash_no_check(tmp_path: Path) -> None:
    logs = open_store(tmp_path, RealDisk())
    log = create_log(logs, segment_bytes=400)
    fill(log, 18)
    asyncio.run(log.flush())
    asyncio.run(logs.checkpoint())
    fill(log, 2)
    logs.abandon()
    first, last = _first_segment(tmp_path), max((tmp_path / "t-0").glob("*.log"))
    whole = _damage(first)
    # what the crash left of the last batch
    with last.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\xff")

    logs = open_store(tmp_path, RealDisk())
    assert logs.is_offline("t", 0)
    logs.close()

    first.write_bytes(whole)
    logs = open_store(tmp_path, RealDisk())
    assert _log(logs).log_end_offset == 38
    logs.close()


def test_a_log_that_cannot_be_opened_keeps_no_file_open(tmp_path: Path) -> None:
    logs = open_store(tmp_path, RealDisk())
    fill(create_log(logs, segment_bytes=400), 20)
    logs.close()
    _damage(_first_segment(tmp_path))

    logs = open_store(tmp_path, RealDisk())
    assert logs.is_offline("t", 0)
    descriptors = Path("/proc/self/fd")
    targets = [os.readlink(entry) for entry in descriptors.iterdir() if entry.is_symlink() and entry.exists()]
    assert [target for target in targets if target.startswith(f"{tmp_path}/t-0/")] == []
    logs.close()
