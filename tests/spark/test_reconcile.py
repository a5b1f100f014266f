"""Reconciliation of two real logs. Promised: equal is said of equal logs alone, and every
difference is named by its offsets.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from runtime.process import OperationalFailure
from spark_jobs.reconcile import main
from spark_jobs.reconciling.core.verdict import ReconciliationReport, Verdict
from spark_jobs.reconciling.core.waves import FindingLimits
from spark_jobs.reconciling.report import write_report
from spark_jobs.reconciling.request import Request
from spark_jobs.reconciling.run import reconcile
from spark_jobs.reconciling.run_journal import FILE
from tests.spark.conftest import TwoLogs, fresh_logs
from tests.support.disks.log_batches import Record
from tests.support.disks.log_batches import batch as batch_of
from tests.support.embedded.commands import app
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from tests.support.processes.ports import free_port

pytestmark = pytest.mark.timeout(360)

NOW_MS = round(time.time() * 1000)


def batch(values: Sequence[bytes | Record]) -> bytes:
    """A batch of today: an old one would be let go by retention while a test runs."""
    return batch_of(values, timestamp_ms=NOW_MS)


Brokers = tuple[LoneBroker, LoneBroker]


def no_session() -> SparkSession:
    """Logs of these tests are small enough for the process that compares."""
    raise AssertionError("Spark was asked to start")


def compare(logs: Iterable[TwoLogs], spark: SparkSession | None = None, **fields: Any) -> ReconciliationReport:
    """Compare the topics at both brokers without waiting for anything, in this process or in
    Spark.
    """
    topics = list(logs)
    request = Request(
        source_site="a",
        target_site="b",
        source_bootstrap=topics[0].a.bootstrap,
        target_bootstrap=topics[0].b.bootstrap,
        topic_whitelist=tuple(one.topic for one in topics),
        settle_timeout_ms=0,
    )
    if spark is None:
        return reconcile(no_session, replace(request, **fields))
    return reconcile(lambda: spark, replace(request, **fields, process_offsets_max=0))


def found(report: ReconciliationReport, logs: TwoLogs) -> list[tuple[str, int, int]]:
    """A topic's findings as kind, first and last offset."""
    return [(str(one.kind), one.first_offset, one.last_offset) for one in report.findings if one.topic == logs.topic]


def html_of(report: ReconciliationReport) -> str:
    """The report's page."""
    with tempfile.TemporaryDirectory() as directory:
        write_report(report, Path(directory))
        return (Path(directory) / "report.html").read_text()


def ten(number: int, *, changed: int = -1) -> bytes:
    """A batch of ten records; the one at `changed` is different."""
    return batch([b"other" if index == changed else f"{number}-{index}".encode() for index in range(10)])


def test_equal_logs_are_equal_in_every_range_and_the_program_reports_it_in_every_form(
    spark: SparkSession, brokers: Brokers, tmp_path: Path
) -> None:
    assert spark.version
    logs, empty = fresh_logs(brokers), fresh_logs(brokers, "empty")
    logs.append_both(*(ten(number) for number in range(12)))
    given = ["--source", logs.a.bootstrap, "--target", logs.b.bootstrap, "--settle-timeout-ms", "0"]
    topics = f"{logs.topic},{empty.topic}"
    assert main([*given, "--whitelist", topics, "--range-offsets", "50", "--out", str(tmp_path)]) == 0
    document = json.loads((tmp_path / "report.json").read_text())
    assert (document["verdict"], document["exit_code"], document["records_source"]) == ("equal", 0, 120)
    assert document["problems"] == []
    assert "equal" in (tmp_path / "report.html").read_text()
    ranges = pq.read_table(tmp_path / "ranges.parquet").to_pylist()
    assert [one["is_equal"] for one in ranges] == [True] * 3
    assert pq.read_table(tmp_path / "findings.parquet").num_rows == 0
    (run,) = pq.read_table(tmp_path / "run.parquet").to_pylist()
    assert (run["run_id"], run["verdict"], run["findings"]) == (document["run_id"], "equal", 0)


def test_the_command_compares_small_logs_without_spark(logs: TwoLogs, tmp_path: Path) -> None:
    logs.append_both(*(ten(number) for number in range(12)))
    logs.append(logs.a, ten(12))
    sites = ["--source", logs.a.bootstrap, "--target", logs.b.bootstrap, "--settle-timeout-ms", "0"]
    out = ["--records-only", "--out", str(tmp_path), "--output", "json"]
    found = CliRunner().invoke(app, ["reconcile", *sites, "--whitelist", logs.topic, *out])
    assert found.exit_code == 1, (found.output, found.exception)
    (missing,) = json.loads(found.stdout)["findings"]
    assert (missing["kind"], missing["first_offset"], missing["last_offset"]) == ("missing", 120, 129)
    assert "starting Spark" not in found.stderr
    assert not (tmp_path / "spark.log").exists()


def test_until_a_time_only_what_lies_before_it_is_compared_at_a_moving_end(brokers: Brokers) -> None:
    before, after = batch_of([b"1", b"2"], timestamp_ms=NOW_MS - 5000), batch_of([b"3", b"4"], timestamp_ms=NOW_MS)
    moving, late = fresh_logs(brokers, "moving"), fresh_logs(brokers, "late")
    moving.append_both(before, after)
    moving.append(moving.a, after, after)
    late.append_both(before)
    late.append(late.a, before, after, after)
    report = compare((moving, late), until_ms=NOW_MS - 1000)
    assert (found(report, moving), found(report, late)) == ([], [("missing", 2, 3)])
    (partition,) = (one for one in report.partitions if one.topic == moving.topic)
    assert (partition.source.records, partition.target.records, partition.source.end_offset) == (2, 2, 2)
    assert "only records before" in html_of(report)


@pytest.mark.parametrize("is_in_spark", [False, True])
def test_every_planted_difference_is_named_by_its_offsets(
    request: pytest.FixtureRequest, brokers: Brokers, *, is_in_spark: bool
) -> None:
    """R1: once by headers, once the other way round with the batches opened."""
    spark = request.getfixturevalue("spark") if is_in_spark else None
    values = [f"{number}".encode() for number in range(10)]
    differing, rebatched = fresh_logs(brokers, "differing"), fresh_logs(brokers, "rebatched")
    rotten, missing = fresh_logs(brokers, "rotten"), fresh_logs(brokers, "missing")
    differing.append_both(ten(0))
    differing.append(differing.a, ten(1, changed=4), ten(2), ten(3))
    differing.append(differing.b, ten(1), ten(2))
    rebatched.append(rebatched.a, batch(values[:4]), batch(values[4:]))
    rebatched.append(rebatched.b, batch(values[:7]), batch(values[7:]))
    rotten.append_both(*(ten(number) for number in range(3)))
    size = len(ten(0))
    with rotten.segment(rotten.b).open("r+b") as segment:
        segment.seek(size + size // 2 + 20)
        byte = segment.read(1)
        segment.seek(-1, 1)
        segment.write(bytes([byte[0] ^ 0x40]))
    missing.append(missing.a, ten(0), ten(1))
    every = (differing, rebatched, rotten, missing)
    report = compare(every, spark)
    assert report.verdict.exit_code == 1
    assert found(report, differing) == [("diverged", 10, 19), ("missing", 30, 39)]
    assert found(report, rebatched) == [("diverged", 0, 9)]
    assert found(report, missing) == [("missing", 0, 19)]
    corrupt = [one for one in report.findings if one.kind == "corrupt"]
    assert [(one.topic, one.site, one.first_offset, one.last_offset) for one in corrupt] == [
        (rotten.topic, "b", 10, 19)
    ]
    swapped = {"source_bootstrap": missing.b.bootstrap, "target_bootstrap": missing.a.bootstrap}
    deep = compare((differing, rebatched, missing), spark, **swapped, is_deep=True)
    assert found(deep, differing) == [("diverged", 14, 14), ("extra", 30, 39)]
    assert (found(deep, rebatched), found(deep, missing)) == ([], [("extra", 0, 19)])
    assert [(one.topic, str(one.kind), one.first_offset, one.last_offset) for one in deep.explanations] == [
        (rebatched.topic, "rebatched", 0, 9)
    ]


def test_a_length_that_rotted_on_disk_ends_the_log_and_is_named(logs: TwoLogs) -> None:
    logs.append_both(*(ten(number) for number in range(3)))
    with logs.segment(logs.b).open("r+b") as segment:
        segment.seek(len(ten(0)) + 16)
        segment.write(b"\x00")  # the magic byte: no batch of today
    report = compare([logs])
    assert report.verdict is not Verdict.EQUAL
    assert report.problems or any(one.kind == "corrupt" and one.site == "b" for one in report.findings)


def test_a_site_that_does_not_answer_is_a_problem_and_not_a_difference(
    logs: TwoLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_jobs.logs.log_reader.RETRY_BUDGET_MS", 300)
    nowhere = f"127.0.0.1:{free_port()}"
    report = compare([logs], target_bootstrap=nowhere)
    assert report.verdict is Verdict.NOT_COMPARED
    assert report.verdict.exit_code == 2
    assert nowhere in report.problems[0]


def test_a_filter_that_matches_no_topic_compares_nothing_and_says_what_there_is(logs: TwoLogs) -> None:
    """R1."""
    report = compare([logs], topic_whitelist=("ordres", "nothing.*"), topic_blacklist=("x",))
    assert (report.verdict, report.verdict.exit_code) == (Verdict.NOT_COMPARED, 2)
    (problem,) = report.problems
    assert "whitelist 'ordres,nothing.*', blacklist 'x'" in problem
    assert "a has " in problem


def test_an_interrupted_run_goes_on_with_the_partitions_that_are_not_judged(brokers: Brokers, tmp_path: Path) -> None:
    """Interrupted after each wave."""
    topics = sorted((fresh_logs(brokers, "resumed") for _ in range(3)), key=lambda one: one.topic)
    for logs in topics:
        logs.append_both(ten(0))
    topics[0].append(topics[0].a, ten(1))
    request = Request(
        source_site="a",
        target_site="b",
        source_bootstrap=topics[0].a.bootstrap,
        target_bootstrap=topics[0].b.bootstrap,
        topic_whitelist=tuple(one.topic for one in topics),
        settle_timeout_ms=0,
        wave_offsets=1,
    )
    whole = reconcile(no_session, request, out=tmp_path)
    assert (whole.verdict, len(whole.partitions), whole.resumed_partitions) == (Verdict.DIFFERENT, 3, 0)
    lines = (tmp_path / FILE).read_bytes().splitlines(keepends=True)
    for waves_judged in range(len(lines)):
        (tmp_path / FILE).write_bytes(b"".join(lines[: 1 + waves_judged]) + b'{"torn')
        resumed = reconcile(no_session, request, out=tmp_path, is_resumed=True)
        assert resumed.resumed_partitions == waves_judged
        assert (resumed.run_id, resumed.findings) == (whole.run_id, whole.findings)
        assert [(one.topic, one.source) for one in resumed.partitions] == [
            (one.topic, one.source) for one in whole.partitions
        ]
    with pytest.raises(OperationalFailure, match="another is_deep: False, now True"):
        reconcile(no_session, replace(request, is_deep=True), out=tmp_path, is_resumed=True)
    limited = reconcile(no_session, replace(request, limits=FindingLimits(in_all=1)), out=tmp_path)
    assert (limited.verdict, len(limited.findings), len(limited.skipped)) == (Verdict.DIFFERENT, 1, 2)
    assert {one.reason for one in limited.skipped} == {"the limit of findings is reached"}
