"""The page of all runs: each with its figures and plots, the newest first. It names reports that it
cannot read.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from spark_jobs.reconciling.core.findings import Finding, FindingKind
from spark_jobs.reconciling.core.verdict import PartitionReport, ReconciliationReport, Side
from spark_jobs.reconciling.core.waves import Load, PauseBounds
from spark_jobs.reconciling.history import PAGE, write_history
from spark_jobs.reconciling.report import write_parquet
from spark_jobs.reconciling.request import Request
from spark_jobs.reconciling.run import Reconciliation


def report(run_id: str, started_at_ms: int, *findings: Finding) -> ReconciliationReport:
    side = Side(start_offset=0, end_offset=7, records=7)
    partition = PartitionReport(topic="t", partition=0, source=side, target=side, is_equal=not findings)
    return ReconciliationReport(
        source_site="a",
        target_site="b",
        started_at_ms=started_at_ms,
        elapsed_ms=1_500,
        range_offsets=1,
        is_deep=False,
        partitions=(partition,),
        findings=findings,
        explanations=(),
        run_id=run_id,
    )


def test_all_runs_are_on_one_page_with_the_newest_first(tmp_path: Path) -> None:
    missing = Finding(topic="t", partition=0, kind=FindingKind.MISSING, first_offset=0, last_offset=1)
    write_parquet(report("first-run", 1_000), tmp_path / "1")
    write_parquet(report("second-run", 2_000, missing), tmp_path / "2")
    (tmp_path / "3").mkdir()
    (tmp_path / "3" / "run.parquet").write_bytes(b"torn")
    assert write_history(tmp_path) == 2
    page = (tmp_path / PAGE).read_text()
    assert page.index("second-run") < page.index("first-run")
    assert "3/run.parquet cannot be read" in page
    assert page.count("<svg") == 4
    assert 'href="2/report.html"' in page
    assert write_history(tmp_path / "1") == 0


def test_a_run_waits_while_the_sites_are_above_a_bound_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    loads = [Load(lag_records=9, latency_ms=1), Load(lag_records=8, latency_ms=1), Load(lag_records=1, latency_ms=1)]
    monkeypatch.setattr("spark_jobs.reconciling.run.load_of", lambda _: loads.pop(0))
    monkeypatch.setattr("spark_jobs.reconciling.run.PAUSE_POLL_S", 0)
    request = Request(
        source_site="a",
        target_site="b",
        source_bootstrap="a:1",
        target_bootstrap="b:1",
        pause=PauseBounds(lag_records=5),
    )
    said: list[str] = []
    Reconciliation(None, request, said.append)._wait_for_sites()  # type: ignore[arg-type]
    assert loads == []
    assert said == [
        "paused: the target lacks 9 records, the bound is 5",
        "goes on: the sites are within the bounds again",
    ]
