"""`antipode reconcile --quick`: compares, prints a line a topic or JSON, and ends with the exit
code of the verdict.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins
from rich.markup import escape

from cli.shared.output import OutputFormat, console, print_json, print_table, report_progress
from cli.spark.proof.surroundings import print_surroundings, surroundings_document
from runtime.clock import SystemClock

if TYPE_CHECKING:
    from dr.proof.comparison import ComparisonRequest
    from dr.proof.core.equality import EqualityReport
    from dr.proof.surroundings import SurroundingsReport

DIFFERENCES_SHOWN_MAX = 20


def compare_digests(
    request: ComparisonRequest, directory: Path | None, output: OutputFormat, beside: SurroundingsReport | None
) -> int:
    """Compare and print, with the findings beside the records if these were compared; the exit
    code. OperationalFailure when a site does not answer.
    """
    from dr.proof.comparison import compare_sites

    found = asyncio.run(compare_sites(request, SystemClock(), report_progress))
    document = _document(found)
    if beside is not None:
        document["beside_records"] = surroundings_document(beside)
    if directory is not None:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / "report.json").write_text(json.dumps(document, indent=2) + "\n")
    if output is OutputFormat.JSON:
        print_json(document)
    else:
        _print(found)
        if beside is not None:
            print_surroundings(beside, (request.source_site, request.target_site))
    return found.verdict.exit_code


def _document(found: EqualityReport) -> dict[str, Any]:
    findings = [
        {"topic": one.topic, "partition": one.partition, **to_builtins(difference)}
        for one in found.partitions
        for difference in one.differences
    ]
    topics = [to_builtins(one) for one in found.topics]
    return {"verdict": found.verdict.value, **to_builtins(found), "topics": topics, "findings": findings}


def _print(found: EqualityReport) -> None:
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
        f"{found.elapsed_ms / 1000:.1f} s; bodies were not read",
        highlight=False,
    )
