"""A drill's report, as data and as a page."""

from __future__ import annotations

import json
from pathlib import Path

from dr.drill.core.checkers import Anomaly
from dr.drill.core.measures import Measured
from dr.drill.core.snapshot_baseline import snapshot_baseline
from dr.drill.drill_report import write_report
from dr.drill.drill_results import PASSED, DrillResult
from dr.sites.core.evidence import TopicPartition


def test_a_report_has_what_is_missing_and_what_a_backup_would_have_lost(tmp_path: Path) -> None:
    """DR-04 to DR-06."""
    times = [float(at) for at in range(0, 20_000, 10)]
    missing = Anomaly("A3", TopicPartition("orders", 0), 1999, "shop:1999")
    measured = Measured(acknowledged=2000, missing=(missing,), snapshots=snapshot_baseline(times, fault_at_ms=20_000.0))
    result = DrillResult(
        name="lost site",
        description="",
        link="a-b",
        started_at_ms=0,
        ended_at_ms=30_000,
        outcome=PASSED,
        measured=measured,
    )
    files = write_report(result, tmp_path)
    reported = json.loads(files.json.read_text())["measured"]
    assert reported["missing"] == {"count": 1, "examples": ["A3 orders-0@1999: shop:1999"]}
    first, *_, nightly = reported["snapshots"]
    assert first == {"interval_ms": 10_000, "lost_records": 999, "is_counted": True}
    assert nightly == {"interval_ms": 86_400_000, "lost_records": 8_640_000, "is_counted": False}
    page = files.html.read_text()
    assert "Beside a backup" in page
    assert "8,640,000" in page
