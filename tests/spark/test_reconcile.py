"""Reconciliation of two real logs. Promised: equal is said of equal logs alone, and every
difference is named by its offsets.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from deploy.parts import spark_environment
from spark_jobs.core.verdict import ReconciliationReport, Verdict
from spark_jobs.reconcile import Request, reconcile, write_report
from tests.spark.conftest import TwoLogs
from tests.support.disks.log_batches import Record
from tests.support.disks.log_batches import batch as batch_of
from tests.support.processes.ports import free_port

pytestmark = pytest.mark.timeout(360)

REPOSITORY = Path(__file__).parents[2]
NOW_MS = round(time.time() * 1000)


def batch(values: Sequence[bytes | Record]) -> bytes:
    """A batch of today: an old one would be let go by retention while a test runs."""
    return batch_of(values, timestamp_ms=NOW_MS)


def compare(spark: SparkSession, logs: TwoLogs, **fields: Any) -> ReconciliationReport:
    """Compare the topic at both brokers without waiting for anything."""
    request = Request(
        source_site="a",
        target_site="b",
        source_bootstrap=logs.a.bootstrap,
        target_bootstrap=logs.b.bootstrap,
        topic_whitelist=(logs.topic,),
        settle_timeout_ms=0,
    )
    return reconcile(spark, Request(**{**{name: getattr(request, name) for name in request.__slots__}, **fields}))


def found(report: ReconciliationReport) -> list[tuple[str, int, int]]:
    """Findings as kind, first and last offset."""
    return [(str(one.kind), one.first_offset, one.last_offset) for one in report.findings]


def html_of(report: ReconciliationReport) -> str:
    """The report's page."""
    with tempfile.TemporaryDirectory() as directory:
        write_report(report, Path(directory))
        return (Path(directory) / "report.html").read_text()


def ten(number: int, *, changed: int = -1) -> bytes:
    """A batch of ten records; the one at `changed` is different."""
    return batch([b"other" if index == changed else f"{number}-{index}".encode() for index in range(10)])


def test_equal_logs_are_equal_in_every_range_and_the_report_says_so_in_every_form(
    spark: SparkSession, logs: TwoLogs, tmp_path: Path
) -> None:
    logs.append_both(*(ten(number) for number in range(12)))
    report = compare(spark, logs, range_offsets=50)
    assert report.verdict is Verdict.EQUAL, report
    (partition,) = report.partitions
    assert [(one.start_offset, one.source_records, one.target_records) for one in partition.ranges] == [
        (0, 50, 50),
        (50, 50, 50),
        (100, 20, 20),
    ]
    assert partition.source == partition.target
    assert (partition.source.records, partition.source.batches, partition.source.end_offset) == (120, 12, 120)
    write_report(report, tmp_path)
    document = json.loads((tmp_path / "report.json").read_text())
    assert (document["verdict"], document["exit_code"], document["records_source"]) == ("equal", 0, 120)
    assert "equal" in (tmp_path / "report.html").read_text()
    assert pq.read_table(tmp_path / "ranges.parquet").column("is_equal").to_pylist() == [True] * 3
    assert pq.read_table(tmp_path / "findings.parquet").num_rows == 0


def test_until_a_time_only_what_lies_before_it_is_compared_at_a_moving_end(spark: SparkSession, logs: TwoLogs) -> None:
    before, after = batch_of([b"1", b"2"], timestamp_ms=NOW_MS - 5000), batch_of([b"3", b"4"], timestamp_ms=NOW_MS)
    logs.append_both(before, after)
    logs.append(logs.a, after, after)
    assert compare(spark, logs).verdict is Verdict.DIFFERENT
    report = compare(spark, logs, until_ms=NOW_MS - 1000)
    assert report.verdict is Verdict.EQUAL, report
    (partition,) = report.partitions
    assert (partition.source.records, partition.target.records, partition.source.end_offset) == (2, 2, 2)
    assert "only records before" in html_of(report)
    logs.append(logs.b, after)
    assert compare(spark, logs, until_ms=NOW_MS - 1000).verdict is Verdict.EQUAL


def test_what_has_not_arrived_before_the_time_is_missing(spark: SparkSession, logs: TwoLogs) -> None:
    before, after = batch_of([b"1", b"2"], timestamp_ms=NOW_MS - 5000), batch_of([b"3", b"4"], timestamp_ms=NOW_MS)
    logs.append_both(before)
    logs.append(logs.a, before, after, after)
    assert found(compare(spark, logs, until_ms=NOW_MS - 1000)) == [("missing", 2, 3)]


def test_empty_logs_are_equal(spark: SparkSession, logs: TwoLogs) -> None:
    report = compare(spark, logs)
    assert (report.verdict, report.problems) == (Verdict.EQUAL, ())
    assert [(one.source.records, one.target.records) for one in report.partitions] == [(0, 0)]


def test_what_only_one_log_has_is_missing_or_extra_and_what_differs_is_diverged(
    spark: SparkSession, logs: TwoLogs
) -> None:
    logs.append_both(ten(0))
    logs.append(logs.a, ten(1, changed=4), ten(2), ten(3))
    logs.append(logs.b, ten(1), ten(2))
    report = compare(spark, logs)
    assert found(report) == [("diverged", 10, 19), ("missing", 30, 39)]
    assert report.verdict.exit_code == 1
    reversed_report = compare(
        spark, logs, source_bootstrap=logs.b.bootstrap, target_bootstrap=logs.a.bootstrap, is_deep=True
    )
    assert found(reversed_report) == [("diverged", 14, 14), ("extra", 30, 39)]


def test_the_same_records_in_other_batches_are_told_apart_from_a_difference_when_batches_are_opened(
    spark: SparkSession, logs: TwoLogs
) -> None:
    values = [f"{number}".encode() for number in range(10)]
    logs.append(logs.a, batch(values[:4]), batch(values[4:]))
    logs.append(logs.b, batch(values[:7]), batch(values[7:]))
    assert found(compare(spark, logs)) == [("diverged", 0, 9)]
    report = compare(spark, logs, is_deep=True)
    assert report.verdict is Verdict.EQUAL
    assert [(str(one.kind), one.first_offset, one.last_offset) for one in report.explanations] == [("rebatched", 0, 9)]


def test_bytes_that_rotted_on_disk_are_corrupt_at_the_site_that_has_them(spark: SparkSession, logs: TwoLogs) -> None:
    logs.append_both(*(ten(number) for number in range(3)))
    size = len(ten(0))
    with logs.segment(logs.b).open("r+b") as segment:
        segment.seek(size + size // 2 + 20)
        byte = segment.read(1)
        segment.seek(-1, 1)
        segment.write(bytes([byte[0] ^ 0x40]))
    report = compare(spark, logs)
    corrupt = [one for one in report.findings if one.kind == "corrupt"]
    assert [(one.site, one.first_offset, one.last_offset) for one in corrupt] == [("b", 10, 19)]


def test_a_length_that_rotted_on_disk_ends_the_log_and_is_named(spark: SparkSession, logs: TwoLogs) -> None:
    logs.append_both(*(ten(number) for number in range(3)))
    with logs.segment(logs.b).open("r+b") as segment:
        segment.seek(len(ten(0)) + 16)
        segment.write(b"\x00")  # the magic byte: no batch of today
    report = compare(spark, logs)
    assert report.verdict is not Verdict.EQUAL
    assert report.problems or any(one.kind == "corrupt" and one.site == "b" for one in report.findings)


def test_a_topic_that_the_target_has_not_is_missing_whole(spark: SparkSession, logs: TwoLogs) -> None:
    logs.append(logs.a, ten(0), ten(1))
    assert found(compare(spark, logs)) == [("missing", 0, 19)]


def test_a_site_that_does_not_answer_is_a_problem_and_not_a_difference(
    spark: SparkSession, logs: TwoLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spark_jobs.log_reader.RETRY_BUDGET_MS", 300)
    nowhere = f"127.0.0.1:{free_port()}"
    report = compare(spark, logs, target_bootstrap=nowhere)
    assert report.verdict is Verdict.NOT_COMPARED
    assert report.verdict.exit_code == 2
    assert nowhere in report.problems[0]


def test_a_filter_that_matches_no_topic_compares_nothing_and_says_what_there_is(
    spark: SparkSession, logs: TwoLogs
) -> None:
    """R1."""
    report = compare(spark, logs, topic_whitelist=("ordres", "nothing.*"), topic_blacklist=("x",))
    assert (report.verdict, report.verdict.exit_code) == (Verdict.NOT_COMPARED, 2)
    (problem,) = report.problems
    assert "whitelist 'ordres,nothing.*', blacklist 'x'" in problem
    assert logs.topic in problem


def test_the_job_runs_under_spark_submit(logs: TwoLogs, tmp_path: Path) -> None:
    logs.append_both(ten(0))
    logs.append(logs.a, ten(1))
    submit = Path(sys.executable).parent / "spark-submit"
    arguments = ["--source", logs.a.bootstrap, "--target", logs.b.bootstrap, "--whitelist", logs.topic]
    ended = subprocess.run(
        [
            str(submit),
            "--master",
            "local[2]",
            "--conf",
            "spark.ui.enabled=false",
            "--conf",
            "spark.driver.host=127.0.0.1",
            "--conf",
            "spark.driver.bindAddress=127.0.0.1",
            str(REPOSITORY / "spark_jobs" / "reconcile.py"),
            *arguments,
            "--settle-timeout-ms",
            "0",
            "--out",
            str(tmp_path),
        ],
        env={"PATH": f"{submit.parent}:/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY), **spark_environment()},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 1, ended.stderr
    assert json.loads((tmp_path / "report.json").read_text())["offsets_by_kind"] == {"missing": 10}
