"""`antipode failover`: make a link's standby active, and print the account of what is kept and what
is lost.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from msgspec.structs import replace
from rich.markup import escape

from cli.shared.failures import failures_as_messages, usage_error
from cli.shared.output import Output, OutputFormat, console, error_console, print_json, print_table
from cli.shared.sites import Agents, EnvironmentFile, SiteOptions, agents
from cli.shared.times import parse_time
from runtime.clock import SystemClock
from runtime.process import ExitCode
from runtime.times import iso_time

if TYPE_CHECKING:
    from dr.failover.core.steps import FailoverPolicy
    from dr.failover.report import FailoverReport
    from dr.sites.core.loss import LossAccount

DEFAULT_JOURNALS = Path("out/failovers")

LinkName = Annotated[str, typer.Argument(help="Name of the link.")]
NewActiveSite = Annotated[str, typer.Option("--to", help="The site that becomes active.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Ask both sites, say what would be done, change nothing.")]
JournalFile = Annotated[
    Path | None, typer.Option(help=f"Write each step here (default: a file in {DEFAULT_JOURNALS}).")
]
DrainTimeout = Annotated[
    int,
    typer.Option(
        "--drain-timeout-ms", help="How long the mirror may take to catch up before writers are stopped.", min=0
    ),
]
KeptBefore = Annotated[
    str | None,
    typer.Option(
        "--to-time",
        help="Keep only records before this time, such as 2026-11-23T02:00:00Z; later ones go to quarantine.",
    ),
]
Consistent = Annotated[
    bool,
    typer.Option(
        "--consistent",
        help="Move the records from the first commit of a torn transaction on to quarantine.",
    ),
]
UnavailabilityMax = Annotated[
    int,
    typer.Option(
        "--unavailability-max-ms", help="How long writers may be stopped until the standby has the last records.", min=1
    ),
]


def failover(
    link: LinkName,
    to: NewActiveSite,
    environment: EnvironmentFile = None,
    site: SiteOptions = None,
    is_old_site_down: Annotated[
        bool,
        typer.Option(
            "--old-site-is-down",
            help="Declare that an active site which does not answer is down, and stays down until it learns of the failover.",
        ),
    ] = False,
    accepts_data_loss: Annotated[
        bool,
        typer.Option(
            "--accept-data-loss",
            help="Continue even if records are lost, the standby differs or the old site cannot be fenced.",
        ),
    ] = False,
    lag_max: Annotated[
        int | None,
        typer.Option("--max-lag", help="Refuse when a lost source was known to be this many records ahead.", min=0),
    ] = None,
    to_time: KeptBefore = None,
    is_consistent: Consistent = False,
    drain_timeout_ms: DrainTimeout = 30_000,
    unavailability_max_ms: UnavailabilityMax = 5_000,
    is_dry_run: DryRun = False,
    journal: JournalFile = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Stop writers at the active site if it answers, drain the link, raise its epoch, promote the
    standby, account for the loss.

    Writers are stopped only if a mirror runs and the standby follows closely, and at most for
    --unavailability-max-ms.

    An active site that does not answer may still run and take writes. Such a failover is refused,
    or asks at a terminal, unless --old-site-is-down declares it down.

    --to-time undoes what a faulty producer wrote: the promoted site continues as of that time, and
    groups that read further go back.

    --consistent promotes to the latest point at which no transaction is torn: committed in one
    partition of the standby, and missing in another one.

    A failover may be interrupted; any operator can run it again: it continues from the state of the
    sites. Exit code 1 when it was refused.

    Example: antipode failover a-b --to b --environment out/sites/environment.json --dry-run
    """
    from dr.failover.core.steps import FailoverPolicy

    policy = FailoverPolicy(
        lag_records_max=lag_max,
        accepts_data_loss=accepts_data_loss,
        drain_timeout_ms=drain_timeout_ms,
        unavailability_max_ms=unavailability_max_ms,
        is_old_site_down=is_old_site_down,
        kept_before_ms=0 if to_time is None else _past("--to-time", to_time),
        is_cut_consistent=is_consistent,
    )
    known = agents(environment, site)
    report = move(link, to, known, policy, is_dry_run=is_dry_run, journal=journal)
    is_asked = report.outcome == "refused" and report.is_source_silent and sys.stdin.isatty() and not is_dry_run
    if is_asked and not is_old_site_down and not accepts_data_loss:
        error_console.print(f"[red]refused[/]: {escape(report.reason)}", highlight=False)
        typer.confirm(f"Is {report.from_site} down, and will it stay down?", abort=True, err=True)
        report = move(link, to, known, replace(policy, is_old_site_down=True), is_dry_run=False, journal=journal)
    show_move(report, output)


def _past(option: str, text: str) -> int:
    at_ms = parse_time(option, text)
    if at_ms >= SystemClock().now_ms():
        raise usage_error(f"{option} {text!r} is not in the past: accepted is a time before now")
    return at_ms


def move(
    link: str, to: str, known: Agents, policy: FailoverPolicy, *, is_dry_run: bool, journal: Path | None
) -> FailoverReport:
    """Make a site active, or plan it. Ends the command with one message when no site can be
    asked.
    """
    from dr.failover.execution import failover as carry_out

    if to not in known:
        raise usage_error(f"--to {to!r}: accepted is one of {', '.join(sorted(known))}")
    with failures_as_messages():
        return asyncio.run(
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


def show_move(report: FailoverReport, output: OutputFormat) -> NoReturn:
    """Print the report; exit code 1 when the move was refused."""
    if output is OutputFormat.JSON:
        print_json(report.to_json())
    else:
        _print_report(report)
    raise typer.Exit(ExitCode.FAILED if report.outcome == "refused" else ExitCode.DONE)


def _progress() -> Callable[[str, str], None]:
    """Prints each step on standard error, and again when its reason changes."""
    reported: tuple[str, str] | None = None

    def tell(step: str, reason: str) -> None:
        nonlocal reported
        if (step, reason) != reported:
            reported = (step, reason)
            error_console.print(f"[bold]{step}[/]: {escape(reason)}", highlight=False)

    return tell


def print_account(account: LossAccount) -> None:
    """Print the kept and lost records of each partition and group, and whether the account is
    final.
    """
    for loss in account.partitions:
        console.print(f"  {loss.sentence}", highlight=False, markup=False)
    if account.groups is not None:
        console.print(f"  {account.groups.sentence}", highlight=False, markup=False)
    if account.access is not None:
        console.print(f"  {account.access.sentence}", highlight=False, markup=False)
    for sentence in account.transaction_sentences:
        console.print(f"  {sentence}", highlight=False, markup=False)
    lost = f"{'exactly' if account.is_exact else 'at least'} {account.known_lost_records} records"
    if account.groups is not None and account.groups.known_lost_offsets:
        lost += f" and {account.groups.known_lost_offsets} offsets of groups"
    if account.returning_records:
        lost += f"; {account.returning_records} abandoned records are back"
    console.print(f"lost in all: {'nothing' if account.loses_nothing else lost}", markup=False)
    for difference in account.differences:
        console.print(f"[bold red]differs[/]: {escape(difference)}", highlight=False)
    if account.is_final:
        found = (
            f"{account.found_records} records of its own ({account.found_bytes} bytes)"
            if account.found_records
            else "no records of its own"
        )
        console.print(
            f"final since {iso_time(account.settled_at_ms)}: the old site had {found}", highlight=False, markup=False
        )


def _print_report(report: FailoverReport) -> None:
    if report.planned_steps:
        console.print(f"would do: {', '.join(report.planned_steps)}", markup=False)
    if report.steps:
        rows = [[step.step, step.duration_ms, step.problem or "done", step.reason] for step in report.steps]
        print_table("", ("step", "ms", "result", "why"), rows)
    if report.account is not None:
        print_account(report.account)
    for reason in report.unprotected:
        console.print(f"  not protected: {reason}", highlight=False, markup=False)
    for cut in report.cuts:
        console.print(f"  inside a site: {cut.sentence}", highlight=False, markup=False)
    if report.sync:
        console.print(f"sync: {report.sync}", highlight=False, markup=False)
    colour = {"done": "green", "aborted": "green", "planned": "cyan"}.get(report.outcome, "red")
    console.print(
        f"[bold {colour}]{report.outcome}[/]: {escape(report.reason)} "
        f"(link {report.link}, {report.from_site} to {report.to_site}, epoch {report.epoch}, {report.duration_ms} ms)",
        highlight=False,
    )
