"""Writes a drill's report: `report.json` with all measurements, `report.html` for people
(self-contained), and `junit.xml` for build servers.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from dr.drill.core.checkers import CatchUp
from dr.drill.core.measures import Outage
from dr.drill.core.plots import Curve, Span, plot
from dr.drill.drill_results import DrillResult
from dr.drill.junit import junit_xml

ANOMALIES_SHOWN_MAX = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFiles:
    """The files of the report."""

    html: Path
    json: Path
    junit: Path


def write_report(result: DrillResult, directory: Path) -> ReportFiles:
    """Write the files into the directory, replacing older ones."""
    files = ReportFiles(html=directory / "report.html", json=directory / "report.json", junit=directory / "junit.xml")
    files.junit.write_text(junit_xml(result), encoding="utf-8")
    files.json.write_text(json.dumps(result.to_json(), indent=2, default=str), encoding="utf-8")
    files.html.write_text(render(result), encoding="utf-8")
    return files


def render(result: DrillResult) -> str:
    """The page."""
    templates = Environment(
        loader=PackageLoader("dr"), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    duration_s = (result.ended_at_ms - result.started_at_ms) / 1000
    started = dt.datetime.fromtimestamp(result.started_at_ms / 1000, tz=dt.UTC)
    measured = result.measured
    anomalies = (
        (*measured.missing, *measured.duplicates, *measured.gaps, *measured.order_violations, *measured.undelivered)
        if measured is not None
        else ()
    )
    return templates.get_template("drill.html.j2").render(
        drill=result,
        measured=measured,
        started=started.strftime("%d %B %Y, %H:%M:%S UTC"),
        duration_s=duration_s,
        outage=_outage_text,
        catch_up=_catch_up_text,
        anomalies=anomalies[:ANOMALIES_SHOWN_MAX],
        rates_plot=_rates_plot(result, duration_s),
        lag_plot=_lag_plot(result, duration_s),
    )


def _outage_text(outage: Outage | None) -> str:
    return "none" if outage is None else f"{outage.duration_ms:,.0f} ms"


def _catch_up_text(caught_up: CatchUp) -> str:
    return "never" if math.isinf(caught_up.duration_ms) else f"{caught_up.duration_ms:,.0f} ms"


def _spans(result: DrillResult) -> list[Span]:
    return [
        Span(
            name=fault.title,
            began_s=(fault.began_at_ms - result.started_at_ms) / 1000,
            ended_s=((fault.ended_at_ms or result.ended_at_ms) - result.started_at_ms) / 1000,
        )
        for fault in result.faults
    ]


def _rates_plot(result: DrillResult, duration_s: float) -> str:
    curves = [
        Curve(name=name, colour=colour, points=result.rates.get(name, []))
        for name, colour in (("acknowledged", "one"), ("delivered", "two"))
    ]
    return plot(curves, _spans(result), unit="records/s", duration_s=duration_s)


def _lag_plot(result: DrillResult, duration_s: float) -> str:
    points = [
        ((sample.at_ms - result.started_at_ms) / 1000, float(sample.lag_records))
        for sample in result.lag
        if sample.lag_records is not None
    ]
    return plot([Curve(name="lag", colour="one", points=points)], _spans(result), unit="records", duration_s=duration_s)
