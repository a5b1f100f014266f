"""The report of an audit: JSON for programs, Parquet for further jobs, a page with plots for
people. Needs no Spark.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from jinja2 import Environment, PackageLoader, select_autoescape

from runtime.process import OperationalFailure
from runtime.times import iso_time
from spark_jobs.auditing.core.counts import Tally
from spark_jobs.auditing.core.judging import AuditRules, Judged, judge
from spark_jobs.auditing.count_store import AuditStore
from spark_jobs.pages.core.line_plot import Line, line_plot

LINE_COLOURS = ("--ink", "--good", "--bad", "--warn")


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicTotal:
    """A topic's records at one tier."""

    tier: str
    topic: str
    records: int
    bytes: int
    rejected: int
    late: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditReport:
    """The judged counts."""

    rules: AuditRules
    settled_until_ms: Mapping[str, int]
    totals: tuple[TopicTotal, ...]
    judged: Judged

    def as_document(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "is_alarm": self.judged.is_alarm,
            "rules": asdict(self.rules),
            "settled_until_ms": dict(self.settled_until_ms),
            "totals": [asdict(one) for one in self.totals],
            "gaps": [asdict(one) for one in self.judged.gaps],
            "delays": [asdict(one) for one in self.judged.delays],
            "windows": [{**asdict(one), "gap": one.gap} for one in self.judged.balances],
        }


def audited(
    state: Path,
    *,
    reference: str,
    settled_until_ms: Mapping[str, int],
    alarm_windows: int,
    delay_alarm_ms: int,
    lateness_ms: int,
    since_ms: int = 0,
) -> AuditReport:
    """Read the counts and judge them. Raises OperationalFailure when there are no counts of the
    reference.
    """
    store = AuditStore(state)
    window_ms = int(store.known_settings()["window_ms"])
    sites = store.sites()
    if reference not in sites:
        raise OperationalFailure(
            f"{state} has no counts of site {reference}; it has those of {', '.join(sites) or 'no site'}"
        )
    tally = Tally()
    for site in sites:
        tally.add_batches(site, store.counts(site), lateness_ms=lateness_ms)
        tally.add_published(store.published(site))
    rules = AuditRules(
        reference=reference,
        window_ms=window_ms,
        alarm_windows=alarm_windows,
        delay_alarm_ms=delay_alarm_ms,
        since_ms=since_ms,
    )
    return AuditReport(
        rules=rules,
        settled_until_ms=settled_until_ms,
        totals=_totals(tally),
        judged=judge(tally, rules, settled_until_ms),
    )


def _totals(tally: Tally) -> tuple[TopicTotal, ...]:
    found = []
    for tier, topic in sorted({(tier, topic) for tier, topic, _ in tally.windows}):
        windows = tally.of(tier, topic).values()
        found.append(
            TopicTotal(
                tier=tier,
                topic=topic,
                records=sum(one.records for one in windows),
                bytes=sum(one.bytes for one in windows),
                rejected=sum(one.rejected for one in windows),
                late=sum(one.late for one in windows),
            )
        )
    return tuple(found)


def write_audit(report: AuditReport, directory: Path) -> None:
    """`report.json`, `report.html`, and the tables `windows.parquet`, `gaps.parquet` and
    `hourly.parquet`.
    """
    directory.mkdir(parents=True, exist_ok=True)
    document = report.as_document()
    (directory / "report.json").write_text(json.dumps(document, indent=2), encoding="utf-8")
    for name, rows in (("windows", "windows"), ("gaps", "gaps"), ("hourly", "delays")):
        pq.write_table(pa.Table.from_pylist(document[rows]), directory / f"{name}.parquet")
    environment = Environment(loader=PackageLoader("spark_jobs"), autoescape=select_autoescape(default=True))
    page = environment.get_template("audit.html.j2").render(
        report=report,
        iso_time=iso_time,
        plots=_plots(report),
    )
    (directory / "report.html").write_text(page, encoding="utf-8")


def _plots(report: AuditReport) -> list[tuple[str, str]]:
    found = []
    for topic in sorted({one.topic for one in report.judged.balances}):
        balances = [one for one in report.judged.balances if one.topic == topic]
        produced = {one.window_start_ms: one.produced for one in balances}
        lines = [Line("produced", LINE_COLOURS[0], sorted(produced.items()))]
        for number, tier in enumerate(sorted({one.tier for one in balances})):
            points = [(one.window_start_ms, one.stored + one.rejected) for one in balances if one.tier == tier]
            lines.append(Line(f"at {tier}", LINE_COLOURS[1 + number % 3], points))
        found.append((f"{topic}: records by window", _plotted(lines, "records")))
    for topic in sorted({one.topic for one in report.judged.delays}):
        delays = [one for one in report.judged.delays if one.topic == topic and one.tier == report.rules.reference]
        lines = [
            Line("mean", LINE_COLOURS[0], [(one.hour_ms, one.mean_ms / 1000) for one in delays]),
            Line("p99", LINE_COLOURS[3], [(one.hour_ms, one.p99_ms / 1000) for one in delays]),
            Line("max", LINE_COLOURS[2], [(one.hour_ms, one.max_ms / 1000) for one in delays]),
        ]
        found.append((f"{topic}: delay by hour", _plotted(lines, "s")))
    return found


def _plotted(lines: Sequence[Line], unit: str) -> str:
    times = [at for line in lines for at, _ in line.points]
    first, last = (iso_time(min(times)), iso_time(max(times))) if times else ("", "")
    return line_plot(lines, unit=unit, first_label=first, last_label=last)
