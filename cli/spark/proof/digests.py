"""`antipode reconcile --quick`: compares, prints a line a topic or JSON, and ends with the exit
code of the verdict. With --deep it also opens the batches that differ.
"""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins
from rich.markup import escape

from cli.shared.command_config import command_config_environment
from cli.shared.output import OutputFormat, console, print_json, print_table, report_progress
from cli.spark.proof.surroundings import print_surroundings, surroundings_document
from runtime.clock import SystemClock

if TYPE_CHECKING:
    from dr.proof.comparison import ComparisonRequest
    from dr.proof.core.equality import EqualityReport
    from dr.proof.surroundings import SurroundingsReport
    from spark_jobs.reconciling.opened_ranges import OpenedRanges
    from spark_jobs.reconciling.request import Request

DIFFERENCES_SHOWN_MAX = 20


def compare_digests(
    request: ComparisonRequest,
    directory: Path | None,
    output: OutputFormat,
    beside: SurroundingsReport | None,
    opening: Request | None,
) -> int:
    """Compare and print, with the findings beside the records if these were compared; the exit
    code. With `opening`, the request of a comparison by records, the batches that differ are
    opened. OperationalFailure when a site does not answer.
    """
    from dr.proof.comparison import compare_sites

    found = asyncio.run(compare_sites(request, SystemClock(), report_progress))
    opened = None if opening is None else _opened(found, opening)
    document = _document(found)
    if opened is not None:
        document["opened"] = asdict(opened) | {"not_opened": [one._asdict() for one in opened.not_opened]}
    if beside is not None:
        document["beside_records"] = surroundings_document(beside)
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "report.json").write_text(json.dumps(document, indent=2) + "\n")
    if output is OutputFormat.JSON:
        print_json(document)
    else:
        _print(found, is_opened=opened is not None)
        if opened is not None:
            _print_opened(opened)
        if beside is not None:
            print_surroundings(beside, (request.source_site, request.target_site))
    return found.verdict.exit_code


def _opened(found: EqualityReport, request: Request) -> OpenedRanges:
    """The records that differ in the batches that both sites have, and differently."""
    from dr.proof.core.descent import DifferenceKind
    from spark_jobs.reconciling.opened_ranges import DifferingRange, open_ranges

    os.environ.update(command_config_environment())
    differing = [
        DifferingRange(one.topic, one.partition, difference.first_offset, difference.last_offset)
        for one in found.partitions
        for difference in one.differences
        if difference.kind is DifferenceKind.DIVERGED
    ]
    if differing:
        report_progress(f"opening the batches of {len(differing)} ranges")
    return open_ranges(request, differing)


def _document(found: EqualityReport) -> dict[str, Any]:
    findings = [
        {"topic": one.topic, "partition": one.partition, **to_builtins(difference)}
        for one in found.partitions
        for difference in one.differences
    ]
    topics = [to_builtins(one) for one in found.topics]
    return {"verdict": found.verdict.value, **to_builtins(found), "topics": topics, "findings": findings}


def _print(found: EqualityReport, *, is_opened: bool) -> None:
    rows = [
        (one.topic, one.partitions, one.offsets_compared, one.differences, "; ".join(one.not_compared))
        for one in found.topics
    ]
    print_table("", ("topic", "partitions", "offsets compared", "differences", "not compared"), rows)
    named = [(one, difference) for one in found.partitions for difference in one.differences]
    for one, difference in named[:DIFFERENCES_SHOWN_MAX]:
        place = f"{one.topic}-{one.partition} offsets {difference.first_offset} to {difference.last_offset}"
        console.print(f"  [red]{difference.kind}[/] {place} {escape(difference.detail)}", highlight=False)
    unnamed = sum(one.unnamed for one in found.partitions) + max(len(named) - DIFFERENCES_SHOWN_MAX, 0)
    if unnamed:
        console.print(f"  and {unnamed} more: reconcile without --quick names all", markup=False)
    for note in found.notes:
        console.print(f"  {note}", highlight=False, markup=False)
    for problem in found.problems:
        console.print(f"  [red]could not compare:[/] {escape(problem)}", highlight=False)
    colour = "green" if found.verdict == "equal" else "red"
    count = f"{len(found.partitions)} partitions"
    if found.left_out:
        count = (
            f"{len(found.partitions) - found.left_out} of {count}; {found.left_out} were not compared (see the table)"
        )
    console.print(
        f"[bold {colour}]{found.verdict}[/] by digests of batch headers: {count}, "
        f"{found.elapsed_ms / 1000:.1f} s; bodies were not read{' where batches are equal' if is_opened else ''}",
        highlight=False,
    )


def _print_opened(opened: OpenedRanges) -> None:
    for one in opened.findings[:DIFFERENCES_SHOWN_MAX]:
        place = f"{one.topic}-{one.partition} offsets {one.first_offset} to {one.last_offset}"
        reported = " ".join(filter(None, (f"at {one.site}" if one.site else "", one.detail)))
        console.print(f"  opened: [red]{one.kind}[/] {escape(f'{place} {reported}'.rstrip())}", highlight=False)
    if len(opened.findings) > DIFFERENCES_SHOWN_MAX:
        console.print(f"  opened: and {len(opened.findings) - DIFFERENCES_SHOWN_MAX} more: --output json has all")
    for reason in opened.explanations[:DIFFERENCES_SHOWN_MAX]:
        place = f"{reason.topic}-{reason.partition} offsets {reason.first_offset} to {reason.last_offset}"
        console.print(f"  opened: {reason.kind} {place}: {reason.detail}", highlight=False, markup=False)
    if opened.not_opened:
        console.print(
            f"  {len(opened.not_opened)} ranges were not opened: they have more than --process-offsets offsets",
            highlight=False,
            markup=False,
        )
