"""`antipode drill`: practises a disaster on a pair of sites, and reports its effect on clients."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.markup import escape

from cli.shared.failures import failures_as_messages, usage_error
from cli.shared.output import Output, OutputFormat, console, error_console, print_json, print_table
from cli.shared.sites import EnvironmentFile, needed_environment, open_environment
from runtime.process import ExitCode, run_daemon

if TYPE_CHECKING:
    from dr.drill.drill_report import ReportFiles
    from dr.drill.drill_results import DrillResult
    from dr.drill.environment import Environment
    from dr.drill.execution import Commands
    from dr.drill.plan.drill_plan import DrillPlan

DRILLS = Path("out/drills")

app = typer.Typer(
    help="Drills: break a pair of sites on purpose while clients work, fail over, measure, and repair everything.\n\n"
    "Example: antipode drill run deploy/examples/demo-drill.yaml",
    no_args_is_help=True,
)

Plan = Annotated[
    str,
    typer.Argument(
        help="The plan: a YAML file (docs/drills.md lists the steps and expectations), or a ready one of `antipode drill list`."
    ),
]
LinkOption = Annotated[
    str | None, typer.Option("--link", help="The link that a ready plan is for, where the environment has several.")
]


@app.command("list")
def list_drills(output: Output = OutputFormat.TEXT) -> None:
    """The drills that are ready to run on any pair of sites.

    Example: antipode drill list
    """
    from dr.drill.library import names, ready_plan

    plans = {name: ready_plan(name) for name in names()}
    if output is OutputFormat.JSON:
        print_json(
            [
                {"name": name, "title": plan.name, "description": plan.description.strip(), "steps": len(plan.steps)}
                for name, plan in plans.items()
            ]
        )
        return
    print_table("", ("name", "what happens"), [(name, plan.description.strip()) for name, plan in plans.items()])


@app.command()
def run(
    plan: Plan,
    environment: EnvironmentFile = None,
    link: LinkOption = None,
    report_dir: Annotated[
        Path | None, typer.Option(help=f"Where the report goes (default: a new directory in {DRILLS}).")
    ] = None,
    is_dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the plan against the environment, list the steps, touch nothing.")
    ] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Run a drill and write its report. Exit code 1 when a step or a client failed, an expectation
    was not met, or something could not be put right.

    Ctrl-C ends the drill in order. Each end of a drill removes its faults and starts the processes
    again that it ended.

    Example: antipode drill run plan.yaml --environment out/sites/environment.json --report-dir
    out/drills/tuesday
    """
    from dr.drill.plan.drill_plan import load_plan

    with failures_as_messages():
        is_file = plan.endswith((".yaml", ".yml")) or Path(plan).exists()
        if is_file and link is not None:
            raise usage_error(f"--link {link} goes with a ready plan: {plan} names its link itself")
        loaded = load_plan(Path(plan)) if is_file else None
        file = needed_environment(environment)
        sites = open_environment(file)
        loaded = loaded or asyncio.run(_ready(plan, sites, link))
    if is_dry_run:
        check(loaded, sites, output)
        return
    directory = (report_dir or new_directory(DRILLS)).resolve()
    ended: list[tuple[DrillResult, ReportFiles]] = []

    async def drill(stop: asyncio.Event) -> None:
        found = await run_with_view(
            loaded,
            sites,
            stop,
            directory=directory,
            commands=commands(file, sites),
            is_quiet=output is OutputFormat.JSON,
        )
        ended.append(found)

    code = run_daemon(drill)
    if not ended:
        raise typer.Exit(code)
    result, files = ended[0]
    if output is OutputFormat.JSON:
        print_json(
            {
                **result.to_json(),
                "report_html": str(files.html),
                "report_json": str(files.json),
                "report_junit": str(files.junit),
            }
        )
    else:
        print_result(result, files)
    raise typer.Exit(ExitCode.DONE if result.is_passed else ExitCode.FAILED)


async def _ready(name: str, environment: Environment, link: str | None) -> DrillPlan:
    """A ready plan for a link as it is now. OperationalFailure."""
    from dr.drill.lag import LagProbe
    from dr.drill.library import ready_plan
    from dr.sites.channels import Channels
    from runtime.clock import SystemClock
    from runtime.process import OperationalFailure

    ready_plan(name)
    known = [one.name for one in environment.links]
    chosen = link or (known[0] if len(known) == 1 else "")
    if not chosen:
        raise OperationalFailure(f"the environment has {len(known)} links: say which with --link ({', '.join(known)})")
    channels = Channels()
    try:
        probe = LagProbe(environment, chosen, channels, SystemClock())
        sample = await probe.sample()
    finally:
        await channels.close()
    if not sample.active_site:
        raise OperationalFailure(f"no site of link {chosen} answers")
    topic = f"drill-{new_directory(DRILLS).name}"
    standby = probe.standby(sample)
    values = {
        "link": chosen,
        "active": sample.active_site,
        "standby": standby,
        "active_broker": environment.first_broker(sample.active_site),
        "standby_broker": environment.first_broker(standby),
        "topic": topic,
    }
    return ready_plan(name, values)


def check(plan: DrillPlan, environment: Environment, output: OutputFormat) -> None:
    """Refuse what `run` would refuse before it touches anything; list the steps."""
    from dr.drill.plan_checks import refuse_what_cannot_be

    with failures_as_messages():
        refuse_what_cannot_be(plan, environment)
    titles = [step.title for step in plan.steps]
    if output is OutputFormat.JSON:
        print_json({"name": plan.name, "link": plan.link, "steps": titles})
        return
    for number, title in enumerate(titles, start=1):
        console.print(f"{number:3} {title}", highlight=False, markup=False)


def new_directory(parent: Path) -> Path:
    """A directory for a report, named by the time (UTC)."""
    return parent / datetime.now(UTC).strftime("%Y%m%d-%H%M%S")


def commands(environment_file: Path, environment: Environment) -> Commands:
    """`antipode reconcile`, and `antipode pipeline run follow-topics`, with the placeholders that a
    drill fills in.
    """
    from dr.drill.execution import Commands

    antipode = [sys.executable, "-m", "cli.main"]
    reconcile = [*antipode, "reconcile", "--environment", str(environment_file.resolve()), "--link", "{link}"]
    query = [*antipode, "pipeline", "run", "follow-topics"]
    if environment.admin_client_config is not None:
        query += ["--command-config", str(environment.admin_client_config)]
    query += ["--bootstrap-server", "{bootstrap}", "--topics", "{topics}", "--to", "{directory}"]
    files = ["--brokers", "{directory}/brokers", "--until", "{directory}/finish", "--trigger-ms", "200"]
    return Commands(
        reconcile=[*reconcile, "--out", "{report_dir}", "--records-only", "--output", "json"],
        query=[*query, "--checkpoint", "{directory}/checkpoint", "--small", *files],
    )


async def run_with_view(
    plan: DrillPlan,
    environment: Environment,
    stop: asyncio.Event,
    *,
    directory: Path,
    commands: Commands,
    is_quiet: bool = False,
) -> tuple[DrillResult, ReportFiles]:
    """Run the plan with a live view on standard error."""
    from dr.drill.execution import run_drill
    from dr.drill.lag_view import LagView

    with LagView(error_console, title=plan.name) as view:
        result, files = await run_drill(
            plan,
            environment,
            directory=directory,
            stop=stop,
            commands=commands,
            view=None if is_quiet else view,
        )
        view.print_finished(tuple(result.steps))
    return result, files


def print_result(result: DrillResult, files: ReportFiles) -> None:
    """Accounts, expectations and where the report is."""
    for report in result.failovers:
        for loss in report.account.partitions if report.account is not None else ():
            console.print(f"  {loss.sentence}", highlight=False, markup=False)
    for name, found in result.queries.items():
        console.print(
            f"  query {name}: {found['stored']} records are in its files; of the records of the active site "
            f"{found['missing']} are missing and {found['repeated']} repeated; {found['lost']} were lost after they were read",
            highlight=False,
        )
    if result.verdicts:
        rows = [
            (verdict.name, verdict.wanted, verdict.found, "met" if verdict.is_met else "NOT MET")
            for verdict in result.verdicts
        ]
        print_table("", ("expectation", "wanted", "found", ""), rows)
    for problem in result.restore_problems:
        console.print(f"[red]not put right:[/] {escape(problem)}")
    colour = "green" if result.is_passed else "red"
    console.print(f"[bold {colour}]{result.outcome}[/] {escape(result.reason)}", highlight=False)
    console.print(f"report: {files.html}", highlight=False, markup=False)
