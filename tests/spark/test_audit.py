"""The audit over two real logs. Promised: each record counts once, after any interruption of a
batch and after kill -9; exactly the missing records are reported; late records, and the counts that
programs publish, are counted; bytes and delay are those of the records.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from deploy.class_archives import spark_environment
from runtime.process import OperationalFailure
from spark_jobs.auditing.audit_run import Audit, AuditRequest, counts_of
from spark_jobs.auditing.core.counts import Count
from spark_jobs.auditing.count_store import AuditStore
from spark_jobs.auditing.report import AuditReport, audited, write_audit
from tests.spark.conftest import TwoLogs, fresh_logs
from tests.spark.test_stream_source import batches_in
from tests.support.disks.log_batches import batch
from tests.support.eventually import eventually_sync
from tests.support.processes.ports import LOOPBACK
from wire.client.raw_client import KafkaClient, NewTopic

pytestmark = pytest.mark.timeout(480)

REPOSITORY = Path(__file__).parents[2]
MINUTE_MS = 60_000
BEGAN_MS = round(time.time() * 1000) // MINUTE_MS * MINUTE_MS - 60 * MINUTE_MS
"""An hour ago: retention keeps it."""


def of_minute(number: int, count: int) -> bytes:
    """A batch of records of one minute."""
    return batch([b"ten bytes."] * count, timestamp_ms=BEGAN_MS + number * MINUTE_MS + 1_000)


class Audited:
    """An audit of the topic at both brokers."""

    def __init__(self, spark: SparkSession, logs: TwoLogs, state: Path) -> None:
        self.spark, self.logs, self.state = spark, logs, state
        self.counts_topic = f"counts-{logs.topic}"

    def run(self, **fields: object) -> None:
        bootstraps = {"a": self.logs.a.bootstrap, "b": self.logs.b.bootstrap}
        given = {"topics": self.logs.topic, **fields}
        request = AuditRequest(sites=bootstraps, state=self.state, **given)  # type: ignore[arg-type]
        Audit(self.spark, request).run_until_end()

    def report(self, *, until_minute: int = 1_000, lateness_ms: int = 0) -> AuditReport:
        return audited(
            self.state,
            reference="a",
            settled_until_ms={self.logs.topic: BEGAN_MS + until_minute * MINUTE_MS},
            alarm_windows=3,
            delay_alarm_ms=0,
            lateness_ms=lateness_ms,
        )

    def records(self, tier: str) -> int:
        return sum(one.records for one in self.report().totals if one.tier == tier)


@pytest.fixture
def audit(spark: SparkSession, logs: TwoLogs, tmp_path: Path) -> Audited:
    return Audited(spark, logs, tmp_path / "audit")


def test_exactly_the_missing_records_are_an_alarm_once_they_last(audit: Audited, tmp_path: Path) -> None:
    logs = audit.logs
    for minute in range(6):
        logs.append(logs.a, of_minute(minute, 20))
        logs.append(logs.b, of_minute(minute, 20 if minute in (0, 2) else 17))
    audit.run()
    assert (audit.records("a"), audit.records("b")) == (120, 108)
    (first,) = audit.report(until_minute=3).judged.gaps
    assert (first.missing, first.windows, first.is_alarm) == (3, 1, False)
    short, lasting = audit.report().judged.gaps
    assert (lasting.missing, lasting.windows, lasting.is_alarm) == (9, 3, True)
    assert (short.tier, short.first_window_ms) == ("b", BEGAN_MS + MINUTE_MS)
    logs.append(logs.b, *(of_minute(minute, 3) for minute in (1, 3, 4, 5)))
    audit.run()
    report = audit.report(lateness_ms=MINUTE_MS)
    assert report.judged.gaps == ()
    assert [one.late for one in report.totals] == [0, 6]
    write_audit(report, tmp_path / "out")
    assert pq.read_table(tmp_path / "out" / "windows.parquet").num_rows == 6
    assert json.loads((tmp_path / "out" / "report.json").read_text())["is_alarm"] is False
    page = (tmp_path / "out" / "report.html").read_text()
    assert "Every settled window balances" in page
    assert page.count("<svg") == 2


@pytest.mark.parametrize("is_written", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_batch_that_is_run_again_counts_each_record_once(
    audit: Audited, is_written: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = audit.logs
    logs.append_both(of_minute(0, 5))
    audit.run()
    logs.append_both(of_minute(1, 7))
    keep = AuditStore.keep

    def interrupted(*arguments: object) -> None:
        if is_written:
            keep(*arguments)  # type: ignore[arg-type]
        raise RuntimeError("the power is gone")

    with monkeypatch.context() as patched:
        patched.setattr(AuditStore, "keep", interrupted)
        with pytest.raises(OperationalFailure, match=r"site a: .*the power is gone; site b: .*the power is gone"):
            audit.run()
    logs.append_both(of_minute(2, 11))
    audit.run()
    assert (audit.records("a"), audit.records("b")) == (23, 23)
    assert audit.report().judged.gaps == ()


def test_a_site_without_a_record_is_judged_and_a_deleted_topic_ends_no_audit(audit: Audited) -> None:
    logs, other = audit.logs, fresh_logs((audit.logs.a, audit.logs.b), "u")
    for minute in range(3):
        logs.append(logs.a, of_minute(minute, 5))
        other.append(other.a, of_minute(minute, 1))
    topics = f"{logs.topic}|{other.topic}"
    audit.run(topics=topics)
    (gap,) = audit.report().judged.gaps
    assert (gap.tier, gap.topic, gap.missing, gap.is_alarm) == ("b", logs.topic, 15, True)
    for broker in (other.a, other.b):
        other.delete_topic(broker)
    logs.append_both(of_minute(3, 7))
    audit.run(topics=topics)
    assert (audit.records("a"), audit.records("b")) == (15 + 3 + 7, 7)


def kill_within_a_batch(audit: Audited, log: Path) -> None:
    """Start the audit as a program, and kill all its processes as soon as it has planned a batch
    that it has not finished.
    """
    checkpoints = {site: audit.state / "checkpoints" / site for site in "ab"}
    before = {site: batches_in(place / "offsets") for site, place in checkpoints.items()}
    sites = ("--site", f"a={audit.logs.a.bootstrap}", "--site", f"b={audit.logs.b.bootstrap}")
    submit = (
        str(Path(sys.executable).parent / "spark-submit"),
        "--master",
        "local[2]",
        "--conf",
        "spark.ui.enabled=false",
    )
    program = str(REPOSITORY / "spark_jobs" / "audit.py")
    environment = {**os.environ, **spark_environment(), "PYTHONPATH": str(REPOSITORY), "SPARK_LOCAL_IP": LOOPBACK}
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*submit, program, *sites, "--topics", audit.logs.topic, "--state", str(audit.state)],
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=environment,
        )

    def is_within_a_batch() -> bool:
        assert process.poll() is None, log.read_text()[-4000:]
        planned = {site: batches_in(place / "offsets") for site, place in checkpoints.items()}
        return any(
            planned[site] > max(before[site], batches_in(place / "commits")) for site, place in checkpoints.items()
        )

    try:
        eventually_sync(is_within_a_batch, 400_000)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.mark.long
@pytest.mark.timeout(1_200)
def test_an_audit_that_is_killed_within_batches_counts_each_record_once(audit: Audited, tmp_path: Path) -> None:
    logs = audit.logs
    for number in range(2):
        logs.append_both(*(of_minute(minute, 50) for minute in range(20)))
        kill_within_a_batch(audit, tmp_path / f"run-{number}.log")
    logs.append_both(of_minute(20, 7))
    audit.run()
    assert (audit.records("a"), audit.records("b")) == (2_007, 2_007)
    assert audit.report().judged.gaps == ()


def test_bytes_and_delay_are_those_of_the_records(spark: SparkSession) -> None:
    """A record that was sent 3 s ago has a delay of 3 s."""
    columns = "topic string, partition int, sent_ms long, key binary, value binary"
    rows = [
        ("t", 0, BEGAN_MS + 7_000, b"key", b"value"),
        ("t", 0, BEGAN_MS + 7_000, None, b"value"),
        ("t", 0, BEGAN_MS + 7_000 + MINUTE_MS, b"key", None),
    ]
    records = spark.createDataFrame(rows, columns).selectExpr("*", "timestamp_millis(sent_ms) as timestamp")
    found = sorted(Count(**row.asDict()) for row in counts_of(records, MINUTE_MS, BEGAN_MS + 10_000).collect())
    assert found == [
        Count("t", 0, BEGAN_MS, (3_000).bit_length(), 2, 13, 6_000, 3_000),
        Count("t", 0, BEGAN_MS + MINUTE_MS, 1, 1, 3, 0, 0),
    ]


@pytest.mark.long
def test_counts_that_programs_publish_balance_the_books_and_other_values_do_not_count(audit: Audited) -> None:
    logs = audit.logs

    async def publish() -> None:
        async with KafkaClient(logs.a.bootstrap) as client:
            await client.create_topics([NewTopic(name=audit.counts_topic, partition_count=1, replication_factor=1)])
            start = {"tier": "store", "topic": logs.topic, "window_start_ms": BEGAN_MS}
            messages = [{**start, "id": "1", "stored": 6, "rejected": 2}, {**start, "id": "2", "stored": 1}]
            values = [json.dumps(one).encode() for one in (*messages, messages[0])]
            await client.produce(audit.counts_topic, 0, batch([*values, b"no count"]))

    logs.append_both(of_minute(0, 10))
    asyncio.run(publish())
    audit.run(counts_topic=audit.counts_topic)
    (gap,) = audit.report().judged.gaps
    assert (gap.tier, gap.missing) == ("store", 1)
    with pytest.raises(OperationalFailure, match="--counts-topic"):
        audit.run()
    with pytest.raises(OperationalFailure, match="no counts of site c"):
        audited(audit.state, reference="c", settled_until_ms={}, alarm_windows=1, delay_alarm_ms=0, lateness_ms=0)
