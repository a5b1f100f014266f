"""A drill's report, as data and as a page."""

from __future__ import annotations

import io
import json
from pathlib import Path
from xml.etree import ElementTree as ET

from rich.console import Console

from dr.drill.core.checkers import Anomaly
from dr.drill.core.expectations import Verdict
from dr.drill.core.measures import Measured
from dr.drill.core.snapshot_baseline import snapshot_baseline
from dr.drill.drill_report import write_report
from dr.drill.drill_results import FAILED, PASSED, DrillResult, StepResult
from dr.drill.execution import Glance
from dr.drill.lag import LagSample
from dr.drill.lag_view import LagView
from wire.control.broker_pb2 import QuarantineUse
from wire.protocol.ids import TopicPartition


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
        reconciliations={"after": {"outcome": "equal", "lost_records": 0, "report_dir": "reconcile-after 50%#1?"}},
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
    assert 'href="reconcile-after%2050%25%231%3F/"' in page  # the directory may be moved, or served


def test_a_report_has_the_quarantines_that_were_seen(tmp_path: Path) -> None:
    use = QuarantineUse(node_id=1, entries=2, bytes=300)
    result = DrillResult(
        name="lost site",
        description="",
        link="a-b",
        started_at_ms=0,
        ended_at_ms=30_000,
        outcome=PASSED,
        lag=[LagSample(at_ms=1, lag_records=None, quarantines=(("a", use),))],
    )
    (sample,) = json.loads(write_report(result, tmp_path).json.read_text())["lag"]
    assert sample["quarantines"] == [["a", {"node_id": 1, "entries": 2, "bytes": 300}]]
    assert sample["lag_records"] is None


def test_a_build_server_sees_each_step_and_each_expectation(tmp_path: Path) -> None:
    def step(title: str, outcome: str, detail: str = "") -> StepResult:
        return StepResult(title=title, verb="kill", started_at_ms=0, duration_ms=1_500, outcome=outcome, detail=detail)

    result = DrillResult(
        name="lost site",
        description="",
        link="a-b",
        started_at_ms=0,
        ended_at_ms=30_000,
        outcome=FAILED,
        steps=[
            step("kill site a", "done"),
            step("fail over to b", "failed", "refused: <lag>"),
            step("check", "skipped"),
        ],
        verdicts=[
            Verdict(name="duplicates", wanted="at most 0", found="0", is_met=True),
            Verdict(name="gaps", wanted="at most 0", found="2", is_met=False),
        ],
        restore_problems=["broker-1 does not start"],
    )
    suite = ET.parse(write_report(result, tmp_path).junit).getroot()
    assert {key: suite.get(key) for key in ("name", "tests", "failures", "skipped", "time")} == {
        "name": "lost site",
        "tests": "6",
        "failures": "3",
        "skipped": "1",
        "time": "30.000",
    }
    failures = {case.get("name"): found.get("message") for case in suite if (found := case.find("failure")) is not None}
    assert failures == {
        "02 fail over to b": "refused: <lag>",
        "gaps": "wanted at most 0, found 2",
        "everything is put right": "broker-1 does not start",
    }
    assert [case.get("time") for case in suite][:2] == ["1.500", "1.500"]


def test_a_build_server_can_read_what_a_terminal_colours(tmp_path: Path) -> None:
    """The end of a program's log is the detail of a step; XML has no control characters."""
    result = DrillResult(
        name="lost\x00site",
        description="",
        link="a-b",
        started_at_ms=0,
        steps=[
            StepResult(
                title="start load",
                verb="start_load",
                started_at_ms=0,
                duration_ms=1,
                outcome="failed",
                detail="\x1b[31mrefused\x1b[0m\ufffe",
            )
        ],
    )
    suite = ET.parse(write_report(result, tmp_path).junit).getroot()
    (failure,) = suite.iter("failure")
    assert (suite.get("name"), failure.get("message")) == ("lost?site", "?[31mrefused?[0m?")


def test_names_with_brackets_are_shown_as_they_are() -> None:
    text = io.StringIO()
    console = Console(file=text, width=200)
    step = StepResult(
        title="reconcile (a[/b])", verb="reconcile", started_at_ms=0, duration_ms=1, outcome="done", detail="see [/log]"
    )
    glance = Glance(
        step="wait [/x]",
        step_number=1,
        step_count=1,
        elapsed_ms=10_000,
        note="",
        lag=LagSample(at_ms=1, lag_records=None, active_site="[/a]"),
        acknowledged=0,
        delivered=0,
        finished=(step,),
    )
    with LagView(console, title="drill [/2026]") as view:
        view(glance)
    console.print(view._panel(glance))
    shown = text.getvalue()
    for name in ("reconcile (a[/b])", "see [/log]", "wait [/x]", "[/a] active", "drill [/2026]"):
        assert name in shown
