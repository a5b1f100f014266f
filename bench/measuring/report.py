"""A run's results as a table for people and as a document for programs. Pure, except for `write`,
which stores the document.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.measuring.figures import Row, Sample
from bench.measuring.section_figures import rows

COLUMNS = ("section", "case", "figure", "unit", "antipode", "peer", "ratio", "target", "reached")
VERDICTS = {True: "yes", False: "NO", None: ""}
NOTHING = "-"


def table(found: Sequence[Row]) -> list[list[str]]:
    """The rows as text; a section and a case are named in their first row."""
    lines = []
    before = ("", "")
    for row in found:
        here = (row.section, row.case)
        lines.append(
            [
                row.section if row.section != before[0] else "",
                row.case if here != before else "",
                row.figure,
                row.unit,
                number(row.ours),
                number(row.theirs),
                NOTHING if row.ratio is None else f"{row.ratio:.2f}",
                row.target,
                VERDICTS[row.is_reached],
            ]
        )
        before = here
    return lines


def number(value: float | None) -> str:
    """Three significant digits, thousands grouped."""
    if value is None:
        return NOTHING
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def summary(found: Sequence[Row]) -> str:
    """The number of reached targets, among those that could be judged."""
    verdicts = [row.is_reached for row in found if row.is_reached is not None]
    return f"{sum(verdicts)} of {len(verdicts)} targets reached"


def noise(samples: Sequence[Sample]) -> str:
    """The load of other programs during the run, so that a reader can judge the figures."""
    loads = sorted(sample.other_cores + sample.steal_cores for sample in samples)
    if not loads:
        return "nothing was measured"
    return f"load of others while measuring: median {loads[len(loads) // 2]:.2f} cores, highest {loads[-1]:.2f} cores"


def document(
    *, began: str, took_s: float, machine: dict[str, Any], options: dict[str, Any], samples: Sequence[Sample]
) -> dict[str, Any]:
    """The document of a run: its options, the rows, and every sample behind them."""
    found = rows(samples)
    return {
        "began": began,
        "took_s": round(took_s, 1),
        "machine": machine,
        "options": options,
        "summary": summary(found),
        "noise": noise(samples),
        "rows": [asdict(row) for row in found],
        "samples": [asdict(sample) for sample in samples],
    }


def write(results: dict[str, Any], directory: Path) -> Path:
    """Keep the document under the time at which the run began."""
    directory.mkdir(parents=True, exist_ok=True)
    file = directory / f"{results['began'].replace(':', '').replace('-', '')}.json"
    file.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    return file
