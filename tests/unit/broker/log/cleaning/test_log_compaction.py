"""Compaction: the records that stay and go, their unchanged offsets, and a crash at any step."""

import asyncio
import os
import random
import shutil

import pytest

from broker.log.cleaning.cleaner import clean
from broker.log.cleaning.log_compaction import plan_compaction, swap_in
from broker.log.core.compaction import KeyOffsets
from broker.log.core.producer_values import InvalidProducerEpoch
from runtime.disk import RealDisk
from tests.support.disks.faulty_disk import FaultyDisk
from tests.support.disks.log_batches import TRANSACTIONAL, batch, marker
from tests.support.disks.logs_on_disk import NOW_MS, config, data_records, open_log, read_all
from wire.batches.record_batch import HEADER_SIZE, InvalidBatch, read_header
from wire.batches.records import decode_records

COMPACT = config(is_compacted=True, is_deleted=False, segment_bytes=1000, delete_retention_ms=100)


def append(log, *records, **fields):
    return log.append_as_leader(batch(records, timestamp_ms=NOW_MS, **fields), leader_epoch=0, now_ms=NOW_MS)


def contents(log):
    """(offset, key, value) of every data record."""
    return [(record.offset, record.key, record.value) for record in data_records(log)]


def ready(log):
    log.roll_if_due(NOW_MS + 10**13)
    log.advance_high_watermark(log.log_end_offset)
    log.flush_now()


def compact(log, disk=None, now_ms=NOW_MS):
    ready(log)
    plan = plan_compaction(log, now_ms)
    if plan is None:
        return None
    result = clean(plan, disk or RealDisk())
    assert asyncio.run(swap_in(log, plan, result, log._descriptors, now_ms))
    return result


def newest(records):
    """The naive twin: the last record of each key, in order of offset."""
    last = {key: (offset, key, value) for offset, key, value in records}
    return sorted(last.values())


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("seed", range(4))
def test_each_key_keeps_its_last_record_at_its_offset(tmp_path, codec, seed):
    chance = random.Random(seed)
    log = open_log(tmp_path, config=COMPACT)
    for _ in range(80):
        records = [
            (b"k%d" % chance.randrange(12), b"v%d" % chance.randrange(10**6)) for _ in range(chance.randint(1, 6))
        ]
        append(log, *records, codec=codec)
    before, end = contents(log), log.log_end_offset
    result = compact(log)
    assert result.bytes_after < result.bytes_before
    assert contents(log) == newest(before)
    assert log.log_end_offset == end
    for offset in range(0, end, 7):
        with log.read(offset, max_bytes=1) as piece:
            assert piece.next_offset > offset
    log.close()
    assert contents(open_log(tmp_path, config=COMPACT, is_clean=True)) == newest(before)


def test_compacting_again_and_what_came_since(tmp_path):
    log = open_log(tmp_path, config=COMPACT)
    for number in range(40):
        append(log, (b"k%d" % (number % 5), b"v%d" % number))
    compact(log)
    assert compact(log) is None
    for number in range(40):
        append(log, (b"k%d" % (number % 7), b"w%d" % number))
    before = contents(log)
    compact(log)
    assert contents(log) == newest(before)


def test_a_tombstone_stays_until_its_retention_is_over(tmp_path):
    log = open_log(tmp_path, config=COMPACT)
    append(log, (b"gone", b"old"), (b"kept", b"old"))
    append(log, (b"gone", None), (b"kept", b"new"))
    compact(log, now_ms=NOW_MS)
    assert contents(log) == [(2, b"gone", None), (3, b"kept", b"new")]
    (header,) = [h for h in read_all(log) if h.has_delete_horizon]
    assert header.base_timestamp == NOW_MS + 100
    with log.read(2, max_bytes=1) as piece:
        assert {record.timestamp_ms for record in decode_records(piece.read_bytes())} == {NOW_MS}
    append(log, (b"other", b"x"))
    compact(log, now_ms=NOW_MS + 99)
    assert (2, b"gone", None) in contents(log)
    append(log, (b"other", b"y"))
    compact(log, now_ms=NOW_MS + 100)
    assert contents(log) == [(3, b"kept", b"new"), (5, b"other", b"y")]


def test_segments_join_without_a_gap_so_that_recovery_from_the_start_keeps_them_all(tmp_path):
    log = open_log(tmp_path, config=COMPACT)
    for number in range(80):
        append(log, (b"k%d" % (number % 3), b"v%d" % number))
    compact(log)
    before = contents(log)
    log.abandon()
    again = open_log(tmp_path)
    assert again.recovery.dropped == ()
    assert contents(again) == before


def test_recovery_drops_the_segments_behind_batches_that_became_zeros(tmp_path):
    log = open_log(tmp_path, config=COMPACT)
    for number in range(40):
        append(log, (b"k%d" % number, b"v%d" % number))
    second = log.segments.all[1].base_offset
    kept_bytes = sum(header.size_bytes for header in read_all(log) if header.base_offset < second - 2)
    log.abandon()
    # a loss of power kept the length of the file, and not its last two batches
    path = tmp_path / f"{0:020d}.log"
    content = path.read_bytes()
    path.write_bytes(content[:kept_bytes].ljust(len(content), b"\0"))
    again = open_log(tmp_path, config=COMPACT)
    assert again.log_end_offset == second - 2
    assert again.recovery.dropped[0].offset == second


def test_records_without_a_key_go(tmp_path):
    log = open_log(tmp_path, config=COMPACT)
    written_before = batch([(None, b"lost"), (b"k", b"v")], timestamp_ms=NOW_MS)  # the topic was not compacted yet
    log.append_as_leader(written_before, leader_epoch=0, now_ms=NOW_MS, is_from_client=False)
    compact(log)
    assert contents(log) == [(1, b"k", b"v")]


def test_a_producers_last_batch_stays_empty_so_that_its_sequence_is_known(tmp_path):
    log = open_log(tmp_path, config=COMPACT)
    records = [(b"k", b"1")]
    append(log, *records, producer_id=9, sequence=0)
    append(log, (b"k", b"2"), producer_id=9, sequence=1)
    append(log, (b"k", b"3"))
    compact(log)
    assert [(h.base_offset, h.record_count) for h in read_all(log)] == [(1, 0), (2, 1)]
    log.close()
    for path in tmp_path.glob("*.snapshot"):
        path.unlink()
    again = open_log(tmp_path, config=COMPACT)
    assert append(again, (b"k", b"2"), producer_id=9, sequence=1).is_duplicate
    assert append(again, (b"k", b"4"), producer_id=9, sequence=2).first_offset == 3


def test_a_marker_that_raised_the_epoch_stays_until_its_producer_writes(tmp_path):
    log = open_log(tmp_path, config=COMPACT)
    append(log, (b"k", b"1"), producer_id=9, producer_epoch=0, sequence=0, attributes=TRANSACTIONAL)
    fence = marker(producer_id=9, producer_epoch=1, is_commit=True)
    log.append_as_leader(fence, leader_epoch=0, now_ms=NOW_MS, is_from_client=False)
    append(log, (b"k", b"2"))
    for late in range(3):
        append(log, (b"other", b"%d" % late))
        compact(log, now_ms=NOW_MS + 1000 * late)
    log.close()
    for path in tmp_path.glob("*.snapshot"):
        path.unlink()
    again = open_log(tmp_path, config=COMPACT)
    with pytest.raises(InvalidProducerEpoch):
        append(again, (b"k", b"late"), producer_id=9, producer_epoch=0, sequence=1, attributes=TRANSACTIONAL)
    append(again, (b"k", b"3"), producer_id=9, producer_epoch=1, sequence=0)
    for late in range(3, 6):
        append(again, (b"other", b"%d" % late))
        compact(again, now_ms=NOW_MS + 1000 * late)
    assert [header for header in read_all(again) if header.is_control] == []


def test_an_aborted_record_never_replaces_a_committed_one(tmp_path):
    log = open_log(tmp_path, config=COMPACT)
    append(log, (b"k", b"committed"))
    append(log, (b"k", b"aborted"), producer_id=9, sequence=0, attributes=TRANSACTIONAL)
    end = marker(producer_id=9, is_commit=False)
    log.append_as_leader(end, leader_epoch=0, now_ms=NOW_MS, is_from_client=False)
    ready(log)
    aborted = log.aborted_transactions(0, 3)
    compact(log)
    assert (0, b"k", b"committed") in contents(log)
    assert log.aborted_transactions(0, 3) == aborted


def test_nothing_above_the_last_stable_offset_is_cleaned(tmp_path):
    log = open_log(tmp_path, config=COMPACT)
    append(log, (b"k", b"open"), producer_id=9, sequence=0, attributes=TRANSACTIONAL)
    for number in range(40):
        append(log, (b"k", b"%d" % number))
    ready(log)
    assert plan_compaction(log, NOW_MS) is None


def test_a_pass_over_segments_that_were_cut_meanwhile_is_dropped(tmp_path):
    log = open_log(tmp_path, config=COMPACT)
    for number in range(60):
        append(log, (b"k", b"%d" % number))
    ready(log)
    plan = plan_compaction(log, NOW_MS)
    result = clean(plan, RealDisk())
    log.truncate_to(5)
    before = contents(log)
    assert asyncio.run(swap_in(log, plan, result, log._descriptors, NOW_MS)) is False
    assert contents(log) == before
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".cleaned")]


def test_a_crash_after_any_step_of_a_swap_leaves_the_old_or_the_new_records(tmp_path):
    log = open_log(tmp_path / "origin", config=COMPACT)
    for number in range(60):
        append(log, (b"k%d" % (number % 4), b"v%d" % number))
    ready(log)
    full, small = contents(log), newest(contents(log))
    log.abandon()
    interruptions = 0
    for step in range(200):
        folder = tmp_path / str(step)
        shutil.copytree(tmp_path / "origin", folder)
        disk = FaultyDisk(str(folder))
        copy = open_log(folder, disk, config=COMPACT, recovery_point=full[-1][0] + 1)
        copy.flush_now()
        copy.advance_high_watermark(copy.log_end_offset)
        plan = plan_compaction(copy, NOW_MS)
        left = [step]

        class Stopped(BaseException):
            pass

        def stop_at(operation, path, left=left, stopped=Stopped):
            if operation in ("rename", "unlink", "write", "fsync_directory", "truncate"):
                if left[0] == 0:
                    raise stopped
                left[0] -= 1

        disk.before_operation = stop_at
        try:
            result = clean(plan, disk)
            asyncio.run(swap_in(copy, plan, result, copy._descriptors, NOW_MS))
        except Stopped:
            interruptions += 1
        else:
            break
        finally:
            disk.before_operation = None
        for recovery_point in (full[-1][0] + 1, 0):
            again = folder.parent / f"{step}-{recovery_point}"
            shutil.copytree(folder, again)
            reopened = open_log(again, config=COMPACT, recovery_point=recovery_point)
            found = contents(reopened)
            assert newest(found) == small
            assert set(found) <= set(full)
            assert reopened.log_end_offset == full[-1][0] + 1
            assert not [name for name in os.listdir(again) if name.endswith((".cleaned", ".swap"))]
            reopened.close()
        disk.clear()
    assert interruptions > 15


def test_a_batch_whose_bytes_have_changed_gets_no_new_checksum(tmp_path):
    log = open_log(tmp_path, config=COMPACT)
    append(log, (b"a", b"1"), (b"b", b"1"))
    append(log, (b"a", b"2"))
    ready(log)
    plan = plan_compaction(log, NOW_MS)
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(path.read_bytes().replace(b"b\x021", b"b\x029"))
    with pytest.raises(InvalidBatch, match="checksum"):
        clean(plan, RealDisk())
    assert {record[1:] for record in contents(log)} >= {(b"a", b"1"), (b"a", b"2")}


def note(keys, first_offset, *noted):
    """Notes records of these keys at consecutive offsets."""
    content = batch([(key, b"value") for key in noted], base_offset=first_offset)
    keys.note(read_header(content), content, HEADER_SIZE, len(content))


def test_the_range_is_cut_where_memory_for_keys_ends():
    keys = KeyOffsets(keys_max=2)
    note(keys, 0, b"a")
    assert not keys.is_full
    note(keys, 1, b"b")
    assert keys.is_full
    assert keys.is_newest(b"unseen", 5)
    assert not keys.is_newest(b"a", -1)


def test_a_range_of_offsets_has_as_many_newest_records_as_keys_of_which_no_newer_one_came():
    keys = KeyOffsets()
    note(keys, 3, b"a", b"b")
    note(keys, 9, b"a")
    keys.close()
    counts = [keys.newest_count(first, last) for first, last in ((0, 3), (3, 4), (5, 8), (5, 9), (4, 9), (10, 20))]
    assert counts == [0, 1, 0, 1, 2, 0]


def test_records_are_surely_the_newest_when_all_were_noted_as_such_or_no_key_was_noted():
    keys = KeyOffsets()
    note(keys, 3, b"a", b"b", None)
    keys.close()
    assert keys.are_newest({b"a": 3, b"b": 4})
    assert keys.are_newest({b"c": 1, b"d": 2})
    assert not keys.are_newest({b"a": 2})
    assert not keys.are_newest({b"c": 1, None: 5})
    assert not keys.are_newest({b"a": 3, b"c": 2})  # true, but a look at each record has to say so
