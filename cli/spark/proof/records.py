"""`antipode reconcile` of whole logs: compares the logs, prints a line a topic and what differs,
and explains beforehand what it would read.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape

from cli.administration.log_dirs import directories_of
from cli.shared.command_config import command_config_environment
from cli.shared.output import OutputFormat, console, print_json, print_table, report_progress
from cli.spark.local_sessions import lazy_session
from runtime.process import ExitCode, OperationalFailure

if TYPE_CHECKING:
    from spark_jobs.reconciling.core.reading_plan import Sizes, TopicReading
    from spark_jobs.reconciling.core.verdict import ReconciliationReport
    from spark_jobs.reconciling.request import Request

FINDINGS_SHOWN_MAX = 20
SKIPPED_SHOWN_MAX = 3
MEGABYTE = 1_000_000


def compare_records(request: Request, directory: Path, cores: int, *, is_resumed: bool) -> ReconciliationReport:
    """Compare, and leave the report in the directory. Starts Spark on this machine if there are
    more records than this process compares itself.
    """
    from spark_jobs.reconciling.report import write_report
    from spark_jobs.reconciling.run import reconcile

    os.environ.update(command_config_environment())
    with lazy_session("antipode reconcile", cores, directory) as session:
        found = reconcile(session, request, report_progress, out=directory, is_resumed=is_resumed)
    write_report(found, directory)
    return found


def write_history_of(directory: Path) -> None:
    """The page of all runs whose reports lie in the directory."""
    from spark_jobs.reconciling.history import write_history

    write_history(directory)


def print_records(found: ReconciliationReport, directory: Path) -> None:
    """The report for people."""
    rows = [
        (
            one.topic,
            one.errors,
            one.differences,
            one.ranges,
            one.records_source,
            one.records_target,
            _shortened(one.skipped),
            f"{one.seconds:.1f}",
        )
        for one in found.topics
    ]
    records = (f"{found.source_site} records", f"{found.target_site} records")
    print_table("", ("topic", "errors", "differences", "ranges", *records, "skipped", "seconds"), rows)
    for finding in found.findings[:FINDINGS_SHOWN_MAX]:
        place = f"{finding.topic}-{finding.partition} offsets {finding.first_offset} to {finding.last_offset}"
        reported = " ".join(filter(None, (f"at {finding.site}" if finding.site else "", finding.detail)))
        console.print(f"  [red]{finding.kind}[/] {escape(f'{place} {reported}')}", highlight=False)
    if len(found.findings) > FINDINGS_SHOWN_MAX:
        console.print(f"  and {len(found.findings) - FINDINGS_SHOWN_MAX} more: see the report", markup=False)
    if found.findings_not_listed:
        console.print(f"  and {found.findings_not_listed} more beyond the limits", markup=False)
    for reason in found.explanations[:FINDINGS_SHOWN_MAX]:
        place = f"{reason.topic}-{reason.partition} offsets {reason.first_offset} to {reason.last_offset}"
        console.print(f"  [dim]{escape(f'{reason.kind} {place}: {reason.detail}')}[/]", highlight=False)
    for problem in found.problems:
        console.print(f"  [red]could not compare:[/] {escape(problem)}", highlight=False)
    colour = "green" if found.verdict == "equal" else "red"
    resumed = f" ({found.resumed_partitions} by the interrupted run)" if found.resumed_partitions else ""
    console.print(
        f"[bold {colour}]{found.verdict}[/]: {len(found.partitions)} partitions{resumed}, "
        f"{found.elapsed_ms / 1000:.1f} s, report {escape(str(directory / 'report.html'))}",
        highlight=False,
    )


def explain(request: Request, directory: Path | None, output: OutputFormat, *, is_quick: bool) -> int:
    """Print what a run would read; the exit code. `directory` is that of an interrupted run, which
    this run would continue. OperationalFailure when a site does not answer.
    """
    from spark_jobs.logs.survey import compacted_topics
    from spark_jobs.reconciling.core.reading_plan import reading_plan
    from spark_jobs.reconciling.request import surveyed
    from spark_jobs.reconciling.run import judged_before

    judged = judged_before(directory, request) if directory is not None else {}
    plan = surveyed(request, report_progress)
    found = reading_plan(
        plan,
        sizes=asyncio.run(_sizes(request)),
        sites=(request.source_site, request.target_site),
        compacted=compacted_topics(request.source_bootstrap, sorted({one.topic for one in plan})),
        judged=judged,
        is_quick=is_quick,
    )
    if output is OutputFormat.JSON:
        print_json({"topics": [one.as_document() for one in found]})
    else:
        _print_plan(request, found)
    return ExitCode.DONE


def _print_plan(request: Request, found: list[TopicReading]) -> None:
    rows = [
        (
            one.topic,
            one.partitions,
            str(one.mode),
            one.offsets,
            _megabytes(one.source_bytes),
            _megabytes(one.target_bytes),
            _shortened(one.skipped),
        )
        for one in found
    ]
    sites = (f"{request.source_site} MB", f"{request.target_site} MB")
    print_table("", ("topic", "partitions", "compared by", "offsets", *sites, "skipped"), rows)
    source, target = sum(one.source_bytes for one in found), sum(one.target_bytes for one in found)
    console.print(
        f"a run would read about {_megabytes(source)} MB at {request.source_site} and {_megabytes(target)} MB at "
        f"{request.target_site}",
        highlight=False,
    )


async def _sizes(request: Request) -> Sizes:
    from spark_jobs.reconciling.core.reading_plan import Sizes

    source, target = await asyncio.gather(_log_sizes(request.source_bootstrap), _log_sizes(request.target_bootstrap))
    return Sizes(source=source, target=target)


async def _log_sizes(bootstrap: str) -> dict[tuple[str, int], int]:
    """Bytes of the largest replica of each partition, which approximates the leader's log."""
    from spark_jobs.logs.log_reader import client
    from wire.client.client_errors import KafkaClientError

    found: dict[tuple[str, int], int] = {}
    try:
        async with client(bootstrap) as reader:
            for directory in await directories_of(reader, None):
                for log in directory["logs"]:
                    key = (log["topic"], log["partition"])
                    found[key] = max(found.get(key, 0), log["bytes"])
    except KafkaClientError as error:
        raise OperationalFailure(f"the brokers at {bootstrap} do not say how large their logs are: {error}") from error
    return found


def _megabytes(size: int) -> str:
    return f"{size / MEGABYTE:,.3f}"


def _shortened(reasons: tuple[str, ...]) -> str:
    more = f"; and {len(reasons) - SKIPPED_SHOWN_MAX} more" if len(reasons) > SKIPPED_SHOWN_MAX else ""
    return "; ".join(reasons[:SKIPPED_SHOWN_MAX]) + more
