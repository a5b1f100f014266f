"""`antipode reconcile`: prove two sites equal, or name what differs, with a Spark session on this
machine.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from cli.drill import new_directory
from cli.links import split_list
from cli.shared.command_config import command_config_environment
from cli.shared.failures import failures_as_messages, usage_error
from cli.shared.output import Output, OutputFormat, console, print_json, print_table, report_progress
from cli.shared.sites import EnvironmentFile, needed_environment, open_environment, site_clients
from cli.shared.times import parse_time
from runtime.addresses import parse_host_ports
from runtime.process import OperationalFailure
from wire.rules.links import DEFAULT_TOPIC_BLACKLIST, blacklist_of

if TYPE_CHECKING:
    from dr.drill.environment import Environment
    from spark_jobs.core.verdict import ReconciliationReport
    from spark_jobs.reconcile import Request
    from wire.control.cluster_pb2 import LinkRecord

REPORTS = Path("out/reconciliations")
FINDINGS_SHOWN_MAX = 20
NOT_COMPARED = 2
ANSWERED_WITHIN_MS = 5_000


def reconcile(
    source: Annotated[str, typer.Option(help="Bootstrap servers of the source site, host:port[,host:port...].")] = "",
    target: Annotated[str, typer.Option(help="Bootstrap servers of the target site.")] = "",
    environment: EnvironmentFile = None,
    link: Annotated[str, typer.Option(help="Link of the environment: says which sites and which topics.")] = "",
    whitelist: Annotated[
        str, typer.Option(help="Topics: comma-separated regular expressions [default: the link's, or all].")
    ] = "",
    blacklist: Annotated[
        str, typer.Option(help="Topics left out; wins over the whitelist [default: the link's, or that of new links].")
    ] = "",
    is_deep: Annotated[
        bool, typer.Option("--deep", help="Open the batches that differ, and name the exact offsets.")
    ] = False,
    is_quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Compare the digests that the brokers keep: a few kilobytes and no Spark, but bodies are not read.",
        ),
    ] = False,
    range_offsets: Annotated[int, typer.Option(help="Offsets in one digest's range; 0 chooses.", min=0)] = 0,
    settle_timeout_ms: Annotated[
        int, typer.Option(help="How long to wait for the target to reach the source's present ends.", min=0)
    ] = 10_000,
    until: Annotated[
        str,
        typer.Option(
            "--until", help="Compare only records before this time (Unix ms or ISO 8601), as `links complete`."
        ),
    ] = "",
    cores: Annotated[int, typer.Option(help="Cores for Spark; 0 takes all.", min=0)] = 0,
    out: Annotated[
        Path | None, typer.Option("--out", help=f"Where the report goes (default: a new directory in {REPORTS}).")
    ] = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Compare both sites partition by partition, range by range; name every missing, extra,
    duplicate, diverged or corrupt range.

    Reads batch headers and checksums, not records; with --quick the digests of them that brokers
    keep. Exit code 0 equal, 1 different, 2 could not compare.

    Example: antipode reconcile --environment out/sites/environment.json --link a-b --out
    out/reconciliation
    """
    try:
        with failures_as_messages():
            if is_quick:
                _refuse_with_quick(
                    {"--deep": is_deep, "--until": until, "--range-offsets": range_offsets, "--cores": cores}
                )
            sides = _sides_of_link(environment, link) if not source and not target else _sides(source, target)
            sides = replace(
                sides,
                topic_whitelist=split_list(whitelist) or sides.topic_whitelist,
                topic_blacklist=split_list(blacklist) or sides.topic_blacklist,
            )
            if is_quick:
                exit_code = _by_digests(sides, settle_timeout_ms, out, output)
            else:
                depth = Depth(range_offsets, is_deep, until)
                request = _request(sides, depth, settle_timeout_ms=settle_timeout_ms)
                exit_code = _by_headers(sides, request, out or new_directory(REPORTS), cores, output)
    except typer.Exit as ended:
        raise typer.Exit(NOT_COMPARED) from ended
    raise typer.Exit(exit_code)


def _refuse_with_quick(options: Mapping[str, object]) -> None:
    given = [name for name, value in options.items() if value]
    if given:
        raise usage_error(f"--quick compares digests of whole logs; it does not take {', '.join(given)}")


def _by_digests(sides: Sides, settle_timeout_ms: int, directory: Path | None, output: OutputFormat) -> int:
    from cli.proof.digests import compare_digests
    from dr.proof.comparison import ComparisonRequest

    request = ComparisonRequest(
        source_site=sides.source_site,
        target_site=sides.target_site,
        source_bootstrap=sides.source,
        target_bootstrap=sides.target,
        topic_whitelist=sides.topic_whitelist,
        topic_blacklist=sides.topic_blacklist,
        settle_timeout_ms=settle_timeout_ms,
    )
    return compare_digests(request, directory, output)


class Depth(NamedTuple):
    """The way in which the options ask to read the logs."""

    range_offsets: int
    is_deep: bool
    until: str


def _request(sides: Sides, depth: Depth, *, settle_timeout_ms: int) -> Request:
    from spark_jobs.reconcile import NO_BOUND, Request

    return Request(
        source_site=sides.source_site,
        target_site=sides.target_site,
        source_bootstrap=sides.source,
        target_bootstrap=sides.target,
        topic_whitelist=sides.topic_whitelist,
        topic_blacklist=sides.topic_blacklist,
        range_offsets=depth.range_offsets,
        is_deep=depth.is_deep,
        settle_timeout_ms=settle_timeout_ms,
        until_ms=parse_time("--until", depth.until) if depth.until else NO_BOUND,
    )


def _by_headers(sides: Sides, request: Request, directory: Path, cores: int, output: OutputFormat) -> int:
    asyncio.run(_check_sites_answer(sides))
    found = _compared(request, directory, cores)
    _print(found, directory, output)
    return found.verdict.exit_code


def _compared(request: Request, directory: Path, cores: int) -> ReconciliationReport:
    """Start Spark on this machine, compare, and leave the report in the directory."""
    from deploy.parts import spark_environment
    from spark_jobs.reconcile import reconcile as compare
    from spark_jobs.reconcile import write_report
    from spark_jobs.session import noise_into, session

    os.environ.update(spark_environment() | command_config_environment())
    report_progress("starting Spark")
    with noise_into(directory / "spark.log"):
        spark = session("antipode reconcile", is_local=True, cores=cores or None)
    try:
        found = compare(spark, request, report_progress)
    finally:
        spark.stop()
    write_report(found, directory)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Sides:
    """The two sites and what is compared unless the options say otherwise."""

    source_site: str
    target_site: str
    source: str
    target: str
    topic_whitelist: tuple[str, ...] = (".*",)
    topic_blacklist: tuple[str, ...] = DEFAULT_TOPIC_BLACKLIST


def _sides(source: str, target: str) -> Sides:
    for option, value in (("--source", source), ("--target", target)):
        try:
            parse_host_ports(value)
        except ValueError as error:
            raise usage_error(
                f"{option} {value!r} is not usable ({error}): give both, or --environment and --link"
            ) from error
    return Sides(source_site="source", target_site="target", source=source, target=target)


def _sides_of_link(environment: Path | None, link: str) -> Sides:
    known = open_environment(needed_environment(environment))
    name = link or (known.links[0].name if len(known.links) == 1 else "")
    if not name:
        raise usage_error(
            f"--link is not given; accepted: {', '.join(one.name for one in known.links) or 'no link is there'}"
        )
    entry = known.link(name)
    record = asyncio.run(_link_record(known, name))
    return Sides(
        source_site=entry.source,
        target_site=entry.target,
        source=known.sites[entry.source].bootstrap_servers,
        target=known.sites[entry.target].bootstrap_servers,
        topic_whitelist=tuple(record.topic_whitelist),
        topic_blacklist=blacklist_of(record),
    )


async def _check_sites_answer(sides: Sides) -> None:
    """Ask a broker of each site, both at a time, before Spark is started: that takes far longer
    than to see that one is away.
    """
    named = {sides.source_site: sides.source, sides.target_site: sides.target}
    found = await asyncio.gather(*(_problem_of(site, servers) for site, servers in named.items()))
    if problems := [problem for problem in found if problem]:
        raise OperationalFailure("; ".join(problems))


async def _problem_of(site: str, bootstrap_servers: str) -> str:
    from wire.client.client_errors import KafkaClientError
    from wire.client.connection import ConnectionOptions
    from wire.client.raw_client import KafkaClient

    options = ConnectionOptions(client_id="antipode-cli", request_timeout_ms=ANSWERED_WITHIN_MS)
    brokers = parse_host_ports(bootstrap_servers)
    try:
        async with KafkaClient(brokers, options, retry_budget_ms=ANSWERED_WITHIN_MS) as client:
            await client.metadata([])
    except KafkaClientError as error:
        return f"site {site}: no broker at {bootstrap_servers} answers ({error})"
    return ""


async def _link_record(environment: Environment, name: str) -> LinkRecord:
    """The link as the first site that answers has it: the filters are the same at both.
    OperationalFailure when none does.
    """
    from dr.links.administration import describe_link

    async with site_clients(environment.agents()) as clients:
        entries = await describe_link(name, list(clients.values()))
    for entry in entries:
        if entry.description is not None:
            return entry.description.record
    raise OperationalFailure("; ".join(entry.problem for entry in entries))


def _print(found: ReconciliationReport, directory: Path, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        print_json({**found.as_document(), "report_html": str(directory / "report.html")})
        return
    rows = [
        (
            one.topic,
            one.partition,
            one.source.end_offset,
            one.target.end_offset,
            one.source.records,
            one.target.records,
            "equal" if one.is_equal else "DIFFERENT",
        )
        for one in found.partitions
    ]
    ends = (f"{found.source_site} end", f"{found.target_site} end")
    records = (f"{found.source_site} records", f"{found.target_site} records")
    print_table("", ("topic", "partition", *ends, *records, ""), rows)
    for finding in found.findings[:FINDINGS_SHOWN_MAX]:
        place = f"{finding.topic}-{finding.partition} offsets {finding.first_offset} to {finding.last_offset}"
        reported = " ".join(filter(None, (f"at {finding.site}" if finding.site else "", finding.detail)))
        console.print(f"  [red]{finding.kind}[/] {place} {reported}", highlight=False)
    if len(found.findings) > FINDINGS_SHOWN_MAX:
        console.print(f"  and {len(found.findings) - FINDINGS_SHOWN_MAX} more: see the report")
    for reason in found.explanations[:FINDINGS_SHOWN_MAX]:
        place = f"{reason.topic}-{reason.partition} offsets {reason.first_offset} to {reason.last_offset}"
        console.print(f"  [dim]{reason.kind} {place}: {reason.detail}[/]", highlight=False)
    for problem in found.problems:
        console.print(f"  [red]could not compare:[/] {problem}", highlight=False)
    colour = "green" if found.verdict == "equal" else "red"
    console.print(
        f"[bold {colour}]{found.verdict}[/]: {len(found.partitions)} partitions, {found.elapsed_ms / 1000:.1f} s, "
        f"report {directory / 'report.html'}",
        highlight=False,
    )
