"""`antipode links create`: makes a link at both sites, after checks of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.links.link_output import checks_document, print_checks
from cli.links.mirrors import (
    MirrorAddress,
    Name,
    known_mirrors,
)
from cli.links.policies import (
    FailoverChoice,
    FailoverOption,
    LagMsOption,
    LagRecordsOption,
    LeaseOption,
    ReinstateChoice,
    ReinstateOption,
    SyncOption,
    failover_mode_of,
    reinstate_policy_of,
)
from cli.links.site_calls import with_clients
from cli.shared.failures import print_error, usage_error
from cli.shared.lists import split_list
from cli.shared.output import Output, OutputFormat, console, error_console, print_json
from cli.shared.sites import Agents, EnvironmentFile, SiteOptions, agents
from cli.shared.sync_options import SyncBoundOption, SyncTimeoutOption, checked_bound_ms, checked_timeout_ms
from runtime.process import ExitCode
from wire.rules.links import (
    DEFAULT_TOPIC_BLACKLIST,
    SYNC_TIMEOUT_MS,
    SyncPolicy,
)

if TYPE_CHECKING:
    from dr.links.administration import CheckedLink, LinkSpec
    from dr.sites.site_client import SiteClient


def create(
    name: Name,
    source: Annotated[str, typer.Option(help="The site that is active at the beginning.")],
    target: Annotated[str, typer.Option(help="The site that holds the copy.")],
    source_bootstrap: Annotated[str, typer.Option(help="LINK listeners of the source, as the target reaches them.")],
    target_bootstrap: Annotated[str, typer.Option(help="LINK listeners of the target, as the source reaches them.")],
    whitelist: Annotated[str, typer.Option(help="Topics carried: comma-separated regular expressions.")] = ".*",
    blacklist: Annotated[
        str, typer.Option(help="Topics not to mirror; overrides the whitelist. Internal topics are never mirrored.")
    ] = ",".join(DEFAULT_TOPIC_BLACKLIST),
    group_whitelist: Annotated[str, typer.Option(help="Groups whose offsets are carried.")] = ".*",
    group_blacklist: Annotated[str, typer.Option(help="Groups whose offsets are not carried.")] = "",
    is_routed: Annotated[
        bool, typer.Option("--routed/--no-routed", help="Send clients of either site to the active one.")
    ] = True,
    sync: SyncOption = None,
    sync_timeout_ms: SyncTimeoutOption = None,
    sync_bound_ms: SyncBoundOption = None,
    reinstatement: ReinstateOption = ReinstateChoice.MANUAL,
    lease_ms: LeaseOption = None,
    failover: FailoverOption = None,
    failover_lag_records_max: LagRecordsOption = None,
    failover_lag_ms_max: LagMsOption = None,
    environment: EnvironmentFile = None,
    site: SiteOptions = None,
    mirror: MirrorAddress = None,
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help="Check both sites and store nothing.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Make a link at both sites, or at neither. Both must have the same cluster id and no topic of
    the link in common.

    Checks before the creation: releases, whether the target's controller accepts the source's
    topics (replicas, partitions, configs), whether a mirror runs. Warnings do not keep a link from
    being made. Exit code 1 when something does.

    Example: antipode links create a-b --source a --target b --source-bootstrap a1:9093
    --target-bootstrap b1:9093 --site a=a1:9190 --site b=b1:9190
    """
    from dr.links.administration import LinkSpec, SiteAddresses

    known = _agents_of((source, target), environment, site)
    spec = LinkSpec(
        name=name,
        source_site=source,
        target_site=target,
        source=SiteAddresses(bootstrap_servers=source_bootstrap, agents=known[source]),
        target=SiteAddresses(bootstrap_servers=target_bootstrap, agents=known[target]),
        topic_whitelist=split_list(whitelist),
        topic_blacklist=split_list(blacklist),
        group_whitelist=split_list(group_whitelist),
        group_blacklist=split_list(group_blacklist),
        is_routed=is_routed,
        sync=SyncPolicy.NONE if sync is None else SyncPolicy(sync.value),
        sync_timeout_ms=checked_timeout_ms(sync, sync_timeout_ms) or SYNC_TIMEOUT_MS,
        sync_bound_ms=checked_bound_ms(sync, sync_bound_ms),
        reinstate=reinstate_policy_of(reinstatement),
        lease_ms=lease_ms or 0,
        # A lease alone makes the standby report: that it acts is another decision of the operator.
        failover_mode=failover_mode_of(failover or (FailoverChoice.OBSERVE if lease_ms else FailoverChoice.MANUAL)),
        failover_lag_records_max=failover_lag_records_max or 0,
        failover_lag_ms_max=failover_lag_ms_max or 0,
    )
    daemons = known_mirrors(name, mirror, environment)
    checked = with_clients(known, lambda clients: _made(spec, clients, daemons, is_dry_run=is_dry_run))
    _print_checked(checked, output, is_dry_run=is_dry_run)
    if checked.problems:
        raise typer.Exit(ExitCode.FAILED)
    if not is_dry_run:
        error_console.print(f"antipode links list shows when a mirror reports to {target}", markup=False)


def _agents_of(sites: Sequence[str], environment: Path | None, given: list[str] | None) -> Agents:
    """All known agents; a usage error when those of a site are missing."""
    known = agents(environment, given)
    if missing := set(sites) - known.keys():
        raise usage_error(f"no gRPC address is known of site {', '.join(sorted(missing))}: give --site name=host:port")
    return known


async def _made(
    spec: LinkSpec, clients: dict[str, SiteClient], daemons: Mapping[str, str], *, is_dry_run: bool
) -> CheckedLink:
    """The link checked, and made when nothing is in the way. `daemons`: as `known_mirrors`."""
    from dr.links.administration import check_link, make_link

    source, target = clients[spec.source_site], clients[spec.target_site]
    # The option --mirror gives an address without a site.
    mirror = daemons.get(spec.target_site) or daemons.get("", "")
    checked = await check_link(spec, source=source, target=target, mirror=mirror)
    if not is_dry_run and not checked.problems:
        await make_link(checked, source=source, target=target)
    return checked


def _print_checked(checked: CheckedLink, output: OutputFormat, *, is_dry_run: bool) -> None:
    record = checked.record
    if output is OutputFormat.JSON:
        print_json(checks_document(checked))
        return
    print_checks(checked, is_dry_run=is_dry_run)
    if checked.problems:
        print_error(f"link {record.name} cannot be created: {'; '.join(checked.problems)}")
    else:
        verb = "can be made" if is_dry_run else "is made"
        console.print(f"link {record.name} {verb}: {record.source_site} to {record.target_site}", markup=False)
