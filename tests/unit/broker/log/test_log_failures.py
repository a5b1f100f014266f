"""Failed writes and flushes of one partition's log: a full disk, torn bytes, a lost index entry."""

import errno
import os
import random

import pytest

from broker.log.errors import DiskFull, StorageError
from tests.support.disks.faulty_disk import FaultyDisk
from tests.support.disks.log_batches import TRANSACTIONAL, batch, marker
from tests.support.disks.logs_on_disk import NOW_MS, append, fill, open_log, read_all


def test_a_failed_write_leaves_no_bytes_and_the_log_goes_on(tmp_path):
    disk = FaultyDisk(str(tmp_path))
    log = open_log(tmp_path / "t-0", disk)
    fill(log, 3)
    size = log.size_bytes
    disk.fail_next("write", ".log", code=errno.EIO, written_bytes=40)
    with pytest.raises(StorageError, match="Input/output error"):
        fill(log, 1)
    assert os.path.getsize(tmp_path / "t-0" / f"{0:020d}.log") == size == log.size_bytes
    fill(log, 1)
    assert [h.base_offset for h in read_all(log)] == [0, 2, 4, 6]


def test_torn_bytes_that_could_not_be_cut_are_cut_by_the_next_append_or_close(tmp_path):
    disk = FaultyDisk(str(tmp_path))
    log = open_log(tmp_path / "t-0", disk)
    fill(log, 1)
    for finish in (lambda: fill(log, 1), log.close):
        disk.fail_next("write", ".log", written_bytes=60)
        disk.fail_next("truncate", ".log")
        with pytest.raises(StorageError):
            append(log, batch([b"long" * 100], timestamp_ms=NOW_MS))
        finish()
        assert os.path.getsize(tmp_path / "t-0" / f"{0:020d}.log") == log.size_bytes


def test_a_full_disk_is_said_clearly_and_passes(tmp_path):
    disk = FaultyDisk(str(tmp_path))
    log = open_log(tmp_path / "t-0", disk)
    fill(log, 3)
    disk.space_left_bytes = 30
    with pytest.raises(DiskFull, match="No space left"):
        fill(log, 1)
    assert len(read_all(log)) == 3
    disk.space_left_bytes = None
    fill(log, 1)
    assert len(read_all(log)) == 4
    log.close()
    assert open_log(tmp_path / "t-0", is_clean=True).log_end_offset == 8


def test_an_index_that_cannot_be_written_fails_no_append_and_waits(tmp_path):
    disk = FaultyDisk(str(tmp_path))
    log = open_log(tmp_path / "t-0", disk, index_interval_bytes=1)
    disk.fail_next("write", ".index", code=errno.ENOSPC)
    fill(log, 1100)
    assert len(read_all(log)) == 1100
    log.close()
    assert os.path.getsize(tmp_path / "t-0" / f"{0:020d}.index") == 8 * 1099


def test_an_abort_whose_index_entry_is_lost_stops_the_log(tmp_path):
    disk = FaultyDisk(str(tmp_path))
    log = open_log(tmp_path / "t-0", disk)
    append(log, batch(producer_id=7, sequence=0, attributes=TRANSACTIONAL, timestamp_ms=NOW_MS))
    disk.fail_next("write", ".txnindex")
    with pytest.raises(StorageError):
        append(log, marker(producer_id=7, is_commit=False), is_from_client=False)
    with pytest.raises(StorageError, match="failed before"):
        fill(log, 1)
    log.abandon()
    assert len(open_log(tmp_path / "t-0", disk).aborted_transactions(0, 9)) == 1


@pytest.mark.parametrize("is_clean", [True, False])
def test_an_abort_on_a_full_disk_is_known_and_the_log_goes_on(tmp_path, is_clean):
    disk = FaultyDisk(str(tmp_path))
    log = open_log(tmp_path / "t-0", disk)
    for producer_id in (7, 8):
        append(log, batch(producer_id=producer_id, sequence=0, attributes=TRANSACTIONAL, timestamp_ms=NOW_MS))
    for producer_id in (7, 8):
        # the marker fits into the last block of the log file, and the index needs a new one
        disk.fail_next("write", ".txnindex", code=errno.ENOSPC, written_bytes=9)
        append(log, marker(producer_id=producer_id, is_commit=False), is_from_client=False)
    assert [entry.producer_id for entry in log.aborted_transactions(0, 9)] == [7, 8]
    fill(log, 1)
    if is_clean:
        log.close()
    else:
        log.abandon()
    again = open_log(tmp_path / "t-0", disk, is_clean=is_clean)
    assert [entry.producer_id for entry in again.aborted_transactions(0, 9)] == [7, 8]
    again.truncate_to(3)
    assert [entry.producer_id for entry in again.aborted_transactions(0, 9)] == [7]


def log_with_an_abort(root):
    """The disk and the log of a new directory; the log holds one aborted transaction."""
    root.mkdir()
    disk = FaultyDisk(str(root))
    log = open_log(root / "t-0", disk)
    append(log, batch(producer_id=7, sequence=0, attributes=TRANSACTIONAL, timestamp_ms=NOW_MS))
    append(log, marker(producer_id=7, is_commit=False), is_from_client=False)
    return disk, log


def test_a_loss_of_power_after_a_clean_stop_removes_no_abort(tmp_path):
    for seed in range(10):
        root = tmp_path / str(seed)
        disk, log = log_with_an_abort(root)
        # what a background flush leaves undone is for the stop
        log.flush_now()
        log.close()
        disk.fsync_directory(str(root))
        disk.crash(random.Random(seed))
        again = open_log(root / "t-0", disk, is_clean=True)
        assert [entry.producer_id for entry in again.aborted_transactions(0, 9)] == [7]


def test_a_loss_of_power_after_a_roll_at_the_recovery_point_removes_no_abort(tmp_path):
    for seed in range(10):
        root = tmp_path / str(seed)
        disk, log = log_with_an_abort(root)
        log.flush_now()
        disk.fsync_directory(str(root))
        recovery_point = log.recovery_point
        log.roll_if_due(NOW_MS + 10**13)
        fill(log, 1)
        log.abandon()
        disk.crash(random.Random(seed))
        again = open_log(root / "t-0", disk, recovery_point=recovery_point)
        assert [entry.producer_id for entry in again.aborted_transactions(0, 9)] == [7]


def test_a_loss_of_power_after_a_truncation_and_a_clean_stop_keeps_producers(tmp_path):
    for seed in range(10):
        root = tmp_path / str(seed)
        root.mkdir()
        disk = FaultyDisk(str(root))
        log = open_log(root / "t-0", disk)
        append(log, batch(producer_id=7, sequence=4, timestamp_ms=NOW_MS))
        for _ in range(2):
            # with each roll, a snapshot of producers is written
            log.roll_if_due(NOW_MS + 10**13)
            fill(log, 1)
        log.advance_high_watermark(3)
        log.advance_log_start_offset(1)
        log.expire_segments(NOW_MS)
        log.removals.put_aside()
        log.truncate_to(3)
        log.close()
        disk.fsync_directory(str(root))
        disk.crash(random.Random(seed))
        again = open_log(root / "t-0", disk, is_clean=True, log_start_offset=1)
        assert again.producers.get(7).last_sequence == 4


def test_a_second_crash_keeps_producers_whose_batches_retention_has_removed(tmp_path):
    log = open_log(tmp_path, segment_bytes=200)
    fill(log, 4)
    append(log, batch(producer_id=7, sequence=4, timestamp_ms=NOW_MS))
    fill(log, 4)
    log.abandon()
    again = open_log(tmp_path, segment_bytes=200)
    again.flush_now()
    again.advance_high_watermark(again.log_end_offset)
    again.advance_log_start_offset(again.segments.active.base_offset)
    again.expire_segments(NOW_MS)
    again.removals.put_aside()
    recovery_point, log_start_offset = again.recovery_point, again.log_start_offset
    again.abandon()
    last = open_log(tmp_path, segment_bytes=200, recovery_point=recovery_point, log_start_offset=log_start_offset)
    assert last.producers.get(7).last_sequence == 4


def test_a_torn_segment_below_the_log_start_stops_no_start(tmp_path):
    log = open_log(tmp_path, segment_bytes=200)
    for sequence in range(9):
        append(log, batch(producer_id=7, sequence=sequence, timestamp_ms=NOW_MS))
    log.advance_high_watermark(9)
    log.advance_log_start_offset(log.segments.active.base_offset)
    recovery_point, log_start_offset = log.recovery_point, log.log_start_offset
    log.abandon()
    # a loss of power before the next flush and before the next pass of retention
    for path in tmp_path.glob("*.snapshot"):
        path.unlink()
    os.truncate(tmp_path / f"{0:020d}.log", 70)
    again = open_log(tmp_path, segment_bytes=200, recovery_point=recovery_point, log_start_offset=log_start_offset)
    assert (again.log_start_offset, again.log_end_offset) == (log_start_offset, 9)
    assert [header.base_offset for header in read_all(again)] == list(range(log_start_offset, 9))


def test_segments_that_retention_gave_up_unflushed_do_not_come_back_torn(tmp_path):
    for seed in range(10):
        root = tmp_path / str(seed)
        root.mkdir()
        disk = FaultyDisk(str(root))
        log = open_log(root / "t-0", disk, segment_bytes=200)
        for sequence in range(9):
            append(log, batch(producer_id=7, sequence=sequence, timestamp_ms=NOW_MS))
        log.advance_high_watermark(9)
        log.advance_log_start_offset(log.segments.active.base_offset)
        log.expire_segments(NOW_MS)
        log.removals.put_aside()
        disk.fsync_directory(str(root))
        recovery_point = log.recovery_point
        log.abandon()
        disk.crash(random.Random(seed))
        again = open_log(root / "t-0", disk, segment_bytes=200, recovery_point=recovery_point)
        assert again.log_start_offset == recovery_point


def test_a_checkpoint_before_expired_segments_are_put_aside_trusts_no_torn_batch(tmp_path):
    """The log start has passed unflushed segments; neither it nor their new names are on disk."""
    for seed in range(6):
        root = tmp_path / str(seed)
        root.mkdir()
        disk = FaultyDisk(str(root))
        log = open_log(root / "t-0", disk, segment_bytes=200)
        disk.fsync_directory(str(root / "t-0"))
        for _ in range(9):
            append(log, batch(timestamp_ms=NOW_MS))
        disk.fsync_directory(str(root / "t-0"))
        disk.fsync_directory(str(root))
        log.advance_high_watermark(9)
        log.advance_log_start_offset(log.segments.active.base_offset)
        log.expire_segments(NOW_MS)
        recovery_point = log.recovery_point_to_save
        log.abandon()
        disk.crash(random.Random(seed))
        again = open_log(root / "t-0", disk, segment_bytes=200, recovery_point=recovery_point)
        found = [header.base_offset for header in read_all(again)]
        assert found == list(range(again.log_start_offset, again.log_end_offset))


async def test_after_a_failed_fsync_nothing_is_promised_any_more(tmp_path):
    disk = FaultyDisk(str(tmp_path))
    log = open_log(tmp_path / "t-0", disk)
    fill(log, 1)
    disk.fail_next("fdatasync", ".log")
    with pytest.raises(StorageError):
        await log.flush()
    for refused in (lambda: fill(log, 1), lambda: log.read(0, max_bytes=1)):
        with pytest.raises(StorageError, match="failed before"):
            refused()
    assert log.recovery_point == 0
