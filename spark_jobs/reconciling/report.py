"""Writes a reconciliation's result: JSON for programs, Parquet for further jobs, one self-contained
HTML page for people.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from jinja2 import Environment, PackageLoader, select_autoescape

from runtime.times import iso_time
from spark_jobs.reconciling.core.verdict import PartitionReport, ReconciliationReport

STRIP_LABEL_WIDTH = 220
STRIP_CELLS_WIDTH = 640


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One offset range in the plot."""

    x: float
    width: float
    is_equal: bool
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """One partition in the plot."""

    label: str
    y: int
    cells: tuple[Cell, ...]


def write_report(report: ReconciliationReport, directory: Path) -> None:
    """`report.json`, `report.html` and the Parquet tables `run.parquet`, `ranges.parquet` and
    `findings.parquet`.
    """
    write_json(report, directory / "report.json")
    write_html(report, directory / "report.html")
    write_parquet(report, directory)


def write_json(report: ReconciliationReport, file: Path) -> None:
    """The whole report."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(report.as_document(), indent=2), encoding="utf-8")


RANGE_COLUMNS = pa.schema(
    [
        ("run_id", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("start_offset", pa.int64()),
        ("source_records", pa.int64()),
        ("target_records", pa.int64()),
        ("source_digest", pa.string()),
        ("target_digest", pa.string()),
        ("is_equal", pa.bool_()),
    ]
)
FINDING_COLUMNS = pa.schema(
    [
        ("run_id", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("kind", pa.string()),
        ("first_offset", pa.int64()),
        ("last_offset", pa.int64()),
        ("site", pa.string()),
        ("detail", pa.string()),
    ]
)
RUN_COLUMNS = pa.schema(
    [
        ("run_id", pa.string()),
        ("started_at_ms", pa.int64()),
        ("elapsed_ms", pa.int64()),
        ("source_site", pa.string()),
        ("target_site", pa.string()),
        ("verdict", pa.string()),
        ("partitions_compared", pa.int64()),
        ("partitions_different", pa.int64()),
        ("records_source", pa.int64()),
        ("records_target", pa.int64()),
        ("bytes_source", pa.int64()),
        ("bytes_target", pa.int64()),
        ("findings", pa.int64()),
    ]
)


def write_parquet(report: ReconciliationReport, directory: Path) -> None:
    """`run.parquet`, one row; `ranges.parquet`, a row a compared range; `findings.parquet`, a row a
    finding.
    """
    directory.mkdir(parents=True, exist_ok=True)
    document = report.as_document()
    run = {name: document[name] for name in RUN_COLUMNS.names if name != "findings"}
    run["findings"] = len(report.findings) + report.findings_not_listed
    _write_table([run], RUN_COLUMNS, directory / "run.parquet")
    ranges = [
        {
            "run_id": report.run_id,
            "topic": found.topic,
            "partition": found.partition,
            **asdict(one),
            "is_equal": one.is_equal,
        }
        for found in report.partitions
        for one in found.ranges
    ]
    _write_table(ranges, RANGE_COLUMNS, directory / "ranges.parquet")
    findings = [{"run_id": report.run_id, **asdict(one), "kind": str(one.kind)} for one in report.findings]
    _write_table(findings, FINDING_COLUMNS, directory / "findings.parquet")


def _write_table(rows: Sequence[Mapping[str, Any]], columns: pa.Schema, file: Path) -> None:
    pq.write_table(pa.Table.from_pylist([dict(row) for row in rows], schema=columns), file)


def write_html(report: ReconciliationReport, file: Path) -> None:
    """A page that needs no other file."""
    environment = Environment(loader=PackageLoader("spark_jobs"), autoescape=select_autoescape(default=True))
    document = report.as_document()
    page = environment.get_template("reconciliation.html.j2").render(
        report=report,
        started=datetime.fromtimestamp(report.started_at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC"),
        until=iso_time(report.until_ms),
        different=document["partitions_different"],
        records_source=document["records_source"],
        records_target=document["records_target"],
        bytes_source=document["bytes_source"],
        strips=[_strip(partition, index) for index, partition in enumerate(report.partitions)],
        strip_width=STRIP_LABEL_WIDTH + STRIP_CELLS_WIDTH,
    )
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(page, encoding="utf-8")


def _strip(partition: PartitionReport, index: int) -> Strip:
    width = STRIP_CELLS_WIDTH / max(len(partition.ranges), 1)
    cells = tuple(
        Cell(
            x=round(STRIP_LABEL_WIDTH + number * width, 2),
            width=round(max(width - 1, 0.5), 2),
            is_equal=one.is_equal,
            title=f"offsets from {one.start_offset}: {one.source_records} and {one.target_records} records",
        )
        for number, one in enumerate(partition.ranges)
    )
    return Strip(label=f"{partition.topic} {partition.partition}", y=index * 20 + 3, cells=cells)
