"""Passes over logs that are damaged, change meanwhile, or are interrupted by a crash."""

import errno
import os
from pathlib import Path

import pytest

from broker.log.cleaning.cleaner import clean
from broker.log.cleaning.log_cleaning import LogCleaning, in_a_thread
from broker.log.directories import checkpoints
from broker.log.directories.log_store import LogStore
from broker.log.errors import StorageError
from broker.settings.core.topic_configs import LogConfig
from runtime.disk import RealDisk, write_file
from tests.support.disks.compacted_logs import ID, compacted, keys_and_values, put, settle
from tests.support.disks.faulty_disk import FaultyDisk
from tests.support.disks.logs_on_disk import NOW_MS, open_log


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
    assert len(await cleaning.run(logs, may_clean=lambda _: True)) == 2
    assert len(await cleaning.run(logs, may_clean=lambda _: True)) == 1


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
    (sentence,) = await cleaning.run(logs, may_clean=lambda _: True)
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
    await store.cleaning.run(store, may_clean=lambda _: True)
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


async def test_a_pass_replaces_nothing_before_it_is_on_disk_how_far_it_went(tmp_path):
    disk = FaultyDisk(str(tmp_path))
    store = LogStore([str(tmp_path)], disk, now_ms=lambda: NOW_MS, clean=in_a_thread(RealDisk()))
    store.open(node_id=1, cluster_id="c")
    store.load(lambda topic: LogConfig())
    log = store.open_or_create("t", 0, topic_id=ID, config=compacted())
    for number in range(40):
        put(log, b"k%d" % (number % 3), b"%d" % number)
    settle(log)
    before = keys_and_values(log)
    for _ in range(2):
        disk.fail_next("write", f"{checkpoints.THINNED}.tmp", code=errno.ENOSPC)
        assert await store.compact() == []
        assert keys_and_values(log) == before
        assert not [name for name in os.listdir(log.directory) if name.endswith(".cleaned")]
    assert len(await store.compact()) == 1
    assert len(keys_and_values(log)) < len(before)
    store.abandon()


async def test_a_pass_writes_nothing_of_a_log_into_files_of_all_logs(tmp_path):
    """It would take a time that grows with the square of the number of logs."""
    disk = FaultyDisk(str(tmp_path))
    store = LogStore([str(tmp_path)], disk, now_ms=lambda: NOW_MS, clean=in_a_thread(RealDisk()))
    store.open(node_id=1, cluster_id="c")
    store.load(lambda topic: LogConfig())
    for partition in range(5):
        log = store.open_or_create("t", partition, topic_id=ID, config=compacted())
        for number in range(30):
            put(log, b"k", b"%d" % number)
        settle(log)
    disk.operations.clear()
    assert len(await store.compact()) == 5
    shared = [path for operation, path in disk.operations if operation == "write" and Path(path).parent == tmp_path]
    # one checkpoint after the pass
    assert len(shared) == 1
    store.abandon()


async def test_a_truncation_lowers_where_records_may_be_missing_also_for_the_next_start(store, tmp_path):
    log = store.open_or_create("t", 0, topic_id=ID, config=compacted())
    for number in range(40):
        put(log, b"k%d" % (number % 3), b"%d" % number)
    settle(log)
    assert await store.compact()
    log.truncate_fully_and_start_at(0)
    for number in range(40):
        put(log, b"k%d" % (number % 3), b"%d" % number)
    store.close()

    again = LogStore([str(tmp_path)], RealDisk(), now_ms=lambda: NOW_MS)
    again.open(node_id=1, cluster_id="c")
    again.load(lambda topic: compacted())
    assert again.get("t", 0).whole_end_below(20) == 20
    again.abandon()


async def test_a_log_whose_thinned_checkpoint_is_damaged_may_lack_records_up_to_its_end(store, tmp_path):
    log = store.open_or_create("t", 0, topic_id=ID, config=compacted())
    for number in range(40):
        put(log, b"k%d" % (number % 3), b"%d" % number)
    settle(log)
    assert await store.compact()
    write_file(RealDisk(), f"{log.directory}/{checkpoints.THINNED}", b"0\n1\nnine\n", is_durable=False)
    store.close()

    again = LogStore([str(tmp_path)], RealDisk(), now_ms=lambda: NOW_MS)
    again.open(node_id=1, cluster_id="c")
    reports = again.load(lambda topic: compacted())
    assert again.get("t", 0).whole_end_below(39) == 0
    assert any(checkpoints.THINNED in note for report in reports for note in report.notes)
    again.abandon()
