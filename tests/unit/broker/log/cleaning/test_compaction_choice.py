"""The choice of logs to compact: time, first offset, process, and transaction markers."""

import asyncio
import os
from pathlib import Path

import pytest

from broker.log.cleaning.cleaner import clean
from broker.log.cleaning.cleaner_process import CleanerProcess, CleanerProcesses
from broker.log.cleaning.log_cleaning import LogCleaning, in_a_thread
from broker.log.cleaning.log_compaction import plan_compaction, swap_in
from broker.log.directories.checkpoints import CLEANER_OFFSETS, read_offsets
from broker.log.directories.log_store import LogStore
from broker.log.errors import StorageError
from broker.settings.core.topic_configs import LONG_MAX, LogConfig
from runtime.disk import RealDisk
from tests.support.disks.log_batches import TRANSACTIONAL, batch, marker
from tests.support.disks.logs_on_disk import NOW_MS, open_log, read_all
from wire.batches.record_batch import InvalidBatch
from wire.batches.records import decode_records
from wire.protocol.ids import TopicPartition

ID = bytes(range(16))


def compacted(**fields):
    return LogConfig(
        **{
            "is_compacted": True,
            "is_deleted": False,
            "segment_bytes": 600,
            "segment_ms": LONG_MAX,
            "index_interval_bytes": 200,
            "delete_retention_ms": 100,
            **fields,
        }
    )


def put(log, key, value, *, time_ms=NOW_MS, **fields):
    log.append_as_leader(batch([(key, value)], timestamp_ms=time_ms, **fields), leader_epoch=0, now_ms=time_ms)


def settle(log):
    log.advance_high_watermark(log.log_end_offset)
    log.flush_now()


def keys_and_values(log):
    found, offset = [], log.log_start_offset
    while True:
        with log.read(offset, max_bytes=1 << 20) as piece:
            found += [(record.key, record.value) for record in decode_records(piece.read_bytes())]
            offset = piece.next_offset
            if not len(piece):
                return found


def run(log, plan, now_ms=NOW_MS):
    assert asyncio.run(swap_in(log, plan, clean(plan, RealDisk()), log._descriptors, now_ms))


@pytest.fixture
def store(tmp_path):
    now = [NOW_MS]
    made = LogStore([str(tmp_path)], RealDisk(), now_ms=lambda: now[0])
    made.clock = now
    made.open(node_id=1, cluster_id="c")
    made.load(lambda topic: LogConfig())
    yield made
    made.abandon()


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


async def test_a_process_of_its_own_does_the_same_work_and_is_started_again_after_its_death(tmp_path):
    cleaner = CleanerProcess()
    try:
        for name in ("one", "two"):
            log = open_log(tmp_path / name, config=compacted())
            for number in range(40):
                put(log, b"k%d" % (number % 3), b"%d" % number)
            settle(log)
            plan = plan_compaction(log, NOW_MS)
            assert await swap_in(log, plan, await cleaner.clean(plan), log._descriptors, NOW_MS)
            assert len(keys_and_values(log)) < 20
            cleaner._process.kill()
            await cleaner._process.wait()
    finally:
        await cleaner.stop()


async def test_the_cleaner_process_reports_unreadable_files_as_this_process_does(tmp_path):
    log = open_log(tmp_path, config=compacted())
    for number in range(40):
        put(log, b"k%d" % (number % 3), b"%d" % number, codec=1)
    settle(log)
    plan = plan_compaction(log, NOW_MS)
    path = tmp_path / f"{0:020d}.log"
    content = bytearray(path.read_bytes())
    content[61:70] = b"\xff" * 9
    path.write_bytes(content)
    cleaner = CleanerProcess()
    try:
        with pytest.raises(InvalidBatch):
            await cleaner.clean(plan)
        os.unlink(path)
        with pytest.raises(StorageError, match="opening"):
            await cleaner.clean(plan)
    finally:
        await cleaner.stop()


async def test_as_many_logs_are_cleaned_at_the_same_time_as_there_are_threads(tmp_path):
    logs = []
    for name in ("one", "two", "three"):
        log = open_log(tmp_path / name, config=compacted())
        for number in range(40):
            put(log, b"k%d" % (number % 3), b"%d" % number)
        settle(log)
        logs.append(log)
    running, most = 0, 0
    may_end = asyncio.Event()

    async def clean_in_turn(plan):
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 2:
            may_end.set()
        await may_end.wait()
        try:
            return await in_a_thread(RealDisk())(plan)
        finally:
            running -= 1

    cleaning = LogCleaning(logs[0]._descriptors, clean_in_turn, now_ms=lambda: NOW_MS)
    cleaning.threads = 2
    assert len(await cleaning.run(logs)) == 3
    assert most == 2


async def test_two_plans_are_carried_out_in_two_processes_and_the_next_in_one_of_them(tmp_path):
    cleaners = CleanerProcesses()
    try:
        plans = []
        for name in ("one", "two"):
            log = open_log(tmp_path / name, config=compacted())
            for number in range(40):
                put(log, b"k%d" % (number % 3), b"%d" % number)
            settle(log)
            plans.append(plan_compaction(log, NOW_MS))
        await asyncio.gather(*(cleaners.clean(plan) for plan in plans))
        assert len(cleaners._idle) == 2
        await cleaners.clean(plans[0])
        assert len(cleaners._idle) == 2
    finally:
        await cleaners.stop()


async def test_a_log_that_ends_its_cleaner_does_not_keep_the_others_from_their_turn(tmp_path):
    logs = []
    for name in ("one", "two", "three"):
        log = open_log(tmp_path / name, config=compacted())
        for number in range(40):
            put(log, b"k%d" % (number % 3), b"%d" % number)
        settle(log)
        logs.append(log)
    cleanings = iter([StorageError("compacting", "one", "the cleaner process ended")])

    async def moody(plan):
        for failure in cleanings:
            raise failure
        return await in_a_thread(RealDisk())(plan)

    cleaning = LogCleaning(logs[0]._descriptors, moody, now_ms=lambda: NOW_MS)
    assert len(await cleaning.run(logs)) == 2
    assert len(await cleaning.run(logs)) == 1


def damage_first_header(log):
    path = Path(log.segments.first.path)
    sound = path.read_bytes()
    path.write_bytes(sound[:16] + b"\7" + sound[17:])


async def test_a_log_whose_first_header_is_damaged_keeps_no_other_from_its_turn(tmp_path):
    damaged, sound = (LogStore([str(tmp_path / name)], RealDisk(), now_ms=lambda: NOW_MS) for name in ("one", "two"))
    logs = []
    for store in (damaged, sound):
        store.open(node_id=1, cluster_id="c")
        store.load(lambda topic: LogConfig())
        log = store.open_or_create("t", 0, topic_id=ID, config=compacted())
        for number in range(40):
            put(log, b"k%d" % (number % 3), b"%d" % number)
        settle(log)
        store.close()
        if store is damaged:
            damage_first_header(log)
        again = LogStore([store.directories[0].path], RealDisk(), now_ms=lambda: NOW_MS)
        again.open(node_id=1, cluster_id="c")
        again.load(lambda topic: compacted())
        logs.append(again.get("t", 0))
        settle(logs[-1])
    cleaning = LogCleaning(logs[0]._descriptors, in_a_thread(RealDisk()), now_ms=lambda: NOW_MS)
    (sentence,) = await cleaning.run(logs)
    assert "t-0 is compacted" in sentence
    assert (cleaning.figures.cleaned_count, cleaning.figures.uncleanable_count) == (1, 1)


def fill_the_broken(log):
    """Records of three keys in compressed batches, of which the first does not decode."""
    for number in range(40):
        put(log, b"k%d" % (number % 3), b"%d" % number, codec=1)
    settle(log)
    path = Path(log.segments.first.path)
    sound = path.read_bytes()
    path.write_bytes(sound[:61] + b"\xff" * 9 + sound[70:])
    return path, sound


async def test_a_log_that_did_not_decode_is_compacted_once_it_is_repaired(store):
    log = store.open_or_create("t", 0, topic_id=ID, config=compacted())
    path, sound = fill_the_broken(log)
    assert "cannot be compacted" in (await store.compact())[0]
    assert (await store.compact(), store.cleaning.figures.uncleanable_count) == ([], 1)
    path.write_bytes(sound)
    log.note_replaced(0)
    assert "is compacted" in (await store.compact())[0]
    assert store.cleaning.figures.uncleanable_count == 0


async def test_a_log_that_did_not_decode_is_compacted_once_what_did_not_is_truncated(store):
    log = store.open_or_create("t", 0, topic_id=ID, config=compacted())
    fill_the_broken(log)
    assert "cannot be compacted" in (await store.compact())[0]
    log.truncate_fully_and_start_at(0)
    for number in range(40):
        put(log, b"k%d" % (number % 3), b"%d" % number)
    settle(log)
    assert "is compacted" in (await store.compact())[0]


async def test_a_topic_that_is_made_again_is_compacted_though_the_former_one_could_not_be(store):
    fill_the_broken(store.open_or_create("t", 0, topic_id=ID, config=compacted()))
    assert "cannot be compacted" in (await store.compact())[0]
    store.delete(store.get("t", 0))
    again = store.open_or_create("t", 0, topic_id=bytes(range(1, 17)), config=compacted())
    for number in range(40):
        put(again, b"k%d" % (number % 3), b"%d" % number)
    settle(again)
    assert "is compacted" in (await store.compact())[0]
    assert store.cleaning.figures.uncleanable_count == 0


@pytest.mark.parametrize("change", ["the other site leads", "cleanup.policy=delete"])
async def test_a_change_during_a_pass_keeps_it_from_logs_that_must_not_be_compacted(tmp_path, change):
    """The first log has been cleaned by then, but not replaced; the second waits for its turn."""
    copies = set()

    async def clean_and_change(plan):
        result = clean(plan, RealDisk())
        if change == "the other site leads":
            copies.add("t")
        for log in store:
            log.update_config(compacted(is_compacted=change != "cleanup.policy=delete"))
        return result

    store = LogStore([str(tmp_path)], RealDisk(), now_ms=lambda: NOW_MS, clean=clean_and_change)
    store.open(node_id=1, cluster_id="c")
    store.load(lambda topic: LogConfig())
    for partition in range(2):
        log = store.open_or_create("t", partition, topic_id=ID, config=compacted())
        for number in range(30):
            put(log, b"k", b"%d" % number)
        settle(log)
    before = [keys_and_values(log) for log in store]
    assert await store.compact(is_copy=lambda topic: topic in copies) == []
    assert [keys_and_values(log) for log in store] == before
    assert not [name for log in store for name in os.listdir(log.directory) if name.endswith(".cleaned")]
    store.abandon()


async def test_a_log_that_was_truncated_while_it_was_cleaned_keeps_its_records(store):
    """The newer records of their keys are gone."""
    log = store.open_or_create("t", 0, topic_id=ID, config=compacted())
    # the keys of the first segments come again in the last ones
    for number in [*range(20), *range(20, 40), *range(20)]:
        put(log, b"%d" % number, b"v" * 20)
    settle(log)
    before = keys_and_values(log)

    async def clean_and_truncate(plan):
        result = clean(plan, RealDisk())
        async with log.truncation(40):
            log.truncate_to(40)
        return result

    store.cleaning.clean = clean_and_truncate
    assert await store.compact() == []
    assert keys_and_values(log) == before[: log.log_end_offset]
    # a later truncation needs no new copy
    assert log.whole_end_below(30) == 30
    assert not [name for name in os.listdir(log.directory) if name.endswith(".cleaned")]


async def test_a_crash_during_a_pass_does_not_hide_where_records_may_be_missing(store, tmp_path):
    """Segments were replaced, and the checkpoint after the pass was not written."""
    log = store.open_or_create("t", 0, topic_id=ID, config=compacted())
    for number in range(40):
        put(log, b"k%d" % (number % 3), b"%d" % number)
    settle(log)
    await store.checkpoint()
    await store.cleaning.run(store)
    thinned_to = log.compacted_to
    assert thinned_to > 2
    store.abandon()

    again = LogStore([str(tmp_path)], RealDisk(), now_ms=lambda: NOW_MS)
    again.open(node_id=1, cluster_id="c")
    again.load(lambda topic: compacted())
    log = again.get("t", 0)
    assert log.whole_end_below(thinned_to - 1) == 0
    assert log.whole_end_below(thinned_to) == thinned_to
    # what is to be compacted is still known as well
    assert log.compacted_to == 0
    again.abandon()


async def test_a_pass_replaces_nothing_before_it_is_on_disk_how_far_it_went(store):
    log = store.open_or_create("t", 0, topic_id=ID, config=compacted())
    for number in range(40):
        put(log, b"k%d" % (number % 3), b"%d" % number)
    settle(log)
    before, save = keys_and_values(log), store.cleaning.save_thinned

    async def save_nothing():
        raise StorageError("writing", log.directory, "No space left on device")

    store.cleaning.save_thinned = save_nothing
    for _ in range(2):
        assert await store.compact() == []
        assert keys_and_values(log) == before
        assert not [name for name in os.listdir(log.directory) if name.endswith(".cleaned")]
    store.cleaning.save_thinned = save
    assert len(await store.compact()) == 1
    assert len(keys_and_values(log)) < len(before)
