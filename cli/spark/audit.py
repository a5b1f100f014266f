"""`antipode audit`: count the records of both sites of a link by windows of event time, and judge
the counts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from cli.shared.brokers import problems_of_sites
from cli.shared.failures import failures_as_messages, usage_error
from cli.shared.output import (
    Output,
    OutputFormat,
    console,
    print_json,
    print_table,
    report_progress,
)
from cli.shared.sites import EnvironmentFile, needed_environment, open_environment, site_clients
from cli.spark.local_sessions import Cores, lazy_session
from cli.spark.stream_progress import reported_batches
from runtime.process import ExitCode, OperationalFailure
from runtime.times import iso_time

if TYPE_CHECKING:
    from dr.drill.environment import Environment
    from spark_jobs.auditing.report import AuditReport

SHOWN_MAX = 20
APPLICATION_TOPICS = "[^_].*"

app = typer.Typer(
    help="Count the records of both sites by topic and window of event time, and find missing ones.\n\n"
    "Example: antipode audit run a-b --once",
    no_args_is_help=True,
)
Name = Annotated[str, typer.Argument(help="Name of the link.")]
State = Annotated[Path, typer.Option("--state", help="Directory for counts and checkpoints.")]
DEFAULT_STATE = Path("out/audit")


@app.command()
def run(
    name: Name,
    environment: EnvironmentFile = None,
    state: State = DEFAULT_STATE,
    topics: Annotated[str, typer.Option(help="Topics: a regular expression on whole names.")] = APPLICATION_TOPICS,
    window_ms: Annotated[
        int, typer.Option(help="Length of a window of event time; fixed by the first run.", min=1)
    ] = 60_000,
    counts_topic: Annotated[
        str,
        typer.Option(help="The topic in which programs publish the counts of records that they stored and rejected."),
    ] = "",
    is_once: Annotated[bool, typer.Option("--once", help="Count the records that are there now, and end.")] = False,
    trigger_ms: Annotated[int, typer.Option(help="Time between two batches.", min=100)] = 10_000,
    cores: Cores = 0,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Count the records of both sites by streaming queries, until Ctrl-C, or with --once up to the
    present ends of the logs. A run that was killed continues; no record counts twice.

    Example: antipode audit run a-b --once --topics 'orders.*'
    """
    from spark_jobs.auditing.audit_run import Audit, AuditRequest

    with failures_as_messages():
        known = _environment(environment)
        link = known.link(name)
        sites = {site: known.sites[site].bootstrap_servers for site in (link.source, link.target)}
        away = asyncio.run(problems_of_sites(sites))
        if len(away) == len(sites):
            raise OperationalFailure("; ".join(away.values()))
        meanwhile = "Only the other site is counted." if is_once else "It is counted as soon as it answers."
        for problem in away.values():
            report_progress(f"{problem} {meanwhile}")
        request = AuditRequest(
            # a run that continues asks a silent site again
            sites={site: servers for site, servers in sites.items() if not (is_once and site in away)},
            state=state,
            topics=topics,
            window_ms=window_ms,
            counts_topic=counts_topic,
            trigger_ms=trigger_ms,
            options={site: {"antipode.site": site} for site in sites},
        )
        # before the settings are kept: the state would fix a topic that is not there
        request.check({site: servers for site, servers in sites.items() if site not in away})
        request.keep_settings()
        with lazy_session("antipode audit", cores) as session:
            audit = Audit(session(), request, report_progress)
            with reported_batches(audit.spark):
                if is_once:
                    audit.run_until_end()
                else:
                    audit.run()
            if is_once and away:
                raise OperationalFailure("; ".join(away.values()))
    if output is OutputFormat.JSON:
        print_json({"state": str(state), "sites": sorted(sites)})
    else:
        counted = " and ".join(sorted(sites))
        console.print(
            f"counted the records of {counted} into {state}; `antipode audit report {name} --state {state}` judges them",
            highlight=False,
            markup=False,
            soft_wrap=True,
        )


@app.command()
def report(
    name: Name,
    environment: EnvironmentFile = None,
    state: State = DEFAULT_STATE,
    settled_until: Annotated[
        str,
        typer.Option(
            "--settled-until", help="Judge windows that end before this time, instead of asking what is complete."
        ),
    ] = "",
    since: Annotated[
        str, typer.Option(help="Judge only windows and hours that begin at this time or later, as in a regular check.")
    ] = "",
    alarm_windows: Annotated[
        int, typer.Option(help="Number of successive settled windows with gaps that raise an alarm.", min=1)
    ] = 3,
    delay_alarm_ms: Annotated[
        int, typer.Option(help="A higher p99 delay in an hour raises an alarm; 0: no alarm.", min=0)
    ] = 0,
    lateness_ms: Annotated[
        int, typer.Option(help="A record is late if a window that is newer by this time has begun.", min=0)
    ] = 60_000,
    out: Annotated[Path | None, typer.Option("--out", help="Directory of the report; by default STATE/report.")] = None,
    metrics_file: Annotated[
        Path | None, typer.Option(help="File for the alarms as Prometheus metrics, for a textfile collector.")
    ] = None,
    webhook: Annotated[
        str, typer.Option(help="URL that gets a message (JSON, as from Alertmanager) when an alarm begins or ends.")
    ] = "",
    output: Output = OutputFormat.TEXT,
) -> None:
    """Check the counts: produced = stored + rejected in every window that is complete at both
    sites. Exit code 1 with an alarm, else 0. Does not start Spark.

    Example: antipode audit report a-b --alarm-windows 3 --delay-alarm-ms 5000
    """
    from cli.shared.times import parse_time
    from spark_jobs.auditing.alarm_outputs import send_change, write_metrics
    from spark_jobs.auditing.report import audited, write_audit

    # "${" begins a reference to a secret.
    if webhook and not webhook.startswith(("http://", "https://", "${")):
        raise usage_error(f"--webhook {webhook!r} is not usable: accepted is a URL, http://... or https://...")
    with failures_as_messages():
        active, complete_ms = _settled(_environment(environment), name)
        if settled_until:
            complete_ms = dict.fromkeys(complete_ms, parse_time("--settled-until", settled_until))
        found = audited(
            state,
            reference=active,
            settled_until_ms=complete_ms,
            alarm_windows=alarm_windows,
            delay_alarm_ms=delay_alarm_ms,
            lateness_ms=lateness_ms,
            since_ms=parse_time("--since", since) if since else 0,
        )
        directory = out or state / "report"
        write_audit(found, directory)
        if metrics_file is not None:
            write_metrics(found, name, metrics_file)
    _print(found, directory, output)
    with failures_as_messages():
        if webhook and send_change(found, name, state, webhook):
            report_progress("the web hook has taken a message about alarms that have begun or ended")
    raise typer.Exit(ExitCode.FAILED if found.judged.is_alarm else ExitCode.DONE)


def _environment(file: Path | None) -> Environment:
    return open_environment(needed_environment(file))


def _settled(known: Environment, name: str) -> tuple[str, Mapping[str, int]]:
    """The active site, and until when each topic of the link is complete, Unix ms."""
    from dr.links.administration import describe_link, governing_record
    from dr.links.completeness import complete_until, looks_at_sites
    from runtime.clock import SystemClock

    async def ask() -> tuple[str, Mapping[str, int]]:
        async with site_clients(known.agents()) as clients:
            record = governing_record(await describe_link(name, list(clients.values())))
            look = await looks_at_sites(name, clients, SystemClock())
            found = await complete_until(
                look, until_ms=round(time.time() * 1000), topics=[".*"], timeout_ms=0, clock=SystemClock()
            )
            return record.active_site, {one.topic: one.complete_until_ms for one in found}

    return asyncio.run(ask())


def _print(found: AuditReport, directory: Path, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        print_json({**found.as_document(), "report_html": str(directory / "report.html")})
        return
    rows = [
        (one.topic, one.tier, one.records, one.rejected, one.late, iso_time(found.settled_until_ms.get(one.topic, 0)))
        for one in found.totals[:SHOWN_MAX]
    ]
    if rows:
        print_table("", ("topic", "tier", "records", "rejected", "late", "settled until"), rows)
    else:
        console.print("[yellow]nothing is judged[/]: the audit has counted no record of a topic", highlight=False)
    for gap in found.judged.gaps[:SHOWN_MAX]:
        kind = "[red]alarm[/]" if gap.is_alarm else "short"
        place = f"{gap.topic} at {gap.tier} from {iso_time(gap.first_window_ms)}"
        console.print(f"  {kind} {escape(place)}: {gap.missing:,} missing in {gap.windows} windows", highlight=False)
    for one in found.judged.delays:
        if one.is_alarm:
            console.print(
                f"  [red]alarm[/] {one.topic} at {one.tier}, hour from {iso_time(one.hour_ms)}: p99 of the delay is {one.p99_ms:,} ms",
                highlight=False,
            )
    colour, verdict = ("red", "alarm") if found.judged.is_alarm else ("green", "no alarm")
    console.print(f"[bold {colour}]{verdict}[/], report {escape(str(directory / 'report.html'))}", highlight=False)
