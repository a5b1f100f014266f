"""Appends to one partition's log, truncations, epochs and flushes."""

import asyncio
import os

import pytest
from kio.schema.errors import ErrorCode

from broker.log.core.batch_checks import BatchRejected
from broker.log.core.leader_epochs import EpochEnd
from broker.log.core.producer_values import OutOfOrderSequence
from broker.log.segments.timestamps import TimestampOffset
from broker.log.segments.transaction_index import AbortedTransaction
from tests.support.disks.faulty_disk import FaultyDisk
from tests.support.disks.log_batches import TRANSACTIONAL, batch, marker
from tests.support.disks.logs_on_disk import NOW_MS, append, fill, open_log, read_all
from wire.batches.records import Compression, Record, encode_batch, seal_batch


def test_a_leader_gives_offsets_and_its_epoch_and_keeps_the_checksum(tmp_path):
    log = open_log(tmp_path)
    first = append(log, memoryview(batch([b"a", b"b"], leader_epoch=9, timestamp_ms=NOW_MS)), leader_epoch=4)
    second = append(log, batch([b"c"], timestamp_ms=NOW_MS), leader_epoch=5)
    assert (first.first_offset, first.last_offset, first.record_count) == (0, 1, 2)
    assert (second.first_offset, log.log_end_offset, log.latest_epoch) == (2, 3, 5)
    assert [(h.base_offset, h.partition_leader_epoch) for h in read_all(log)] == [(0, 4), (2, 5)]


def test_several_batches_are_appended_together(tmp_path):
    log = open_log(tmp_path)
    batches = b"".join(batch([b"x"] * 3, timestamp_ms=NOW_MS) for _ in range(700))
    info = append(log, batches, is_from_client=False)
    assert (info.first_offset, info.last_offset, info.record_count) == (0, 2099, 2100)
    assert len(read_all(log)) == 700


@pytest.mark.parametrize(
    ("spoil", "code"),
    [
        (lambda b: b[:-1] + bytes([b[-1] ^ 1]), ErrorCode.corrupt_message),
        (lambda b: b[:-1], ErrorCode.invalid_record),
        (lambda b: b[:30], ErrorCode.invalid_record),
        (lambda b: b"", ErrorCode.invalid_record),
        (lambda b: b[:16] + b"\1" + b[17:], ErrorCode.invalid_record),
        (lambda b: b + b, ErrorCode.invalid_record),
    ],
)
def test_broken_bytes_are_refused_and_leave_nothing(tmp_path, spoil, code):
    log = open_log(tmp_path)
    with pytest.raises(BatchRejected) as refusal:
        append(log, spoil(batch(timestamp_ms=NOW_MS)))
    assert refusal.value.code is code
    assert (log.log_end_offset, log.size_bytes) == (0, 0)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (batch([b"x" * 2000], timestamp_ms=NOW_MS), ErrorCode.message_too_large),
        (batch(timestamp_ms=NOW_MS + 3_600_001), ErrorCode.invalid_timestamp),
        (batch(timestamp_ms=NOW_MS - 101), ErrorCode.invalid_timestamp),
        (batch(timestamp_ms=NOW_MS, attributes=0x08), ErrorCode.invalid_timestamp),
        (batch(timestamp_ms=NOW_MS, attributes=5), ErrorCode.unsupported_compression_type),
        (batch(timestamp_ms=NOW_MS, attributes=TRANSACTIONAL), ErrorCode.invalid_record),
        (marker(producer_id=1, is_commit=True), ErrorCode.invalid_record),
    ],
)
def test_each_kind_of_batch_that_a_client_may_not_send_has_its_error_code(tmp_path, records, code):
    log = open_log(tmp_path, message_bytes_max=1000, timestamp_before_ms_max=100)
    with pytest.raises(BatchRejected) as refusal:
        append(log, records)
    assert refusal.value.code is code
    assert log.log_end_offset == 0


def keyed(*keys: bytes | None, compression: Compression = Compression.NONE) -> bytes:
    return encode_batch([Record(key=key, value=b"v", timestamp_ms=NOW_MS) for key in keys], compression=compression)


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD])
def test_a_compacted_topic_takes_no_client_s_record_without_a_key(tmp_path, compression):
    log = open_log(tmp_path, is_compacted=True)
    append(log, keyed(b"a", b"", compression=compression))
    for records in (keyed(b"a", None, compression=compression), keyed(None, compression=compression)):
        with pytest.raises(BatchRejected, match="without a key") as refusal:
            append(log, records)
        assert refusal.value.code is ErrorCode.invalid_record
    assert log.log_end_offset == 2


def test_a_compacted_topic_takes_no_records_that_cannot_be_read(tmp_path):
    log = open_log(tmp_path, is_compacted=True)
    with pytest.raises(BatchRejected, match="cannot be read") as refusal:
        append(log, seal_batch(b"no records", record_count=2, base_timestamp=NOW_MS, max_timestamp=NOW_MS))
    assert refusal.value.code is ErrorCode.invalid_record
    assert log.log_end_offset == 0


def test_log_append_time_is_the_brokers_and_the_checksum_is_renewed(tmp_path):
    log = open_log(tmp_path, is_log_append_time=True)
    info = append(log, batch([b"a", b"b"], timestamp_ms=1), now_ms=NOW_MS)
    (header,) = read_all(log)
    assert info.log_append_time_ms == header.max_timestamp == NOW_MS
    assert header.is_log_append_time
    assert log.offset_for_timestamp(NOW_MS) == TimestampOffset(0, NOW_MS, 0)


def test_a_repeated_idempotent_batch_is_answered_and_not_written_again(tmp_path):
    log = open_log(tmp_path)
    records = batch([b"a", b"b"], producer_id=5, sequence=0, timestamp_ms=NOW_MS)
    first = append(log, records)
    append(log, batch([b"c"], producer_id=5, sequence=2, timestamp_ms=NOW_MS))
    again = append(log, records)
    assert again.is_duplicate
    assert (again.first_offset, again.last_offset) == (first.first_offset, first.last_offset)
    assert log.log_end_offset == 3
    with pytest.raises(OutOfOrderSequence):
        append(log, batch([b"d"], producer_id=5, sequence=9, timestamp_ms=NOW_MS))


def test_a_repetition_is_known_after_a_restart_clean_or_not(tmp_path):
    log = open_log(tmp_path)
    records = batch([b"a", b"b"], producer_id=5, sequence=0, timestamp_ms=NOW_MS)
    append(log, records)
    log.flush_now()
    log.abandon()
    recovered = open_log(tmp_path)
    assert append(recovered, records).is_duplicate
    recovered.close()
    assert append(open_log(tmp_path, is_clean=True), records).is_duplicate


def test_producers_cut_off_by_a_failover_may_go_on_above_their_sequence_once(tmp_path):
    log = open_log(tmp_path)
    append(log, batch([b"a"], producer_id=5, sequence=0, timestamp_ms=NOW_MS))
    log.producers.carry_over(log.log_end_offset)
    log.start_leader_epoch(1 << 20)
    append(log, batch([b"b"], producer_id=5, sequence=7, timestamp_ms=NOW_MS), leader_epoch=1 << 20)
    with pytest.raises(OutOfOrderSequence):
        append(log, batch([b"c"], producer_id=5, sequence=9, timestamp_ms=NOW_MS), leader_epoch=1 << 20)
    assert log.first_offset_since_epoch(1) == 1


def test_a_follower_keeps_offsets_and_epochs_holes_included(tmp_path):
    log = open_log(tmp_path)
    log.append_replicated(batch([b"a"], base_offset=5, leader_epoch=1) + batch([b"b"], base_offset=9, leader_epoch=3))
    assert [(h.base_offset, h.partition_leader_epoch) for h in read_all(log)] == [(5, 1), (9, 3)]
    assert log.epoch_end_offset(1) == EpochEnd(1, 9)
    for refused in (batch(base_offset=9, leader_epoch=3), batch(base_offset=10, leader_epoch=2)):
        with pytest.raises(BatchRejected):
            log.append_replicated(refused)
    assert log.log_end_offset == 10


def test_truncation_drops_the_batch_that_spans_the_offset(tmp_path):
    log = open_log(tmp_path, segment_bytes=500)
    fill(log, 20, leader_epoch=1)
    fill(log, 20, leader_epoch=2)
    with log.read(50, max_bytes=1):
        pass
    log.truncate_to(51)
    assert (log.log_end_offset, log.latest_epoch) == (50, 2)
    log.truncate_to(40)
    assert (log.log_end_offset, log.latest_epoch) == (40, 1)
    assert [h.base_offset for h in read_all(log)] == list(range(0, 40, 2))
    fill(log, 1, leader_epoch=3)
    assert log.epoch_end_offset(2) == EpochEnd(1, 40)
    log.truncate_fully_and_start_at(1000)
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (1000, 1000, 0)
    fill(log, 1)
    assert [h.base_offset for h in read_all(log)] == [1000]


def test_records_without_a_timestamp_keep_the_age_of_the_log_that_starts_anew(tmp_path):
    log = open_log(tmp_path, now_ms=NOW_MS, retention_ms=1000)
    log.truncate_fully_and_start_at(1000)
    append(log, batch(timestamp_ms=-1))
    log.advance_high_watermark(log.log_end_offset)
    assert log.expire_segments(NOW_MS + 10) == ""
    assert log.log_start_offset == 1000


def test_truncation_takes_producers_back(tmp_path):
    log = open_log(tmp_path)
    for sequence in range(5):
        append(log, batch(producer_id=5, sequence=sequence, timestamp_ms=NOW_MS))
    log.truncate_to(2)
    assert append(log, batch(producer_id=5, sequence=2, timestamp_ms=NOW_MS)).first_offset == 2


def test_after_a_truncation_the_last_stable_offset_knows_the_replicated_markers(tmp_path):
    log = open_log(tmp_path)
    append(log, batch(producer_id=7, sequence=0, attributes=TRANSACTIONAL, timestamp_ms=NOW_MS))
    append(log, marker(producer_id=7, is_commit=True), is_from_client=False)
    log.advance_high_watermark(2)
    fill(log, 1)
    log.truncate_to(2)
    assert (log.high_watermark, log.last_stable_offset) == (2, 2)


def test_truncation_below_the_recovery_point_is_announced_before_it_happens(tmp_path):
    log = open_log(tmp_path)
    fill(log, 10)
    log.flush_now()
    reported = []
    log.save_recovery_point_by(lambda: reported.append((log.recovery_point, log.log_end_offset)), asyncio.Event().wait)
    log.truncate_to(12)
    assert reported == [(0, 20)]  # where the segment of the cut begins
    log.truncate_to(12)
    assert len(reported) == 1


def test_the_last_stable_offset_stops_at_an_open_transaction_and_aborts_are_indexed(tmp_path):
    log = open_log(tmp_path)
    fill(log, 1)
    for producer_id in (7, 8):
        records = batch(producer_id=producer_id, sequence=0, attributes=TRANSACTIONAL, timestamp_ms=NOW_MS)
        append(log, records)
    log.advance_high_watermark(4)
    assert log.last_stable_offset == 2
    append(log, marker(producer_id=7, is_commit=False), is_from_client=False)
    log.advance_high_watermark(5)
    assert log.last_stable_offset == 3
    append(log, marker(producer_id=8, is_commit=True), is_from_client=False)
    log.advance_high_watermark(6)
    assert log.last_stable_offset == 6
    expected = [AbortedTransaction(7, 2, 4, 3)]
    assert log.aborted_transactions(0, 6) == expected
    assert log.aborted_transactions(5, 6) == []
    log.abandon()
    assert open_log(tmp_path).aborted_transactions(0, 6) == expected


def test_an_epoch_without_a_record_is_the_latest_and_wrote_no_offset(tmp_path):
    log = open_log(tmp_path)
    log.start_leader_epoch(3)
    assert (log.latest_epoch, log.epoch_at(-1)) == (3, -1)
    append(log, batch(timestamp_ms=NOW_MS), leader_epoch=3)
    log.start_leader_epoch(5)
    assert (log.latest_epoch, log.epoch_at(0)) == (5, 3)
    append(log, batch(timestamp_ms=NOW_MS), leader_epoch=5)
    assert (log.epoch_at(0), log.epoch_at(1)) == (3, 5)


def test_a_leader_of_an_older_epoch_is_refused(tmp_path):
    log = open_log(tmp_path)
    log.start_leader_epoch(5)
    with pytest.raises(BatchRejected) as refusal:
        append(log, batch(timestamp_ms=NOW_MS), leader_epoch=4)
    assert refusal.value.code is ErrorCode.fenced_leader_epoch


async def test_one_flush_covers_all_appends_before_it(tmp_path):
    disk = FaultyDisk(str(tmp_path))
    log = open_log(tmp_path / "t-0", disk, flush_messages=1)
    fill(log, 1)
    assert log.needs_flush
    waiting = [asyncio.create_task(log.flush())]
    await asyncio.sleep(0)
    for _ in range(20):
        fill(log, 1)
        waiting.append(asyncio.create_task(log.flush()))
    await asyncio.gather(*waiting)
    assert log.recovery_point == log.log_end_offset == 42
    assert not log.needs_flush
    assert len([path for operation, path in disk.operations if operation == "fdatasync" and path.endswith(".log")]) <= 3


async def test_rolled_segments_are_flushed_without_the_segment_that_is_written_to(tmp_path):
    disk = FaultyDisk(str(tmp_path))
    log = open_log(tmp_path / "t-0", disk, segment_bytes=400)
    fill(log, 10)
    *rolled, active = sorted(path.name for path in (tmp_path / "t-0").glob("*.log"))
    assert log.has_unflushed_segments
    await log.flush(is_rolled_enough=True)
    assert (log.recovery_point, log.has_unflushed_segments) == (int(active.removesuffix(".log")), False)
    flushed = [
        os.path.basename(path)
        for operation, path in disk.operations
        if operation == "fdatasync" and path.endswith(".log")
    ]
    assert flushed == rolled
    await log.flush()
    assert log.recovery_point == log.log_end_offset


def test_flush_is_due_after_its_interval_only_when_something_was_written(tmp_path):
    log = open_log(tmp_path, flush_ms=100)
    assert not log.is_flush_due(NOW_MS * 2)
    fill(log, 1)
    assert not log.is_flush_due(NOW_MS + 99)
    assert log.is_flush_due(NOW_MS + 100)
    log.flush_now()
    assert not log.is_flush_due(NOW_MS * 2)
