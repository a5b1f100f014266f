"""The choice of records to clean: time, first offset, and transaction markers."""

import pytest

from broker.log.cleaning.log_compaction import plan_compaction
from broker.log.directories.checkpoints import CLEANER_OFFSETS, read_offsets
from broker.log.directories.log_store import LogStore
from runtime.disk import RealDisk
from tests.support.disks.compacted_logs import ID, compacted, keys_and_values, put, run, settle
from tests.support.disks.log_batches import TRANSACTIONAL, marker
from tests.support.disks.logs_on_disk import NOW_MS, open_log, read_all
from wire.protocol.ids import TopicPartition
from wire.rules.topic_config_kinds import LONG_MAX


def test_records_younger_than_the_minimum_lag_are_not_cleaned(tmp_path):
    log = open_log(tmp_path, config=compacted(compaction_lag_ms_min=1000))
    for number in range(40):
        put(log, b"k", b"%d" % number, time_ms=NOW_MS + 100 * number)
    settle(log)
    assert plan_compaction(log, NOW_MS + 500) is None
    plan = plan_compaction(log, NOW_MS + 3000)
    assert log.log_start_offset < plan.segments[-1].next_offset <= 21
    run(log, plan)
    assert keys_and_values(log)[-19:] == [(b"k", b"%d" % number) for number in range(21, 40)]


async def test_a_log_with_little_dirt_waits_until_the_longest_lag_is_over(store):
    log = store.open_or_create("t", 0, topic_id=ID, config=compacted(compaction_lag_ms_max=10_000))
    for number in range(30):
        put(log, b"%d" % number, b"v" * 20)
    settle(log)
    assert len(await store.compact()) == 1
    for number in range(12):
        put(log, b"again%d" % (number % 2), b"w")
    settle(log)
    assert await store.compact() == []
    store.clock[0] += 10_001
    (sentence,) = await store.compact()
    assert "t-0 is compacted" in sentence


def test_the_active_segment_rolls_in_time_for_the_longest_lag(tmp_path):
    log = open_log(tmp_path, config=compacted(compaction_lag_ms_max=1000))
    put(log, b"k", b"v")
    assert not log.roll_if_due(NOW_MS + 1000)
    assert log.roll_if_due(NOW_MS + 1001)


async def test_how_far_a_log_is_compacted_outlives_a_restart(store, tmp_path):
    log = store.open_or_create("t", 0, topic_id=ID, config=compacted())
    for number in range(30):
        put(log, b"k%d" % (number % 3), b"%d" % number)
    settle(log)
    await store.compact()
    done = log.compacted_to
    assert done > 0
    assert read_offsets(RealDisk(), f"{tmp_path}/{CLEANER_OFFSETS}") == {TopicPartition("t", 0): done}
    store.close()
    again = LogStore([str(tmp_path)], RealDisk(), now_ms=lambda: NOW_MS)
    again.open(node_id=1, cluster_id="c")
    again.load(lambda topic: compacted())
    assert again.get("t", 0).compacted_to == done
    assert plan_compaction(again.get("t", 0), NOW_MS) is None
    again.abandon()


def test_only_what_is_dirty_is_read_for_keys_and_the_rest_follows(tmp_path):
    log = open_log(tmp_path, config=compacted())
    for number in range(40):
        put(log, b"k%d" % (number % 4), b"%d" % number)
    settle(log)
    run(log, plan_compaction(log, NOW_MS))
    before = log.compacted_to
    for number in range(40, 80):
        put(log, b"k%d" % (number % 2), b"%d" % number)
    settle(log)
    plan = plan_compaction(log, NOW_MS)
    assert plan.dirty_from == before
    assert plan.dirtiness.clean_bytes > 0
    run(log, plan)
    inactive = [pair for pair in keys_and_values(log) if int(pair[1]) < log.compacted_to]
    assert sorted(key for key, _ in inactive) == sorted({key for key, _ in inactive})


def test_a_pass_whose_memory_for_keys_is_full_stops_there_and_the_next_one_goes_on(tmp_path):
    log = open_log(tmp_path, config=compacted())
    for number in range(80):
        put(log, b"key-%d" % (number % 40), b"%d" % number)
    settle(log)
    ends = []
    while (plan := plan_compaction(log, NOW_MS)) is not None:
        from msgspec.structs import replace

        run(log, replace(plan, keys_max=8))
        ends.append(log.compacted_to)
    assert len(ends) > 2
    assert ends == sorted(set(ends))
    expected = {b"key-%d" % (number % 40): b"%d" % number for number in range(80)}
    assert dict(keys_and_values(log)) == expected


def test_full_segments_of_which_nothing_is_left_become_one(tmp_path):
    log = open_log(tmp_path, config=compacted())
    for number in range(200):
        put(log, b"k", b"%d" % number)
    settle(log)
    assert len(log.segments) > 15
    run(log, plan_compaction(log, NOW_MS))
    assert len(log.segments) == 2
    with log.read(0, max_bytes=1 << 20) as piece:
        assert piece.next_offset == log.segments.active.base_offset


def test_segments_whose_records_stay_keep_their_size(tmp_path):
    log = open_log(tmp_path, config=compacted())
    for number in range(60):
        put(log, b"key-%d" % number, b"v" * 20)
    settle(log)
    before = [segment.base_offset for segment in log.segments.all]
    run(log, plan_compaction(log, NOW_MS))
    assert [segment.base_offset for segment in log.segments.all] == before


def test_a_marker_goes_after_its_transaction_and_the_time_of_a_tombstone(tmp_path):
    log = open_log(tmp_path, config=compacted(segment_bytes=250))

    def transaction(number, *, is_commit):
        put(log, b"k", b"%d" % number, producer_id=9, sequence=number, attributes=TRANSACTIONAL)
        end = marker(producer_id=9, is_commit=is_commit)
        log.append_as_leader(end, leader_epoch=0, now_ms=NOW_MS, is_from_client=False)

    transaction(0, is_commit=False)
    transaction(1, is_commit=True)
    transaction(2, is_commit=True)
    for number in range(6):
        put(log, b"other", b"%d" % number)
    settle(log)
    run(log, plan_compaction(log, NOW_MS), NOW_MS)
    markers = [header for header in read_all(log) if header.is_control]
    # an empty batch of the second one's transaction still ends a segment
    assert [header.has_delete_horizon for header in markers] == [True, False, False]
    assert len(log.aborted_transactions(0, log.log_end_offset)) == 1
    for now_ms in (NOW_MS + 101, NOW_MS + 202):
        for number in range(6):
            put(log, b"other", b"%d" % number)
        settle(log)
        run(log, plan_compaction(log, now_ms), now_ms)
    assert [header.base_offset for header in read_all(log) if header.is_control] == [5]
    assert log.aborted_transactions(0, log.log_end_offset) == []


def compact_until_markers_without_records_are_gone(log):
    for now_ms in (NOW_MS, NOW_MS + 101, NOW_MS + 202):
        put(log, b"k", b"later", time_ms=now_ms)
        put(log, b"k", b"last" * 100, time_ms=now_ms)
        settle(log)
        run(log, plan_compaction(log, now_ms), now_ms)


def stable_after_a_replay(log):
    """The last stable offset for a replica that knows only the log, as after a crash."""
    log.abandon()
    again = open_log(log.directory, config=log.config)
    again.advance_high_watermark(again.log_end_offset)
    return again.last_stable_offset


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_marker_stays_while_the_last_batch_of_its_producer_does(tmp_path, is_commit):
    log = open_log(tmp_path, config=compacted())
    put(log, b"k", b"0", producer_id=9, sequence=0, attributes=TRANSACTIONAL)
    log.append_as_leader(
        marker(producer_id=9, is_commit=is_commit), leader_epoch=0, now_ms=NOW_MS, is_from_client=False
    )
    compact_until_markers_without_records_are_gone(log)
    kept = [(header.base_offset, header.record_count) for header in read_all(log) if header.producer_id == 9]
    assert kept == [(0, 0), (1, 1)]
    assert bool(log.aborted_transactions(0, 2)) is not is_commit
    assert stable_after_a_replay(log) == log.log_end_offset


def test_a_marker_stays_while_the_last_batch_of_a_segment_belongs_to_its_transaction(tmp_path):
    log = open_log(tmp_path, config=compacted(segment_bytes=700))
    put(log, b"stays", b"v" * 500)
    put(log, b"k", b"0", producer_id=9, sequence=0, attributes=TRANSACTIONAL)
    log.roll_if_due(LONG_MAX)
    log.append_as_leader(marker(producer_id=9, is_commit=True), leader_epoch=0, now_ms=NOW_MS, is_from_client=False)
    put(log, b"stays too", b"v" * 500)
    log.producers.expire(NOW_MS, 0)
    compact_until_markers_without_records_are_gone(log)
    kept = [(header.base_offset, header.record_count) for header in read_all(log) if header.producer_id == 9]
    assert kept == [(1, 0), (2, 1)]
    assert stable_after_a_replay(log) == log.log_end_offset


def test_a_removed_marker_that_ends_a_segment_is_cleaned_again(tmp_path):
    log = open_log(tmp_path, config=compacted(segment_bytes=700))
    put(log, b"stays", b"v" * 400)
    put(log, b"k", b"0", producer_id=9, sequence=0, attributes=TRANSACTIONAL)
    log.append_as_leader(marker(producer_id=9, is_commit=True), leader_epoch=0, now_ms=NOW_MS, is_from_client=False)
    put(log, b"stays too", b"v" * 500)
    log.producers.expire(NOW_MS, 0)
    compact_until_markers_without_records_are_gone(log)
    kept = [(header.base_offset, header.record_count) for header in read_all(log) if header.producer_id == 9]
    assert kept == [(2, 0)]
    assert stable_after_a_replay(log) == log.log_end_offset
