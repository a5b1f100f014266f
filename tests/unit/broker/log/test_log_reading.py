"""Reading from one partition's log: whole batches, holes, slices, segments, times."""

import os

import pytest
from kio.schema.errors import ErrorCode

from broker.log.core.batch_checks import BatchRejected
from broker.log.directories.deletions import remove_files
from broker.log.errors import OffsetOutOfRange
from broker.log.segments.timestamps import TimestampOffset
from runtime.disk import RealDisk
from tests.support.disks.log_batches import batch
from tests.support.disks.logs_on_disk import NOW_MS, append, fill, open_log, read_all
from wire.batches.record_batch import read_header


def test_reading_in_a_hole_gives_the_next_batch_also_across_segments(tmp_path):
    log = open_log(tmp_path, segment_bytes=100)
    for offset in (0, 10, 50):
        log.append_replicated(batch([b"x" * 20], base_offset=offset))
    assert len(log.segments) == 3
    for offset, expected in ((0, 0), (3, 10), (10, 10), (11, 50), (50, 50)):
        with log.read(offset, max_bytes=1) as piece:
            assert piece.base_offset == expected


def test_reads_are_whole_batches_within_the_limit(tmp_path):
    log = open_log(tmp_path)
    fill(log, 100)
    size = log.size_bytes // 100
    for offset in (0, 1, 60, 61, 198):
        for limit in (size, size + 1, 3 * size - 1, 3 * size, 10**6):
            with log.read(offset, max_bytes=limit) as piece:
                assert piece.base_offset == offset // 2 * 2
                left = 100 - offset // 2
                assert len(piece) == min(limit // size, left) * size
                assert piece.next_offset == piece.base_offset + len(piece) // size * 2


def test_a_first_batch_above_the_limit_comes_whole_or_not_at_all(tmp_path):
    log = open_log(tmp_path)
    fill(log, 2)
    with log.read(0, max_bytes=10) as piece:
        assert (piece.next_offset, read_header(piece.read_bytes()).size_bytes) == (2, len(piece))
    with log.read(0, max_bytes=10, has_minimum_one_batch=False) as piece:
        assert len(piece) == 0
        assert piece.fd == -1


def test_nothing_at_or_above_the_end_offset_is_read(tmp_path):
    log = open_log(tmp_path, segment_bytes=2000)
    fill(log, 100)
    for end in (0, 2, 60, 150, 199, 200, 500):
        offset = 0
        while True:
            with log.read(offset, max_bytes=500, end_offset=end) as piece:
                if not len(piece):
                    break
                offset = piece.next_offset
        assert offset == min(end, 200) // 2 * 2
        assert log.bytes_between(0, end) == offset // 2 * (log.size_bytes // 100)


def test_reading_outside_of_the_log_names_the_valid_range(tmp_path):
    log = open_log(tmp_path)
    fill(log, 5)
    with log.read(10, max_bytes=100) as piece:
        assert len(piece) == 0
    log.advance_high_watermark(10)
    log.advance_log_start_offset(4)
    for offset in (3, 11, -1):
        with pytest.raises(OffsetOutOfRange, match="holds 4 to 10"):
            log.read(offset, max_bytes=100)


def test_a_slice_stays_readable_after_its_segment_was_deleted(tmp_path):
    log = open_log(tmp_path, segment_bytes=500, retention_ms=0)
    fill(log, 30)
    log.advance_high_watermark(log.log_end_offset)
    piece = log.read(0, max_bytes=10**6)
    assert "retention.ms" in log.expire_segments(NOW_MS + 10**9)
    log.removals.put_aside()
    assert log.log_start_offset == log.log_end_offset == 60
    remove_files(RealDisk(), log.removals.take_due(NOW_MS * 10**6))
    assert [name for name in os.listdir(tmp_path) if name.endswith(".deleted")] == []
    assert len(piece.read_bytes()) == len(piece)
    descriptor = piece.fd
    piece.release()
    piece.release()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


def test_segments_roll_by_size_and_time_and_are_all_read(tmp_path):
    log = open_log(tmp_path, segment_bytes=1000)
    fill(log, 50)
    by_size = len(log.segments)
    assert by_size > 3
    log.update_config(log.config.__class__(segment_ms=100, index_interval_bytes=200))
    fill(log, 1, first_time_ms=10_000)
    assert len(log.segments) == by_size + 1
    assert log.roll_if_due(NOW_MS + 10_050) is False
    assert log.roll_if_due(NOW_MS + 10_101) is True
    assert log.roll_if_due(NOW_MS + 99_999) is False
    assert [h.base_offset for h in read_all(log, max_bytes=300)] == list(range(0, 102, 2))


def test_a_segment_rolls_when_its_index_is_full(tmp_path):
    log = open_log(tmp_path, segment_index_bytes=40, index_interval_bytes=1)
    fill(log, 50)
    assert len(log.segments) > 5
    assert len(read_all(log)) == 50


def test_an_append_larger_than_a_segment_is_refused(tmp_path):
    log = open_log(tmp_path, segment_bytes=200)
    with pytest.raises(BatchRejected) as refusal:
        append(log, batch([b"x" * 300], timestamp_ms=NOW_MS))
    assert refusal.value.code is ErrorCode.record_list_too_large


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
def test_the_first_record_of_a_time_is_found_inside_its_batch(tmp_path, codec):
    log = open_log(tmp_path, segment_bytes=3000)
    for number in range(100):
        times = [NOW_MS + 10 * number + step for step in (0, 3, 6)]
        append(log, batch([b"x" * 30] * 3, timestamps_ms=times, codec=codec), leader_epoch=number // 50)
    for number in (0, 1, 49, 50, 99):
        time_ms = NOW_MS + 10 * number
        assert log.offset_for_timestamp(time_ms) == TimestampOffset(3 * number, time_ms, number // 50)
        assert log.offset_for_timestamp(time_ms + 4) == TimestampOffset(3 * number + 2, time_ms + 6, number // 50)
    assert log.offset_for_timestamp(0).offset == 0
    assert log.offset_for_timestamp(NOW_MS + 10_000) is None
    assert log.offset_of_max_timestamp() == TimestampOffset(299, NOW_MS + 996, 1)


def test_times_out_of_order_are_found_at_their_first_record(tmp_path):
    log = open_log(tmp_path)
    for time_ms in (50, 10, 90, 20, 90, 70):
        append(log, batch(timestamp_ms=time_ms))
    assert [log.offset_for_timestamp(time_ms).offset for time_ms in (0, 10, 50, 51, 90)] == [0, 0, 0, 2, 2]
    assert log.max_timestamp_ms == 90
    assert log.offset_of_max_timestamp().offset == 2


@pytest.mark.parametrize("segment_bytes", [100, 10**6])
def test_the_largest_time_is_that_of_the_records_that_deletion_has_left(tmp_path, segment_bytes):
    log = open_log(tmp_path, segment_bytes=segment_bytes)
    append(log, batch(timestamp_ms=99))
    append(log, batch([b"a", b"b", b"c"], timestamps_ms=[90, 20, 80]))
    append(log, batch(timestamp_ms=70))
    log.advance_high_watermark(5)
    found = []
    for start in range(6):
        log.advance_log_start_offset(start)
        largest = log.offset_of_max_timestamp()
        found.append(None if largest is None else largest[:2])
    assert found == [(0, 99), (1, 90), (3, 80), (3, 80), (4, 70), None]


def test_descriptors_of_old_segments_are_closed_beyond_the_bound(tmp_path):
    log = open_log(tmp_path, segment_bytes=200)
    fill(log, 60)
    log.flush_now()
    log._descriptors._idle_max = 4
    before = len(os.listdir("/proc/self/fd"))
    read_all(log, max_bytes=200)
    assert len(os.listdir("/proc/self/fd")) <= before + 4
