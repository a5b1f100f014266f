"""The report of an audit, from the counts on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from spark_jobs.auditing.core.counts import Count
from spark_jobs.auditing.count_store import AuditStore
from spark_jobs.auditing.report import AuditReport, audited, write_audit

WINDOW_MS = 60_000


@pytest.fixture
def store(tmp_path: Path) -> AuditStore:
    found = AuditStore(tmp_path)
    found.settings(window_ms=WINDOW_MS, counts_topic="")
    return found


def count(window_start_ms: int, records: int) -> Count:
    return Count("t", 0, window_start_ms, 10, records, 10 * records, 1_000 * records, 1_000)


def report_of(store: AuditStore, settled_until_ms: int = 10**15) -> AuditReport:
    return audited(
        store.directory,
        reference="a",
        settled_until_ms={"t": settled_until_ms},
        alarm_windows=3,
        delay_alarm_ms=0,
        lateness_ms=0,
    )


def test_a_site_that_lacks_every_record_is_judged(store: AuditStore) -> None:
    store.keep("a", 0, [count(window * WINDOW_MS, 10) for window in range(3)], [])
    # Spark runs a first batch also without records.
    store.keep("b", 0, [], [])
    found = report_of(store).judged
    assert [(one.tier, one.missing, one.is_alarm) for one in found.gaps] == [("b", 30, True)]


def test_times_after_the_calendar_are_in_the_report(store: AuditStore, tmp_path: Path) -> None:
    microseconds = 1_700_000_000_000_000
    store.keep("a", 0, [count(microseconds - microseconds % WINDOW_MS, 1)], [])
    write_audit(report_of(store, settled_until_ms=2 * microseconds), tmp_path / "report")
    document = json.loads((tmp_path / "report" / "report.json").read_text())
    assert [one["records"] for one in document["totals"]] == [1]
    assert "1699999999200000 ms" in (tmp_path / "report" / "report.html").read_text()
