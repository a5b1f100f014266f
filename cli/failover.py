"""`antipode failover`: make a link's standby active, and print the account of what is kept and what is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from cli.output import (
    Output,
    OutputFormat,
    console,
    error_console,
    failures_as_messages,
    print_json,
    print_table,
    usage_error,
)
from cli.sites import EnvironmentFile, SiteOptions, agents
from runtime.process import ExitCode

if TYPE_CHECKING:
    from dr.failover import FailoverReport

DEFAULT_JOURNALS = Path("out/failovers")


def failover(
    link: Annotated[str, typer.Argument(help="Name of the link.")],
    to: Annotated[str, typer.Option("--to", help="The site that becomes active.")],
    environment: EnvironmentFile = None,
    site: SiteOptions = None,
    accepts_data_loss: Annotated[
        bool,
        typer.Option("--accept-data-loss", help="Go on where records are lost or the old site cannot be fenced."),
    ] = False,
    lag_max: Annotated[
        int | None,
        typer.Option("--max-lag", help="Refuse when a lost source was known to be this many records ahead.", min=0),
    ] = None,
    drain_timeout_ms: Annotated[
        int, typer.Option("--drain-timeout-ms", help="How long the mirror may take to bring the rest.", min=0)
    ] = 30_000,
    is_dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Ask both sites, say what would be done, change nothing.")
    ] = False,
    journal: Annotated[
        Path | None, typer.Option(help=f"Write each step here (default: a file in {DEFAULT_JOURNALS}).")
    ] = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Fence the active site if it can be reached, drain the link, raise its epoch, promote the standby, account for the loss.

    May be interrupted and run again by anybody: it goes on from what the sites say. Exit code 1 when it was refused.

    Example: antipode failover a-b --to b --environment out/sites/environment.json --dry-run
    """
    from dr.core.playbook import FailoverPolicy
    from dr.failover import failover as carry_out

    policy = FailoverPolicy(
        lag_records_max=lag_max, accepts_data_loss=accepts_data_loss, drain_timeout_ms=drain_timeout_ms
    )
    known = agents(environment, site)
    if to not in known:
        raise usage_error(f"--to {to!r}: accepted is one of {', '.join(sorted(known))}")
    with failures_as_messages():
        report = asyncio.run(
            carry_out(
                link,
                to_site=to,
                agents=known,
                policy=policy,
                is_dry_run=is_dry_run,
                journal_path=None if is_dry_run else journal or DEFAULT_JOURNALS / f"{link}-to-{to}.jsonl",
                progress=_progress(),
            )
        )
    if output is OutputFormat.JSON:
        print_json(report.to_json())
    else:
        _print_report(report)
    raise typer.Exit(ExitCode.FAILED if report.outcome == "refused" else ExitCode.DONE)


def _progress() -> Callable[[str, str], None]:
    """Tells each step on standard error, and again when there is something new to say of it."""
    told: tuple[str, str] | None = None

    def tell(step: str, reason: str) -> None:
        nonlocal told
        if (step, reason) != told:
            told = (step, reason)
            error_console.print(f"[bold]{step}[/]: {escape(reason)}", highlight=False)

    return tell


def _print_report(report: FailoverReport) -> None:
    if report.planned_steps:
        console.print(f"would do: {', '.join(report.planned_steps)}")
    if report.steps:
        rows = [[step.step, step.duration_ms, step.problem or "done", step.reason] for step in report.steps]
        print_table("", ("step", "ms", "result", "why"), rows)
    if report.account is not None:
        for loss in report.account.partitions:
            console.print(f"  {loss.sentence}", highlight=False)
        if report.account.groups is not None:
            console.print(f"  {report.account.groups.sentence}", highlight=False)
        exactness = "exactly" if report.account.is_exact else "at least"
        lost = f"{exactness} {report.account.known_lost_records} records"
        if report.account.groups is not None and report.account.groups.known_lost_offsets:
            lost += f" and {report.account.groups.known_lost_offsets} offsets of groups"
        console.print(f"lost in all: {'nothing' if report.account.loses_nothing else lost}")
    for reason in report.unprotected:
        console.print(f"  not protected: {reason}", highlight=False, markup=False)
    for cut in report.cuts:
        console.print(f"  inside a site: {cut.sentence}", highlight=False)
    if report.sync:
        console.print(f"sync: {report.sync}", highlight=False)
    colour = {"done": "green", "planned": "cyan"}.get(report.outcome, "red")
    console.print(
        f"[bold {colour}]{report.outcome}[/]: {report.reason} "
        f"(link {report.link}, {report.from_site} to {report.to_site}, epoch {report.epoch}, {report.duration_ms} ms)",
        highlight=False,
    )
