"""`antipode failovers`: a link's failovers and switchovers: runs, steps, who ran them, accounts."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer
from msgspec import to_builtins
from msgspec.structs import replace

from cli.recovery.failover import LinkName, move, print_account, show_move
from cli.shared.failures import failures_as_messages, print_error, usage_error
from cli.shared.output import Output, OutputFormat, console, print_json, print_table
from cli.shared.sites import Agents, EnvironmentFile, SiteOptions, agents, site_clients
from runtime.process import OperationalFailure
from runtime.times import iso_time

if TYPE_CHECKING:
    from dr.failover.core.recorded_run import RunRecord
    from dr.sites.core.loss import LossAccount

app = typer.Typer(
    help="Failovers and switchovers of a link: runs that ended, that are under way or that died, and their accounts.\n\n"
    "Example: antipode failovers list a-b",
    no_args_is_help=True,
)


@app.command("list")
def list_failovers(
    link: LinkName, environment: EnvironmentFile = None, site: SiteOptions = None, output: Output = OutputFormat.TEXT
) -> None:
    """List every failover run with its outcome, oldest first, from every site that answers.

    For a run that has not ended, "driven by" says whether its process reports, the agents of the
    promoted site or a later run finish it, or an operator has to.

    Example: antipode failovers list a-b --output json
    """
    with failures_as_messages():
        runs, driven_by, accounts = asyncio.run(_kept(link, agents(environment, site)))
    if output is OutputFormat.JSON:
        print_json([_document(run, driver) for run, driver in zip(runs, driven_by, strict=True)])
        return
    if not runs:
        console.print(f"no site keeps a run of link {link}: it was not failed over", highlight=False, markup=False)
        return
    rows = [
        (iso_time(run.began_at_ms), run.to_site, run.epoch, run.outcome, _lost(run, accounts), run.who, driver)
        for run, driver in zip(runs, driven_by, strict=True)
    ]
    print_table("", ("began", "to", "epoch", "outcome", "lost", "who", "driven by"), rows)


@app.command()
def show(
    link: LinkName,
    epoch: Annotated[int | None, typer.Option(help="Only runs and accounts of this epoch.", min=1)] = None,
    environment: EnvironmentFile = None,
    site: SiteOptions = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Show the steps of every run, and the account of each failover: the records that it kept and
    lost, oldest first.

    Example: antipode failovers show a-b --epoch 2
    """
    with failures_as_messages():
        every_run, driven_by, accounts = asyncio.run(_kept(link, agents(environment, site)))
    runs = [(run, driver) for run, driver in zip(every_run, driven_by, strict=True) if epoch in (None, run.epoch)]
    accounts = {number: account for number, account in accounts.items() if epoch in (None, number)}
    if output is OutputFormat.JSON:
        documents = [account.document() for account in accounts.values()]
        print_json({"runs": [_document(run, driver) for run, driver in runs], "accounts": documents})
        return
    if not runs and not accounts:
        console.print(f"no site keeps an account of link {link}: it was not failed over", highlight=False, markup=False)
    for run, driver in runs:
        heading = f"{iso_time(run.began_at_ms)}: to {run.to_site} by {run.who}: {run.outcome}, {run.reason}"
        console.print(heading, highlight=False, markup=False)
        if driver:
            console.print(f"  driven by: {driver}", highlight=False, markup=False)
        console.print(f"  {run.command}", highlight=False, markup=False)
        steps = [(step["step"], step["duration_ms"], step["problem"] or "done", step["reason"]) for step in run.steps]
        print_table("", ("step", "ms", "result", "why"), steps)
    for account in accounts.values():
        heading = (
            f"epoch {account.epoch}: {account.from_site} to {account.to_site}, {iso_time(account.accounted_at_ms)}"
        )
        console.print(heading, highlight=False, markup=False)
        print_account(account)


@app.command()
def abort(
    link: LinkName,
    environment: EnvironmentFile = None,
    site: SiteOptions = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Let an active site take writes again that an unfinished failover has fenced.

    The abort is refused once the next epoch is raised, which is the point of no return: then run
    the failover again to finish it. Exit code 1 when the abort is refused.

    Example: antipode failovers abort a-b
    """
    from dr.failover.core.steps import ABORTED, FailoverPolicy

    known = agents(environment, site)
    with failures_as_messages():
        standby = asyncio.run(_standby(link, known))
    if standby not in known:
        raise usage_error(
            f"no address of {standby}, the standby of link {link}, is given: add --site {standby}=host:port"
        )
    report = move(link, standby, known, FailoverPolicy(is_abort=True), is_dry_run=False, journal=None)
    show_move(replace(report, outcome="aborted") if report.reason == ABORTED else report, output)


async def _standby(link: str, known: Agents) -> str:
    from dr.links.administration import describe_link, governing_record
    from wire.rules.links import other_site

    async with site_clients(known) as clients:
        record = governing_record(await describe_link(link, list(clients.values())))
    return other_site(record, record.active_site)


async def _kept(link: str, known: Agents) -> tuple[list[RunRecord], list[str], dict[int, LossAccount]]:
    """Runs by the time at which they began, the process that continues each of them, accounts by
    epoch.
    """
    from dr.failover.core.recorded_run import RunRecord
    from dr.failover.run_drivers import drivers
    from dr.links.administration import describe_link, governing_record
    from dr.sites.core.loss import LossAccount

    runs: list[RunRecord] = []
    accounts: dict[int, LossAccount] = {}
    problems = []
    async with site_clients(known) as clients:
        for client in clients.values():
            try:
                texts, kept = await client.failovers(link), await client.runs(link)
            except OperationalFailure as failure:
                problems.append(str(failure))
                continue
            runs += [RunRecord.from_json(text) for text in kept]
            for account in map(LossAccount.from_json, texts):
                if account.is_final or account.epoch not in accounts:
                    accounts[account.epoch] = account
        if len(problems) == len(known):
            raise OperationalFailure("; ".join(problems))
        if not runs and not accounts:
            governing_record(await describe_link(link, list(clients.values())))  # raises when no site knows the link
        runs.sort(key=lambda run: run.began_at_ms)
        driven_by = await drivers(link, list(clients.values()), runs)
    for problem in problems:
        print_error(problem)
    return runs, driven_by, dict(sorted(accounts.items()))


def _document(run: RunRecord, driver: str) -> dict[str, Any]:
    return {**to_builtins(run), "driven_by": driver}


def _lost(run: RunRecord, accounts: dict[int, LossAccount]) -> str:
    account = accounts.get(run.epoch) if run.outcome == "done" else None
    if account is None:
        return ""
    if account.loses_nothing:
        return "nothing"
    return f"{'exactly' if account.is_exact else 'at least'} {account.known_lost_records} records"
