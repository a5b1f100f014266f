"""An archive of a real log. Promised: the archive has each range once over all runs, killed ones
too, and its report names damaged files, lost files and holes.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from runtime.process import OperationalFailure
from spark_jobs.archiving.archive_run import ArchiveReport, ArchiveRequest, ArchiveRun
from spark_jobs.archiving.core.claims import Claim
from spark_jobs.archiving.core.manifest import archived_ends
from spark_jobs.archiving.core.restored_records import PROVENANCE
from spark_jobs.archiving.expiry import expire
from spark_jobs.archiving.lock import CLAIMS, ArchiveLock
from spark_jobs.archiving.record_restore import restored_records, write_log
from spark_jobs.archiving.restore import planned
from spark_jobs.archiving.store import MANIFESTS, ArchiveStore
from spark_jobs.archiving.verification import verify
from spark_jobs.logs.core.splits import SPLIT_OFFSETS_MIN, Split
from spark_jobs.logs.log_reader import read_splits
from spark_jobs.logs.stored_rows import opened_records
from tests.spark.conftest import TwoLogs
from tests.support.clients.kafka_clients import delete_records
from tests.support.disks.log_batches import Record
from tests.support.disks.log_batches import batch as batch_of
from tests.support.eventually import eventually_sync
from wire.batches.records import printable_name

pytestmark = pytest.mark.timeout(360)

NOW_MS = round(time.time() * 1000)
DAY_MS = 86_400_000
PARTITION_LEADER_EPOCH_POSITION = 15
"""The last byte of a batch's leader epoch, which no checksum covers."""


def batch(*values: bytes | Record, timestamp_ms: int = NOW_MS) -> bytes:
    return batch_of(list(values), timestamp_ms=timestamp_ms)


class Archive:
    """An archive of broker a's topic in a directory."""

    def __init__(self, spark: SparkSession, logs: TwoLogs, directory: Path) -> None:
        self.spark = spark
        self.logs = logs
        self.directory = directory
        self.address = directory.as_uri()
        self.starts = 0

    def session(self) -> SparkSession:
        self.starts += 1
        return self.spark

    def request(self, **fields: object) -> ArchiveRequest:
        return ArchiveRequest(bootstrap=self.logs.a.bootstrap, to=self.address, topics=self.logs.topic, **fields)  # type: ignore[arg-type]

    def run(self, **fields: object) -> ArchiveReport:
        return ArchiveRun(self.request(**fields)).run(self.session, cores=2)

    def files(self, suffix: str) -> list[Path]:
        return sorted(self.directory.rglob(f"*{suffix}"))

    def problems(self) -> tuple[str, ...]:
        return verify(self.session, self.address).problems


@pytest.fixture
def archive(spark: SparkSession, logs: TwoLogs, tmp_path: Path) -> Archive:
    return Archive(spark, logs, tmp_path / "archive")


def spans(report: ArchiveReport) -> list[tuple[int, int]]:
    return [(one.first_offset, one.end_offset) for one in report.ranges]


def test_runs_store_each_range_once_as_the_bytes_of_the_log_and_a_dry_run_stores_nothing(archive: Archive) -> None:
    logs = archive.logs
    logs.append(logs.a, batch(b"1", b"2"), batch(b"3"))
    dry = ArchiveRun(archive.request()).dry_run(cores=2)
    assert (dry.planned_offsets, archive.directory.exists()) == (3, False)
    assert spans(archive.run()) == [(0, 3)]
    starts = archive.starts
    assert (archive.run().manifests, spans(archive.run()), archive.starts) == ((), [], starts)
    logs.append(logs.a, batch(b"4", b"5"))
    report = archive.run(is_until_end=True)
    assert (spans(report), report.manifests) == ([(3, 5)], (2,))
    assert b"".join(file.read_bytes() for file in archive.files(".batches")) == logs.segment(logs.a).read_bytes()
    assert archive.problems() == ()
    (one,) = report.ranges
    assert archive.files(".batches")[1].name == "0-00000000000000000003-00000000000000000005.batches"
    assert (one.records, one.batches, one.leader_epochs) == (2, 1, ((0, 3),))


def test_the_next_run_replaces_the_files_of_a_run_that_was_killed_before_its_manifest(archive: Archive) -> None:
    logs = archive.logs
    logs.append(logs.a, batch(b"1"))
    archive.run()
    logs.append(logs.a, batch(b"2"))
    archive.run()
    (archive.directory / "manifests" / "00000002.json").unlink()
    logs.append(logs.a, batch(b"3"))
    checked = verify(archive.session, archive.address)
    assert (len(checked.unnamed_files), checked.problems) == (1, ())
    assert spans(archive.run()) == [(1, 3)]
    assert [file.name.split("-")[1:] for file in archive.files(".batches")] == [
        [f"{0:020d}", f"{1:020d}.batches"],
        [f"{1:020d}", f"{3:020d}.batches"],
    ]


def test_a_changed_byte_a_lost_file_and_a_lost_manifest_are_named(archive: Archive) -> None:
    logs = archive.logs
    for values in ((b"1",), (b"2",), (b"3",)):
        logs.append(logs.a, batch(*values))
        archive.run()
    assert archive.problems() == ()
    first, second, _third = archive.files(".batches")
    kept = first.read_bytes()
    first.write_bytes(kept[:-1] + bytes([kept[-1] ^ 1]))
    second.unlink()
    rotten, lost = archive.problems()
    assert first.name in rotten
    assert "checksum" in rotten
    assert second.name in lost
    assert "missing" in lost
    first.write_bytes(kept)
    (archive.directory / "manifests" / "00000002.json").unlink()
    assert archive.problems() == (
        "manifests are missing: 00000002",
        f"{logs.topic}-0: a range begins at offset 2, expected 1",
    )


def test_each_range_is_compared_with_the_digests_of_a_site(archive: Archive) -> None:
    logs = archive.logs
    for values in ([b"1"] * 3_000, [b"2"] * 3_000, [b"3"] * 3_000):
        logs.append(logs.a, batch(*values))
        archive.run()
    checked = verify(archive.session, archive.address, bootstrap=logs.a.bootstrap)
    assert (checked.problems, checked.compared_ranges, checked.not_compared) == ((), 3, ())
    _, second, _ = archive.files(".batches")
    manifest = archive.directory / "manifests" / "00000002.json"
    kept, rewritten = second.read_bytes(), bytearray(second.read_bytes())
    rewritten[PARTITION_LEADER_EPOCH_POSITION] ^= 1
    second.write_bytes(rewritten)
    manifest.write_text(manifest.read_text().replace(sha256(kept).hexdigest(), sha256(rewritten).hexdigest()))
    assert archive.problems() == ()
    delete_records(logs.a.bootstrap, logs.topic, 3_000)
    checked = verify(archive.session, archive.address, bootstrap=logs.a.bootstrap)
    assert checked.problems == (f"{logs.topic}-0 offsets 3000 to 5999 differ from the log of the site",)
    assert checked.compared_ranges == 2
    assert checked.not_compared == (
        f"{logs.topic}-0 offsets 0 to 2999: the site has deleted them, or does not have them yet",
    )
    elsewhere = verify(archive.session, archive.address, bootstrap=logs.b.bootstrap)
    assert (elsewhere.problems, elsewhere.compared_ranges) == ((), 0)
    assert all("no topic with this id" in reason for reason in elsewhere.not_compared)


def test_records_that_the_source_deleted_before_their_archive_are_a_hole_in_report_and_manifest(
    archive: Archive,
) -> None:
    logs = archive.logs
    logs.append(logs.a, batch(b"1"))
    archive.run()
    logs.append(logs.a, batch(b"2"), batch(b"3"))
    delete_records(logs.a.bootstrap, logs.topic, 2)
    report = archive.run()
    assert [(hole.first_offset, hole.end_offset) for hole in report.holes] == [(1, 2)]
    document = json.loads((archive.directory / "manifests" / "00000002.json").read_text())
    assert document["holes"][0]["end_offset"] == 2
    assert (spans(report), archive.problems()) == ([(2, 3)], ())


def test_a_damaged_batch_ends_the_archive_of_its_partition_and_is_named(archive: Archive) -> None:
    logs = archive.logs
    logs.append(logs.a, batch(b"1"), batch(b"2"), batch(b"3"))
    size = len(batch(b"1"))
    with logs.segment(logs.a).open("r+b") as segment:
        segment.seek(2 * size - 2)
        segment.write(b"?")
    report = archive.run()
    assert (spans(report), len(report.problems)) == ([(0, 1)], 1)
    assert "offset 1 is damaged" in report.problems[0]


def test_records_are_parquet_by_topic_and_day_that_spark_sql_reads(archive: Archive) -> None:
    logs, spark = archive.logs, archive.spark
    logs.append(logs.a, batch((b"k", b"v"), b"w"), batch(b"x", timestamp_ms=NOW_MS - DAY_MS))
    report = archive.run(format="records")
    assert (spans(report), report.as_document()["records"]) == ([(0, 3)], 3)
    logs.append(logs.a, batch(b"y"))
    archive.run(format="records")
    spark.read.parquet(f"{archive.address}/records").createOrReplaceTempView("archived")
    rows = spark.sql("select * from archived order by offset").collect()
    assert [(row.topic, row.partition, row.offset, row.key, row.value) for row in rows] == [
        (logs.topic, 0, 0, b"k", b"v"),
        (logs.topic, 0, 1, None, b"w"),
        (logs.topic, 0, 2, None, b"x"),
        (logs.topic, 0, 3, None, b"y"),
    ]
    assert {(row.timestamp_type, row.leader_epoch) for row in rows} == {("CreateTime", 0)}
    assert len({row.day for row in rows}) == 2
    assert archive.problems() == ()
    with pytest.raises(OperationalFailure, match="holds records"):
        archive.run()


def test_records_are_written_again_in_order_with_headers_that_name_their_former_place(archive: Archive) -> None:
    logs = archive.logs
    times = [NOW_MS, NOW_MS - DAY_MS, NOW_MS]
    for number, timestamp_ms in enumerate(times):
        logs.append(logs.a, batch((b"k%d" % number, b"v%d" % number), timestamp_ms=timestamp_ms))
    delete_records(logs.a.bootstrap, logs.topic, 1)
    assert archive.run(format="records").problems == ()
    with pytest.raises(OperationalFailure, match="is not empty"):
        planned(archive.address, logs.a.bootstrap, logs.topic)
    plan = planned(archive.address, logs.b.bootstrap, logs.topic)
    report = restored_records(archive.spark, plan, address=archive.address, bootstrap=logs.b.bootstrap)
    assert (report.topics, report.offsets) == ((logs.topic,), 2)
    split = Split(site="b", topic=logs.topic, partition=0, first_offset=0, until_offset=2, is_first=True)
    found = [one for _, stored in read_splits(logs.b.bootstrap, [split]) for _, one in opened_records(stored)]
    assert [(one.offset, one.key, one.value) for one in found] == [(0, b"k1", b"v1"), (1, b"k2", b"v2")]
    for number, one in enumerate(found, 1):
        values = [logs.topic, "0", str(number), str(times[number])]
        assert one.timestamp_ms == times[number]
        assert [(printable_name(name), value) for name, value in one.headers] == [
            (name, value.encode()) for name, value in zip(PROVENANCE, values, strict=True)
        ]
    # as by a task that Spark repeats after the death of its worker
    with pytest.raises(OperationalFailure, match="an attempt that did not end has written to it"):
        write_log(archive.address, logs.b.bootstrap, plan.logs[0])


def test_an_address_without_an_archive_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(OperationalFailure, match="no manifest"):
        verify(lambda: spark, tmp_path.as_uri())
    with pytest.raises(OperationalFailure, match="accepted"):
        ArchiveStore.at("ftp://somewhere/archive")


class Killed(BaseException):
    """The end of a process: no handler of the archive catches it."""


STEPS = (("place", 1), ("place", 2), ("remove", 1), ("write_manifest", 1), ("write_manifest", 2), ("write_manifest", 3))
"""A method of the store and which of its calls: the first manifest takes the number of a former
run, each other one is that of a wave.
"""


def run_killed_after(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, step: tuple[str, int], *, is_before: bool
) -> None:
    """A run that ends as by kill -9 before or after the step. It writes no claim: a claim of this
    process would be that of a live archiver.
    """
    name, calls = step
    real = getattr(ArchiveStore, name)
    calls_done = 0

    def killed(store: ArchiveStore, *arguments: Any) -> None:
        nonlocal calls_done
        calls_done += 1
        if calls_done < calls or not is_before:
            real(store, *arguments)
        if calls_done == calls:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(ArchiveStore, name, killed)
        patched.setattr("spark_jobs.archiving.archive_run.in_waves", in_waves_here)
        patched.setattr(ArchiveLock, "_withdraw", lambda *_: None)
        patched.setattr(ArchiveLock, "_write", lambda *_: None)
        patched.setattr(ArchiveLock, "check", lambda _: None)
        with pytest.raises(Killed):
            archive.run(wave_bytes=1)


def in_waves_here(_spark: Any, items: Sequence[Any], work: Any, *_: Any) -> list[tuple[Any, Any]]:
    """The work of workers in this process, where a step is killed."""
    return [(item, work(item)) for item in items]


@pytest.mark.parametrize("is_before", [pytest.param(True, marks=pytest.mark.long), False])
@pytest.mark.parametrize("step", STEPS)
def test_a_run_that_is_killed_at_a_step_stores_no_range_twice(
    archive: Archive, monkeypatch: pytest.MonkeyPatch, step: tuple[str, int], *, is_before: bool
) -> None:
    logs, store = archive.logs, ArchiveStore.at(archive.address)
    logs.append(logs.a, batch(b"1"))
    archive.run()
    leftover = archive.directory / "batches" / "leftover"
    leftover.write_bytes(b"of an earlier run")
    for _ in range(3):
        logs.append(logs.a, batch(*[b"2"] * SPLIT_OFFSETS_MIN))
    run_killed_after(archive, monkeypatch, step, is_before=is_before)
    waves = {("place", 2): 1, ("write_manifest", 2): not is_before, ("write_manifest", 3): 2 - is_before}.get(step, 0)
    (kept,) = archived_ends(store.manifests()).values()
    assert kept == 1 + waves * SPLIT_OFFSETS_MIN
    logs.append(logs.a, batch(b"3"))
    assert spans(archive.run())[0][0] == kept
    assert not leftover.exists()
    assert archive.problems() == ()
    assert b"".join(file.read_bytes() for file in archive.files(".batches")) == logs.segment(logs.a).read_bytes()


def test_one_archiver_at_a_time_writes_and_a_claim_of_a_dead_one_is_no_obstacle(archive: Archive) -> None:
    logs = archive.logs
    logs.append(logs.a, batch(b"1"))
    store = ArchiveStore.at(archive.address)
    with ArchiveLock(store).held():
        with pytest.raises(OperationalFailure, match=f"in use by process {os.getpid()} at"):
            archive.run()
        assert len(store.paths(CLAIMS)) == 1
    claims = archive.directory / CLAIMS
    of_a_dead_process = Claim(claim_id="dead", host=socket.gethostname(), pid=os.getpid(), process_started_ticks=1)
    of_another_machine = Claim(claim_id="away", host="elsewhere", pid=1, process_started_ticks=1)
    for claim in (of_a_dead_process, of_another_machine):
        (claims / f"{claim.claim_id}.json").write_text(json.dumps(claim.as_document()))
    with ArchiveLock(store, lease_ms=300).held():
        # the owner may be writing its claim once more, beside the one that is in force
        (kept,) = [path for path in store.paths(CLAIMS) if path.endswith(".json")]
        assert kept.rpartition("/")[2] not in ("dead.json", "away.json")
    lost = ArchiveLock(store)
    with lost.held():
        for path in store.paths(CLAIMS):
            store.remove(path)
        with pytest.raises(OperationalFailure, match="lock was lost"):
            lost.check()
    assert spans(archive.run()) == [(0, 1)]


def test_retention_lets_go_the_oldest_ranges_and_the_next_run_goes_on_behind_them(archive: Archive) -> None:
    logs = archive.logs
    for values in ((b"1",), (b"2",), (b"3",)):
        logs.append(logs.a, batch(*values))
        archive.run()
    size = len(batch(b"1"))
    dry = expire(archive.address, bytes_max=size, is_dry_run=True)
    assert (len(dry.ranges), dry.kept_bytes, len(archive.files(".batches"))) == (2, size, 3)
    assert len(expire(archive.address, bytes_max=size).ranges) == 2
    assert [file.name.split("-")[1] for file in archive.files(".batches")] == [f"{2:020d}"]
    assert archive.problems() == ()
    assert expire(archive.address, older_than_ms=0).kept_bytes == 0
    assert archive.files(".batches") == []
    assert archive.problems() == ()
    logs.append(logs.a, batch(b"4"))
    assert spans(archive.run()) == [(3, 4)]
    with pytest.raises(OperationalFailure, match="no archive"):
        expire((archive.directory / "nothing").as_uri(), bytes_max=0)


@pytest.mark.long
@pytest.mark.parametrize("folder", [CLAIMS, ".unfinished", "batches", MANIFESTS])
def test_a_killed_archiver_is_followed_by_the_next_one(archive: Archive, folder: str) -> None:
    """Killed as soon as it has written its claim, a part of a file, a file, a wave's manifest."""
    logs = archive.logs
    for number in range(100):
        logs.append(logs.a, batch(*(os.urandom(400) for _ in range(500)), timestamp_ms=NOW_MS + number))
    command = [sys.executable, "-m", "cli.main", "archive", "--bootstrap-server", logs.a.bootstrap]
    command += ["--to", archive.address, "--topics", logs.topic, "--wave-bytes", "1"]
    process = subprocess.Popen(command, start_new_session=True)
    eventually_sync(lambda: any((archive.directory / folder).glob("**/*")))
    os.killpg(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    kept = archived_ends(ArchiveStore.at(archive.address).manifests())
    assert kept or folder != MANIFESTS
    assert spans(archive.run())[0][0] == next(iter(kept.values()), 0)
    assert archive.problems() == ()
    assert b"".join(file.read_bytes() for file in archive.files(".batches")) == logs.segment(logs.a).read_bytes()
