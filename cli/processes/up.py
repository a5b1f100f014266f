"""`antipode up`: two or more whole sites on this machine, linked, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from cli.embedding.layout_plan import Wishes, check
from cli.links.policies import FailoverChoice, SyncChoice, failover_mode_of
from cli.processes.daemons import parse_property
from cli.shared.failures import usage_error
from cli.shared.lists import split_list
from cli.shared.output import Output, OutputFormat, console, print_json, report_progress
from cli.shared.sync_options import SyncBoundOption, checked_bound_ms
from runtime.process import run_daemon
from wire.rules.links import DEFAULT_TOPIC_BLACKLIST, LEASE_MS_MAX, LEASE_MS_MIN, FailoverMode, SyncPolicy

DEFAULT_DIRECTORY = Path("out/sites")
# Given by name, so that this process imports none of the daemons.
PRELOADED = ("cli.processes.preloaded",)
UP_LEASE_MS = 2_000
"""Short, for sites that are tried out on one machine."""


def up(
    sites: Annotated[
        str, typer.Option(help="Names of the sites; the first is active and linked to each other one.")
    ] = "a,b",
    brokers: Annotated[int, typer.Option(help="Broker processes in each site.", min=1)] = 1,
    directory: Annotated[
        Path,
        typer.Option(
            "--dir",
            help="Directory of logs, data and configuration; a later `antipode up` with it continues from there.",
        ),
    ] = DEFAULT_DIRECTORY,
    whitelist: Annotated[
        str, typer.Option(help="Topics that links carry: comma-separated regular expressions.")
    ] = ".*",
    blacklist: Annotated[
        str, typer.Option(help="Topics not to mirror; overrides the whitelist. Internal topics are never mirrored.")
    ] = ",".join(DEFAULT_TOPIC_BLACKLIST),
    has_proxy: Annotated[bool, typer.Option("--proxy/--no-proxy", help="Put toxiproxy between the sites.")] = True,
    has_link: Annotated[bool, typer.Option("--link/--no-link", help="Link the sites and run mirrors.")] = True,
    has_bridge: Annotated[
        bool, typer.Option("--bridge/--no-bridge", help="Run the HTTP bridge over the linked sites.")
    ] = False,
    sync: Annotated[
        SyncChoice | None,
        typer.Option(
            help="Acknowledge acks=all only when the target has it, too: block, or degrade when it is silent; bound: when the "
            "target is at most --sync-bound-ms behind."
        ),
    ] = None,
    sync_bound_ms: SyncBoundOption = None,
    has_arbiter: Annotated[
        bool,
        typer.Option(
            "--arbiter/--no-arbiter", help="Run an arbiter, and have the active site write under a lease (--lease-ms)."
        ),
    ] = False,
    lease_ms: Annotated[
        int, typer.Option("--lease-ms", min=LEASE_MS_MIN, max=LEASE_MS_MAX, help="The lease of links, with --arbiter.")
    ] = UP_LEASE_MS,
    failover: Annotated[
        FailoverChoice,
        typer.Option("--failover", help="With --arbiter: what the standby does when the active site is lost."),
    ] = FailoverChoice.OBSERVE,
    is_secure: Annotated[
        bool,
        typer.Option(
            "--secure/--plaintext",
            help="Make an authority and certificates, and demand them on the control plane; the JSON names the files.",
        ),
    ] = False,
    broker_config: Annotated[
        list[str] | None, typer.Option("--broker-config", help="A broker property, key=value; may be given again.")
    ] = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Run whole sites on this machine: ZooKeeper, brokers, toxiproxy between the sites, and
    mirrors.

    Prints where everything is once all of it is ready, keeps running until SIGTERM or Ctrl-C, and
    stops cleanly.

    Example: antipode up --sites a,b --brokers 1 --dir out/sites --output json
    """
    from cli.embedding.embedded import EmbeddedSites
    from cli.embedding.link_setup import LinkFilters
    from cli.embedding.port_file import layout_in_directory

    wishes = Wishes(
        sites=tuple(name.strip() for name in sites.split(",") if name.strip()),
        brokers=brokers,
        directory=directory.resolve(),
        has_proxy=has_proxy,
        has_link=has_link,
        has_bridge=has_bridge,
        has_arbiter=has_arbiter,
        is_secure=is_secure,
    )
    if not has_arbiter and (lease_ms != UP_LEASE_MS or failover is not FailoverChoice.OBSERVE):
        raise usage_error(f"--lease-ms {lease_ms} and --failover {failover.value} have no effect: add --arbiter")
    filters = LinkFilters(
        topic_whitelist=split_list(whitelist),
        topic_blacklist=split_list(blacklist),
        sync=SyncPolicy.NONE if sync is None else SyncPolicy(sync.value),
        sync_bound_ms=checked_bound_ms(sync, sync_bound_ms),
        lease_ms=lease_ms if has_arbiter else 0,
        failover_mode=failover_mode_of(failover) if has_arbiter else FailoverMode.MANUAL,
    )
    try:
        check(
            wishes,
            whitelist=filters.topic_whitelist,
            blacklist=filters.topic_blacklist,
            is_failover_automatic=filters.failover_mode is FailoverMode.AUTOMATIC,
        )
        overrides = dict(parse_property(text, option="--broker-config") for text in broker_config or ())
    except ValueError as error:
        raise usage_error(str(error)) from error

    async def run(stop: asyncio.Event) -> None:
        embedded = EmbeddedSites(
            layout=layout_in_directory(wishes),
            filters=filters,
            preloaded=PRELOADED,
            broker_overrides=overrides,
            report=report_progress,
        )
        async with embedded.running(stop) as environment:
            if environment is not None:
                _announce(environment, output)
                await stop.wait()

    raise typer.Exit(run_daemon(run))


def _announce(environment: dict[str, Any], output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        print_json(environment)
        return
    for name, site in environment["sites"].items():
        console.print(
            f"[bold]site {name}[/]  bootstrap.servers {site['bootstrap_servers']}  zookeeper {site['zookeeper']}"
        )
        console.print(
            f"        grpc {','.join(site['grpc'])}  metrics http://{site['metrics'][0]}/metrics", markup=False
        )
    for mirror in environment["mirrors"]:
        console.print(
            f"[bold]mirror {mirror['name']}[/]  metrics http://{mirror['metrics']}/metrics  log {escape(mirror['log'])}"
        )
    if "arbiter" in environment:
        console.print(f"[bold]arbiter[/]  zookeeper {environment['arbiter']['connect']}")
    if "bridge" in environment:
        bridge = environment["bridge"]
        console.print(f"[bold]HTTP bridge[/]  {bridge['url']}  metrics http://{bridge['metrics']}/metrics")
    if "security" in environment:
        files = environment["security"]
        console.print(f"[bold]operator[/]  --command-config {escape(files['command_config'])}")
        console.print(
            f"[bold]clients[/]  admin {escape(files['admin_client_config'])}  user {escape(files['user_client_config'])}"
        )
    from cli.embedding.security import kcat_login

    first = next(iter(environment["sites"].values()))
    file = shlex.quote(str(Path(environment["directory"]) / "environment.json"))
    console.print(
        f"for other terminals: export ANTIPODE_ENVIRONMENT={file} ANTIPODE_BOOTSTRAP_SERVER={first['bootstrap_servers']}",
        markup=False,
        soft_wrap=True,
    )
    console.print(f"try: kcat{kcat_login(environment)} -L -b {first['bootstrap_servers'].split(',')[0]}", markup=False)
    console.print("stop with Ctrl-C")
    sys.stdout.flush()
