"""The history of reconciliations: all runs whose reports are in one directory, on one HTML page."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from jinja2 import Environment, PackageLoader, select_autoescape

from runtime.times import iso_time
from spark_jobs.pages.core.line_plot import Line, line_plot

PAGE: Final = "history.html"
_PLOTS: Final = (
    ("Findings", "ranges", (("findings", "--bad"),)),
    ("Partitions that differ", "partitions", (("partitions_different", "--bad"),)),
    ("Records compared", "records", (("records_source", "--good"), ("records_target", "--warn"))),
    ("Duration", "s", (("seconds", "--soft"),)),
)


def write_history(directory: Path) -> int:
    """Write `history.html` there from the `run.parquet` of each report below; the number of runs.
    Files that are no such table are left out and named on the page.
    """
    runs, unreadable = [], []
    for file in sorted(directory.glob("*/run.parquet")):
        try:
            (run,) = pq.read_table(file).to_pylist()
            runs.append(
                {**run, "report": f"{file.parent.name}/report.html", "seconds": round(run["elapsed_ms"] / 1000, 1)}
            )
        except (OSError, KeyError, ValueError, pa.ArrowException):
            unreadable.append(f"{file.parent.name}/{file.name}")
    runs.sort(key=lambda run: (run["started_at_ms"], run["run_id"]))
    environment = Environment(loader=PackageLoader("spark_jobs"), autoescape=select_autoescape(default=True))
    page = environment.get_template("history.html.j2").render(
        runs=list(reversed(runs)),
        iso_time=iso_time,
        plots=[(title, _plotted(runs, unit, lines)) for title, unit, lines in _PLOTS],
        unreadable=unreadable,
    )
    (directory / PAGE).write_text(page, encoding="utf-8")
    return len(runs)


def _plotted(runs: Sequence[dict[str, Any]], unit: str, lines: Sequence[tuple[str, str]]) -> str:
    if not runs:
        return ""
    return line_plot(
        [Line(name, colour, [(run["started_at_ms"], run[name]) for run in runs]) for name, colour in lines],
        unit=unit,
        first_label=iso_time(runs[0]["started_at_ms"]),
        last_label=iso_time(runs[-1]["started_at_ms"]),
    )
