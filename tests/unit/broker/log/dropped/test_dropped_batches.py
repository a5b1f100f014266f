"""What recovery drops behind a damaged batch is counted, and its sound batches are kept."""

from __future__ import annotations

import os
from pathlib import Path

from broker.log.partition_log import PartitionLog
from tests.support.disks.log_batches import batch
from tests.support.disks.logs_on_disk import NOW_MS, open_log
from wire.batches.records import decode_records

ROOM = 1 << 20


def values(path: Path) -> list[bytes | None]:
    return [record.value for record in decode_records(path.read_bytes())]


def crashed(folder: Path, *, damaged: int, segment_bytes: int = 1 << 20) -> None:
    """A log of eight batches, left as by kill -9, of which one is damaged."""
    log = open_log(folder, segment_bytes=segment_bytes)
    for number in range(8):
        log.append_as_leader(batch([b"%d" % number], timestamp_ms=NOW_MS), leader_epoch=1, now_ms=NOW_MS)
    log.abandon()
    for path in sorted(folder.glob("*.log")):
        content = bytearray(path.read_bytes())
        size = len(batch([b"0"]))
        at = (damaged - int(path.stem)) * size
        if 0 <= at < len(content):
            content[at + size - 1] ^= 1
            path.write_bytes(content)


def dropped_and_kept(log: PartitionLog) -> tuple[int, int]:
    return (
        sum(tail.dropped_bytes for tail in log.recovery.dropped),
        sum(tail.kept_bytes for tail in log.recovery.dropped),
    )


def test_sound_batches_behind_a_damaged_one_are_kept_in_the_file_of_truncated_records(tmp_path: Path) -> None:
    size = len(batch([b"0"]))
    for segment_bytes in (1 << 20, 2 * size):
        folder = tmp_path / str(segment_bytes) / "t-0"
        crashed(folder, damaged=2, segment_bytes=segment_bytes)
        log = open_log(folder, truncated_bytes_kept_max=ROOM)
        assert log.log_end_offset == 2
        assert values(folder.parent / "0.cut.t-0.log") == [b"3", b"4", b"5", b"6", b"7"]
        assert dropped_and_kept(log) == (6 * size, 5 * size)


def test_so_much_is_kept_as_the_file_may_have(tmp_path: Path) -> None:
    size = len(batch([b"0"]))
    crashed(tmp_path / "t-0", damaged=2)
    (tmp_path / "0.cut.t-0.log").write_bytes(batch([b"old"]))
    log = open_log(tmp_path / "t-0", truncated_bytes_kept_max=len(batch([b"old"])) + 2 * size + 1)
    assert values(tmp_path / "0.cut.t-0.log") == [b"old", b"3", b"4"]
    assert dropped_and_kept(log) == (6 * size, 2 * size)


def test_a_torn_end_leaves_no_file(tmp_path: Path) -> None:
    crashed(tmp_path / "t-0", damaged=7)
    log = open_log(tmp_path / "t-0", truncated_bytes_kept_max=ROOM)
    assert log.log_end_offset == 7
    assert os.listdir(tmp_path) == ["t-0"]


def test_recovery_goes_on_where_nothing_can_be_kept(tmp_path: Path) -> None:
    crashed(tmp_path / "t-0", damaged=2)
    (tmp_path / "0.cut.t-0.log").mkdir()
    log = open_log(tmp_path / "t-0", truncated_bytes_kept_max=ROOM)
    assert log.log_end_offset == 2
    assert "could not be kept" in log.recovery.notes[-1]


def test_segments_that_a_deletion_left_are_no_loss(tmp_path: Path) -> None:
    crashed(tmp_path / "t-0", damaged=8)
    log = open_log(tmp_path / "t-0", truncated_bytes_kept_max=ROOM, log_start_offset=20)
    assert log.log_start_offset == log.log_end_offset == 20
    assert log.recovery.dropped == ()
    assert "lies below the log start offset 20" in log.recovery.notes[-1]
    assert os.listdir(tmp_path) == ["t-0"]
