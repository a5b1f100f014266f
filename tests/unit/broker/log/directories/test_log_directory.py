"""Log directories and the store over them: locks, identity, clean and unclean stops,
checkpoints.
"""

import asyncio
import subprocess
import sys

import pytest

from broker.log.directories import checkpoints
from broker.log.directories.checkpoints import (
    CorruptCheckpoint,
    read_epochs,
    read_offsets,
    write_offsets,
)
from broker.log.directories.directory_claim import ForeignDirectory
from broker.log.directories.directory_names import parse_directory_name
from broker.log.directories.log_store import LogStore
from broker.log.errors import DirectoryLocked, StorageError
from broker.log.source_seen import SourceSeen
from broker.settings.core.topic_configs import LogConfig
from runtime.disk import RealDisk
from tests.support.disks.faulty_disk import FaultyDisk
from tests.support.disks.log_batches import batch
from tests.support.disks.logs_on_disk import NOW_MS, fill, read_all
from wire.batches.record_batch import encode_header, read_header
from wire.protocol.ids import TopicPartition

ID = bytes(range(16))
OTHER_ID = bytes(range(1, 17))
SOURCE_FILES = (checkpoints.SOURCE_HIGH_WATERMARKS, checkpoints.SOURCE_SEEN_AT, checkpoints.SOURCE_LOG_EPOCHS)


def store(*paths, disk=None, now_ms=lambda: NOW_MS, node_id=1, cluster_id="c"):
    made = LogStore([str(path) for path in paths], disk or RealDisk(), now_ms=now_ms)
    made.open(node_id=node_id, cluster_id=cluster_id)
    made.reports = made.load(lambda topic: LogConfig())
    return made


def create(logs, topic="t", partition=0, topic_id=ID, **fields):
    return logs.open_or_create(topic, partition, topic_id=topic_id, config=LogConfig(**fields))


def test_a_clean_stop_needs_no_recovery_and_keeps_everything(tmp_path):
    logs = store(tmp_path)
    log = create(logs, "with-dash.and.dots", 3)
    fill(log, 10, leader_epoch=2)
    log.advance_high_watermark(14)
    log.advance_log_start_offset(4)
    logs.close()
    assert (tmp_path / ".kafka_cleanshutdown").read_text() == '{"version":0,"brokerEpoch":-1}'
    again = store(tmp_path)
    reopened = again.get("with-dash.and.dots", 3)
    assert again.reports == []
    assert reopened.recovery.is_clean
    assert (reopened.log_start_offset, reopened.high_watermark, reopened.log_end_offset) == (4, 14, 20)
    assert (reopened.latest_epoch, reopened.topic_id) == (2, ID)
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    again.abandon()


def test_after_a_crash_logs_are_checked_from_the_recovery_point(tmp_path):
    logs = store(tmp_path)
    fill(create(logs), 10)
    logs.abandon()
    with (tmp_path / "t-0" / f"{0:020d}.log").open("ab") as file:
        file.write(b"torn")
    again = store(tmp_path)
    (report,) = again.reports
    (dropped,) = report.dropped
    assert (dropped.offset, dropped.dropped_bytes) == (20, 4)
    assert "header" in dropped.reason
    assert len(read_all(again.get("t", 0))) == 10
    again.close()


def test_a_second_opening_is_refused_by_name_also_from_another_process(tmp_path):
    logs = store(tmp_path)
    with pytest.raises(DirectoryLocked, match=str(tmp_path)):
        store(tmp_path)
    script = (
        "import sys, fcntl; f = open(sys.argv[1], 'r+')\n"
        "try: fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except OSError: sys.exit(7)"
    )
    assert subprocess.run([sys.executable, "-c", script, str(tmp_path / ".lock")], check=False).returncode == 7
    logs.close()
    store(tmp_path).close()


@pytest.mark.parametrize(("node_id", "cluster_id", "named"), [(2, "c", "broker.id=1"), (1, "d", "cluster.id=c")])
def test_a_directory_of_another_broker_or_cluster_is_refused(tmp_path, node_id, cluster_id, named):
    store(tmp_path).close()
    with pytest.raises(ForeignDirectory, match=named):
        store(tmp_path, node_id=node_id, cluster_id=cluster_id)
    store(tmp_path).close()


def test_meta_properties_of_both_versions_are_read(tmp_path):
    (tmp_path / "meta.properties").write_text("#\n#Fri\nversion=1\ncluster.id=c\nnode.id=1\ndirectory.id=x\n")
    store(tmp_path).close()
    with pytest.raises(ForeignDirectory):
        store(tmp_path, node_id=5)


def test_a_new_log_goes_to_the_least_loaded_directory(tmp_path):
    logs = store(tmp_path / "a", tmp_path / "b")
    homes = [logs.home_of(create(logs, "t", partition)) for partition in range(4)]
    assert homes.count(str(tmp_path / "a")) == homes.count(str(tmp_path / "b")) == 2
    logs.close()


def test_a_partition_in_two_directories_is_refused(tmp_path):
    for name in ("a", "b"):
        logs = store(tmp_path / name)
        create(logs)
        logs.close()
    with pytest.raises(StorageError, match="also in"):
        store(tmp_path / "a", tmp_path / "b")


async def test_compacted_logs_shrink_and_one_that_does_not_decode_is_said_once(tmp_path):
    logs = store(tmp_path)
    log, broken = (create(logs, topic, is_compacted=True, segment_bytes=500) for topic in ("a", "b"))
    for number in range(30):
        for target in (log, broken):
            records = batch([(b"k", b"%d" % number)], timestamp_ms=NOW_MS, codec=0 if target is log else 3)
            if target is broken:
                header = read_header(records)
                records = encode_header(header, b"\xff" * 20) + b"\xff" * 20
                records = records[:8] + (69).to_bytes(4, "big") + records[12:]
            target.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS, is_from_client=target is log)
    for target in (log, broken):
        target.advance_high_watermark(target.log_end_offset)
        await target.flush()
    sentences = await logs.compact()
    assert ["compacted up to" in sentences[0], "cannot be compacted" in sentences[1]] == [True, True]
    assert await logs.compact() == []
    assert len(read_all(log)) < 15
    logs.close()


async def test_due_flushes_move_recovery_points_and_one_failing_log_stops_no_other(tmp_path):
    disk = FaultyDisk(str(tmp_path))
    logs = store(tmp_path, disk=disk)
    first, second = create(logs, "a", flush_ms=0), create(logs, "b", flush_ms=0)
    fill(first, 1)
    fill(second, 1)
    disk.fail_next("fdatasync", "a-0/00000000000000000000.log")
    with pytest.raises(StorageError, match="a-0"):
        await logs.flush_due()
    assert (first.recovery_point, second.recovery_point) == (0, 2)
    logs.abandon()


async def test_of_a_new_log_the_names_are_flushed_and_not_what_is_being_written(tmp_path):
    disk = FaultyDisk(str(tmp_path))
    logs = store(tmp_path, disk=disk)
    log = create(logs, "t")
    fill(log, 1)
    assert log.has_unflushed_segments
    await logs.flush_due()
    assert (log.recovery_point, log.has_unflushed_segments) == (0, False)
    synced = [path for operation, path in disk.operations if operation.startswith("f")]
    assert {str(tmp_path), f"{tmp_path}/t-0", f"{tmp_path}/t-0/partition.metadata"} <= set(synced)
    assert not [path for path in synced if path.endswith(".log")]
    logs.close()


async def test_logs_that_waited_longest_are_flushed_when_too_many_keep_a_descriptor(tmp_path):
    logs = store(tmp_path)
    made = [create(logs, "t", number) for number in range(6)]
    await logs.flush_due()
    for number in (3, 1, 5, 0):
        fill(made[number], 1, first_time_ms=1000 - 10 * number)
    logs.unflushed_max = 2
    await logs.flush_due()
    assert [log.partition for log in made if log.unflushed_since_ms is not None] == [0, 1]
    logs.close()


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_mirrors_report_of_the_source_survives_a_restart(tmp_path, is_clean):
    """F2."""
    logs = store(tmp_path)
    log = create(logs)
    create(logs, "own")
    asyncio.run(logs.checkpoint())
    # a broker without copies has no such files
    assert not any((tmp_path / name).exists() for name in SOURCE_FILES)
    log.source = SourceSeen(700, NOW_MS, log_epoch=3)
    if is_clean:
        logs.close()
    else:
        asyncio.run(logs.checkpoint())
        log.source.seen_at_ms += 1
        logs.abandon()
    again = store(tmp_path)
    found = again.get("t", 0).source
    assert (found.high_watermark, found.seen_at_ms, found.log_epoch) == (700, NOW_MS, 3)
    assert not again.get("own", 0).source.is_known
    again.get("t", 0).source.forget()
    again.close()
    once_more = store(tmp_path)
    assert not once_more.get("t", 0).source.is_known
    # nor does a new topic of the name inherit it
    once_more.get("t", 0).source = SourceSeen(800, NOW_MS, log_epoch=3)
    asyncio.run(once_more.checkpoint())
    once_more.delete(once_more.get("t", 0))
    create(once_more)
    once_more.abandon()
    last = store(tmp_path)
    assert not last.get("t", 0).source.is_known
    last.close()


def test_a_truncation_lowers_the_recovery_point_on_disk_first(tmp_path):
    logs = store(tmp_path)
    log = create(logs)
    fill(log, 10)
    log.flush_now()
    asyncio.run(logs.checkpoint())
    log.truncate_to(6)
    path = str(tmp_path / checkpoints.RECOVERY_POINTS)
    assert read_offsets(RealDisk(), path) == {TopicPartition("t", 0): 0}
    logs.close()


@pytest.mark.parametrize(
    "name", [checkpoints.RECOVERY_POINTS, checkpoints.HIGH_WATERMARKS, checkpoints.LOG_START_OFFSETS]
)
@pytest.mark.parametrize(
    "content", [b"", b"1\n0\n", b"0\n2\nt 0 5\n", b"0\n1\nt x 5\n", b"0\n1\nt 5\n", b"\xff\xfe", b"0\n1\nt 0 5"]
)
def test_a_damaged_checkpoint_is_noted_and_loses_nothing(tmp_path, name, content):
    logs = store(tmp_path)
    fill(create(logs), 5)
    logs.close()
    (tmp_path / name).write_bytes(content)
    again = store(tmp_path)
    assert again.get("t", 0).log_end_offset == 10
    is_whole = content in (b"", b"0\n1\nt 0 5")
    assert bool(again.directories[0].notes) is not is_whole
    again.abandon()


@pytest.mark.parametrize(
    "content", [b"", b"version: 0\ntopic_i", b"version: 0\ntopic_id: AAAA", b"\0" * 44, b"\xff\xfe"]
)
def test_a_torn_topic_id_costs_neither_the_start_nor_the_log(tmp_path, content):
    logs = store(tmp_path)
    fill(create(logs), 5)
    fill(create(logs, partition=1, topic_id=OTHER_ID), 5)
    logs.abandon()
    (tmp_path / "t-0" / checkpoints.PARTITION_METADATA).write_bytes(content)
    again = store(tmp_path)
    assert (again.get("t", 0).topic_id, again.get("t", 1).topic_id) == (None, OTHER_ID)
    notes = [note for report in again.reports for note in report.notes]
    assert [f"{tmp_path}/t-0/partition.metadata" in note for note in notes] == [True]
    log = create(again)
    assert (log.topic_id, log.log_end_offset) == (ID, 10)
    again.close()
    last = store(tmp_path)
    assert last.get("t", 0).topic_id == ID
    last.close()


def test_checkpoints_are_read_as_they_were_written_in_kafkas_format(tmp_path):
    path = str(tmp_path / "x")
    offsets = {TopicPartition("a.b_c-d", 7): 2**62, TopicPartition("t", 0): 0}
    write_offsets(RealDisk(), path, offsets)
    assert (tmp_path / "x").read_text() == f"0\n2\na.b_c-d 7 {2**62}\nt 0 0\n"
    assert read_offsets(RealDisk(), path) == offsets
    (tmp_path / "e").write_text("0\n2\n3 5\n2 9\n")
    with pytest.raises(CorruptCheckpoint, match="does not follow"):
        read_epochs(RealDisk(), str(tmp_path / "e"))


def test_a_checkpoint_is_never_half_written(tmp_path):
    disk = FaultyDisk(str(tmp_path))
    path = str(tmp_path / "x")
    write_offsets(disk, path, {TopicPartition("t", 0): 1})
    for operation in ("open", "write", "fdatasync", "rename"):
        disk.fail_next(operation)
        with pytest.raises(StorageError):
            write_offsets(disk, path, {TopicPartition("t", 0): 2})
        assert read_offsets(disk, path) == {TopicPartition("t", 0): 1}


def test_directory_names_are_topic_and_partition():
    assert parse_directory_name("a-b-12") == TopicPartition("a-b", 12)
    for name in ("a", "-1", "a-", "a-x", "t-0.0123456789abcdef0123456789abcdef-delete", "t-0.00-future"):
        assert parse_directory_name(name) is None


async def test_a_copy_of_another_sites_log_is_neither_shortened_nor_compacted(tmp_path):
    logs = store(tmp_path)
    aged = create(logs, "aged", segment_bytes=500, retention_bytes=1000, file_delete_delay_ms=10)
    compacted = create(logs, "compacted", is_compacted=True, segment_bytes=500)
    fill(aged, 50)
    for number in range(30):
        compacted.append_as_leader(batch([(b"k", b"%d" % number)], timestamp_ms=NOW_MS), leader_epoch=0, now_ms=NOW_MS)
    for log in (aged, compacted):
        log.advance_high_watermark(log.log_end_offset)
        await log.flush()
    before = read_all(aged), read_all(compacted)
    assert await logs.maintain(10**9, is_copy=lambda topic: topic in ("aged", "compacted")) == []
    assert await logs.compact(is_copy=lambda topic: True) == []
    assert (read_all(aged), read_all(compacted)) == before
    aged.advance_log_start_offset(40)
    (sentence,) = await logs.maintain(10**9, is_copy=lambda topic: True)
    assert "log start offset" in sentence
    logs.close()
