"""`antipode rehearse`: promote clones of a link's standby in a sandbox, while mirroring goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.recovery.drill import new_directory, print_result
from cli.shared.failures import failures_as_messages, usage_error
from cli.shared.output import Output, OutputFormat, console, print_json, report_progress
from cli.shared.sites import EnvironmentFile, needed_environment, open_environment
from runtime.process import ExitCode, OperationalFailure, run_daemon

if TYPE_CHECKING:
    from cli.recovery.rehearsing.standby import StandbyBroker
    from dr.drill.drill_report import ReportFiles
    from dr.drill.drill_results import DrillResult

REHEARSALS = Path("out/rehearsals")


def rehearse(
    link: Annotated[str, typer.Argument(help="Name of the link.")],
    to: Annotated[str, typer.Option("--to", help="The standby whose logs are cloned and promoted.")],
    environment: EnvironmentFile = None,
    config: Annotated[
        list[Path] | None,
        typer.Option(
            "--config",
            "-c",
            help="Properties file of a broker of the standby on this machine; may be given again. "
            "Without it the files are found by --environment.",
        ),
    ] = None,
    records: Annotated[
        int, typer.Option(help="Records that a client writes to the clones and reads back.", min=0)
    ] = 1000,
    report_dir: Annotated[
        Path | None, typer.Option(help=f"Where the report goes (default: a new directory in {REHEARSALS}).")
    ] = None,
    is_dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Check the properties files, the link and the standby, and name what a rehearsal would use.",
        ),
    ] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Rehearse a failover on clones of the standby's logs. Mirroring continues, and the rehearsal
    contacts no other site.

    Run it on the machine of the standby's brokers. Closed segments are shared by hard links; the
    last segment of each log is copied. A sandbox broker with own ports and an own ZooKeeper chroot
    promotes the clones, a client writes to them and reads back, and everything is removed. The
    digests of the standby's logs before and after are compared.

    A rehearsal that was interrupted is cleaned up by the next one. Exit code 1 when a check failed.

    Example: antipode rehearse a-b --to b --config /etc/antipode/server.properties
    """
    from cli.recovery.rehearsing.standby import read_brokers

    with failures_as_messages():
        brokers = read_brokers(config or _configs(needed_environment(environment), to))
    site = brokers[0].settings.site
    if site != to:
        raise usage_error(f"--to {to!r}: the properties files are of site {site}")
    if is_dry_run:
        with failures_as_messages():
            asyncio.run(_survey(link, brokers))
        _show_plan(brokers, output)
        return
    directory = (report_dir or new_directory(REHEARSALS)).resolve()
    ended: list[DrillResult] = []

    async def run(stop: asyncio.Event) -> None:
        ended.append(await _run(link, brokers, records, stop))

    code = run_daemon(run)
    if not ended:
        raise typer.Exit(code)
    _show(ended[0], directory, output)
    raise typer.Exit(ExitCode.DONE if ended[0].is_passed else ExitCode.FAILED)


def _configs(environment: Path, site: str) -> list[Path]:
    """The files with which `antipode up` has started the site's brokers."""
    known = open_environment(environment).sites
    if site not in known:
        raise usage_error(f"--to {site!r}: accepted is one of {', '.join(sorted(known))}")
    commands = [process.command for process in known[site].processes]
    found = [
        Path(command[command.index("--config") + 1])
        for command in commands
        if "broker" in command and "--config" in command
    ]
    if not found:
        raise OperationalFailure(f"{environment} names no broker of {site} with a properties file: give --config")
    return found


async def _run(link: str, brokers: Sequence[StandbyBroker], records: int, stop: asyncio.Event) -> DrillResult:
    """Run until the rehearsal has ended; `stop` ends it in good order."""
    from cli.recovery.rehearsing.local_sandbox import LocalSandbox, one_at_a_time
    from cli.recovery.rehearsing.site import zookeeper_at
    from dr.rehearsal.execution import Rehearsal, RehearsalRequest
    from dr.sites.channels import Channels
    from dr.sites.site_client import COMMAND_PATIENCE_MS, SiteClient
    from runtime.clock import SystemClock

    settings = brokers[0].settings
    channels = Channels()
    try:
        with one_at_a_time(settings.log_dirs[0]):
            async with zookeeper_at(settings.zookeeper_connect) as zookeeper:
                bootstrap, agents = await _addresses(zookeeper, settings.site)
            rehearsal = Rehearsal(
                RehearsalRequest(link=link, standby=settings.site, bootstrap_servers=bootstrap, records=records),
                site=SiteClient(settings.site, agents, channels, patience_ms=COMMAND_PATIENCE_MS),
                sandbox=LocalSandbox(brokers),
                channels=channels,
                clock=SystemClock(),
                progress=lambda step, detail: report_progress(f"{step} {detail}".strip()),
            )
            running, stopping = asyncio.ensure_future(rehearsal.run()), asyncio.ensure_future(stop.wait())
            await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not running.done():
                running.cancel()
            stopping.cancel()
            try:
                return await running
            except asyncio.CancelledError as error:
                left = "; ".join(rehearsal.left_behind)
                removed = (
                    f"the next one removes what is left: {left}" if left else "everything that it had made is removed"
                )
                raise OperationalFailure(f"the rehearsal was stopped; {removed}") from error
    finally:
        await channels.close()


async def _survey(link: str, brokers: Sequence[StandbyBroker]) -> None:
    """Refuse what a rehearsal would refuse before it clones. OperationalFailure."""
    from cli.recovery.rehearsing.site import zookeeper_at
    from dr.rehearsal.execution import survey_standby
    from dr.sites.channels import Channels
    from dr.sites.site_client import COMMAND_PATIENCE_MS, SiteClient
    from runtime.clock import SystemClock

    settings, channels = brokers[0].settings, Channels()
    try:
        async with zookeeper_at(settings.zookeeper_connect) as zookeeper:
            _, agents = await _addresses(zookeeper, settings.site)
        site = SiteClient(settings.site, agents, channels, patience_ms=COMMAND_PATIENCE_MS)
        await survey_standby(link, site, SystemClock())
    finally:
        await channels.close()


def _show_plan(brokers: Sequence[StandbyBroker], output: OutputFormat) -> None:
    from cli.recovery.rehearsing.clones import sandbox_directory
    from cli.recovery.rehearsing.site import sandbox_connect

    directories = [str(sandbox_directory(path)) for one in brokers for path in one.settings.log_dirs]
    plan = {
        "site": brokers[0].settings.site,
        "node_ids": [one.settings.node_id for one in brokers],
        "clones": directories,
        "zookeeper": sandbox_connect(brokers[0].settings.zookeeper_connect),
    }
    if output is OutputFormat.JSON:
        print_json(plan)
        return
    console.print(
        f"would clone the logs of brokers {', '.join(map(str, plan['node_ids']))} into", *directories, markup=False
    )
    console.print(f"would use the ZooKeeper chroot {plan['zookeeper']}", highlight=False, markup=False)


def _show(result: DrillResult, directory: Path, output: OutputFormat) -> None:
    from dr.drill.drill_report import write_report

    with failures_as_messages():
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise OperationalFailure(f"--report-dir {directory} cannot be made: {error.strerror}") from error
    files: ReportFiles = write_report(result, directory)
    if output is OutputFormat.JSON:
        paths = {"report_html": str(files.html), "report_json": str(files.json), "report_junit": str(files.junit)}
        print_json({**result.to_json(), **paths})
        return
    for step in result.steps:
        console.print(f"  {step.title} ({step.duration_ms / 1000:.1f} s)  {step.detail}", highlight=False, markup=False)
    print_result(result, files)


async def _addresses(zookeeper: object, site: str) -> tuple[str, list[str]]:
    """Client addresses and agents of the site's live brokers, as they have registered."""
    from runtime.zookeeper.client import ZooKeeper
    from wire.znodes import layout as znodes
    from wire.znodes.broker_znodes import decode_broker

    assert isinstance(zookeeper, ZooKeeper)
    nodes = sorted(znodes.broker_ids(await zookeeper.children(znodes.BROKER_IDS)))
    stored = await zookeeper.get_many([znodes.broker_path(node) for node in nodes])
    live = [decode_broker(node, found[0]) for node, found in zip(nodes, stored, strict=True) if found is not None]
    if not live:
        raise OperationalFailure(f"no broker of {site} is registered: start the standby first")
    ends = [one.endpoints[0] for one in live if one.endpoints]
    return ",".join(f"{end.host}:{end.port}" for end in ends), [one.grpc_address for one in live if one.grpc_address]
