"""`antipode archive`: topics as files on any file system, with a Spark session on this machine, and
a check of existing files.
"""

from __future__ import annotations

import enum
import os
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from cli.shared.brokers import check_brokers_answer
from cli.shared.failures import failures_as_messages
from cli.shared.kafka_admin import DEFAULT_BOOTSTRAP, BootstrapServer
from cli.shared.output import Output, OutputFormat, console, print_json, print_table, report_progress
from cli.spark.local_sessions import Cores, lazy_session
from runtime.process import ExitCode

if TYPE_CHECKING:
    from spark_jobs.archiving.archive_run import ArchiveReport

SHOWN_MAX = 20

app = typer.Typer(
    help="Archive topics as files, and verify an archive.\n\n"
    "Example: antipode archive --bootstrap-server 127.0.0.1:9092 --to file:///var/archive",
    invoke_without_command=True,
)


class FormatChoice(enum.StrEnum):
    """The content of the files."""

    BATCHES = "batches"
    RECORDS = "records"


@app.callback()
def archive(
    context: typer.Context,
    bootstrap_server: BootstrapServer = DEFAULT_BOOTSTRAP,
    to: Annotated[
        str,
        typer.Option(help="The archive: file:///dir, hdfs://host:port/dir or s3a://bucket/dir; accepts one format."),
    ] = "",
    topics: Annotated[str, typer.Option(help="Topics: a regular expression on whole names.")] = ".*",
    format_name: Annotated[
        FormatChoice, typer.Option("--format", help="Raw batches, which can be restored, or records as Parquet.")
    ] = FormatChoice.BATCHES,
    wave_bytes: Annotated[
        int,
        typer.Option(
            help="The run writes a manifest after each wave of about so many bytes. A killed run keeps its finished "
            "waves. 0 takes 1 GiB for each core.",
            min=0,
        ),
    ] = 0,
    is_until_end: Annotated[bool, typer.Option("--until-end", help="Repeat until a run finds nothing new.")] = False,
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what a run would read; write nothing.")] = False,
    cores: Cores = 0,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Archive topics up to their high watermarks, from where the last run ended.

    Exit code 0 complete, 1 with holes, problems or a failure.

    Example: antipode archive --bootstrap-server 127.0.0.1:9092 --to file:///var/archive --topics
    'orders.*'
    """
    if context.invoked_subcommand is not None:
        return
    if not to:
        raise typer.BadParameter("give --to, for example file:///var/archive")
    from spark_jobs.archiving.archive_run import ArchiveRequest, ArchiveRun

    request = ArchiveRequest(
        bootstrap=bootstrap_server,
        to=to,
        topics=topics,
        format=format_name.value,
        is_until_end=is_until_end,
        wave_bytes=wave_bytes,
    )
    with failures_as_messages():
        check_brokers_answer(bootstrap_server)
        run = ArchiveRun(request, report_progress)
        cores_used = cores or os.cpu_count() or 1
        if is_dry_run:
            report = run.dry_run(cores_used)
        else:
            with lazy_session("antipode archive", cores) as session:
                report = run.run(session, cores=cores_used)
    _print(report, output)
    raise typer.Exit(ExitCode.FAILED if report.problems or report.holes else ExitCode.DONE)


@app.command()
def verify(
    source: Annotated[str, typer.Option("--from", help="The archive.")],
    bootstrap_server: Annotated[
        str,
        typer.Option(help="Brokers of a site with whose logs batches are compared, by digests.", show_default=False),
    ] = "",
    cores: Cores = 0,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Read every file of an archive, and check its size, its checksum, and the checksums and
    offsets of its batches. With --bootstrap-server also compare each range with the site's log.

    Exit code 0 when every file is as its manifest says and no range differs from the site, else 1.

    Example: antipode archive verify --from file:///var/archive --bootstrap-server 127.0.0.1:9092
    """
    from spark_jobs.archiving.verification import verify as verified

    with failures_as_messages(), lazy_session("antipode archive verify", cores) as session:
        if bootstrap_server:
            check_brokers_answer(bootstrap_server)
        found = verified(session, source, report_progress, bootstrap=bootstrap_server)
    if output is OutputFormat.JSON:
        print_json(found.as_document())
    else:
        for problem in found.problems[:SHOWN_MAX]:
            console.print(f"  [red]{escape(problem)}[/]", highlight=False)
        for reason in found.not_compared[:SHOWN_MAX]:
            console.print(f"  not compared: {reason}", highlight=False, markup=False)
        if bootstrap_server:
            equal = f"{found.compared_ranges} ranges compared with the site, {len(found.not_compared)} not"
            console.print(equal, highlight=False)
        sizes = f"{found.files} files, {found.bytes:,} bytes, {found.manifests} manifests"
        console.print(f"{sizes}: {len(found.problems)} problems", highlight=False, markup=False)
    raise typer.Exit(ExitCode.FAILED if found.problems else ExitCode.DONE)


@app.command()
def expire(
    source: Annotated[str, typer.Option("--from", help="The archive.")],
    older_than_hours: Annotated[
        int | None, typer.Option(help="Delete parts that were archived longer ago.", min=0, show_default=False)
    ] = None,
    bytes_max: Annotated[
        int | None,
        typer.Option(
            help="Delete the oldest ranges until the archive has at most this size.", min=0, show_default=False
        ),
    ] = None,
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be removed; remove nothing.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Delete the oldest ranges of an archive, by age or by size. Ranges of compacted topics stay.

    Example: antipode archive expire --from file:///var/archive --older-than-hours 2160 --dry-run
    """
    from spark_jobs.archiving.core.retention import NO_BOUND
    from spark_jobs.archiving.expiry import expire as expired

    if older_than_hours is None and bytes_max is None:
        raise typer.BadParameter("give --older-than-hours or --bytes-max, or both")
    with failures_as_messages():
        report = expired(
            source,
            older_than_ms=NO_BOUND if older_than_hours is None else older_than_hours * 3_600_000,
            bytes_max=NO_BOUND if bytes_max is None else bytes_max,
            is_dry_run=is_dry_run,
            progress=report_progress,
        )
    if output is OutputFormat.JSON:
        print_json(report.as_document())
        return
    rows = [
        (one.topic, one.partition, one.first_offset, one.end_offset, one.bytes) for one in report.ranges[:SHOWN_MAX]
    ]
    if rows:
        print_table("", ("topic", "partition", "from", "to", "bytes"), rows)
    for topic in report.kept_compacted:
        console.print(f"  {topic} is compacted and keeps all", highlight=False, markup=False)
    verb = "would go" if is_dry_run else "went"
    sums = f"{len(report.ranges)} ranges, {report.as_document()['bytes']:,} bytes"
    console.print(f"{sums} {verb}; {report.kept_bytes:,} bytes stay", highlight=False, markup=False)


def _print(report: ArchiveReport, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        print_json(report.as_document())
        return
    rows = [
        (one.topic, one.partition, one.first_offset, one.end_offset, one.records, one.bytes)
        for one in report.ranges[:SHOWN_MAX]
    ]
    if rows:
        print_table("", ("topic", "partition", "from", "to", "records", "bytes"), rows)
    for hole in report.holes[:SHOWN_MAX]:
        place = f"{hole.topic}-{hole.partition} offsets {hole.first_offset} to {hole.end_offset - 1}"
        console.print(f"  [red]hole[/] {place}: the source deleted them before a run", highlight=False)
    for problem in report.problems[:SHOWN_MAX]:
        console.print(f"  [red]{escape(problem)}[/]", highlight=False)
    if report.is_dry_run:
        planned = f"{report.planned_offsets:,} offsets in {_waves(report.planned_waves)}"
        console.print(f"a run would read {planned}", highlight=False, markup=False)
        return
    if not report.ranges and not report.holes and not report.problems:
        console.print(
            f"nothing new: {report.to} has the records up to the high watermarks", highlight=False, markup=False
        )
        return
    document = report.as_document()
    sums = f"{len(report.ranges)} ranges, {document['records']:,} records, {document['bytes']:,} bytes"
    sums += f", {_waves(len(report.manifests))}, {report.elapsed_ms / 1000:.1f} s"
    console.print(f"{sums}: {report.to}", highlight=False, markup=False)


def _waves(count: int) -> str:
    return f"{count} {'wave' if count == 1 else 'waves'}"
