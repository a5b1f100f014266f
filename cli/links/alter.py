"""`antipode links alter`: changes the policies of a running link."""

from __future__ import annotations

import enum
from typing import Annotated

import typer

from cli.links.link_output import print_record
from cli.links.mirrors import (
    Name,
)
from cli.links.policies import (
    FailoverOption,
    LagMsOption,
    LagRecordsOption,
    LeaseOption,
    ReinstateChoice,
    failover_mode_of,
    reinstate_policy_of,
)
from cli.links.site_calls import with_clients
from cli.shared.failures import print_error, usage_error
from cli.shared.output import Output, OutputFormat
from cli.shared.sites import EnvironmentFile, SiteOptions, agents
from cli.shared.sync_options import SyncBoundOption, SyncTimeoutOption, checked_bound_ms, checked_timeout_ms
from wire.rules.links import (
    SyncPolicy,
)

StandbyIsDown = Annotated[
    bool,
    typer.Option(
        "--standby-is-down",
        help="Remove the lease although the standby does not answer: you know that its brokers are down. One that "
        "runs may be promoted under the lease that it knows.",
    ),
]


class AlteredSync(enum.Enum):
    """The policies to which a running link may change."""

    BLOCK = SyncPolicy.BLOCK.value
    DEGRADE = SyncPolicy.DEGRADE.value
    BOUND = SyncPolicy.BOUND.value
    NONE = "none"


def alter(
    name: Name,
    sync: Annotated[
        AlteredSync | None,
        typer.Option(help="As for create; none: acknowledge immediately. This also ends a suspension by a failover."),
    ] = None,
    sync_timeout_ms: SyncTimeoutOption = None,
    sync_bound_ms: SyncBoundOption = None,
    reinstatement: Annotated[ReinstateChoice | None, typer.Option("--reinstate", help="As for create.")] = None,
    lease_ms: LeaseOption = None,
    failover: FailoverOption = None,
    failover_lag_records_max: LagRecordsOption = None,
    failover_lag_ms_max: LagMsOption = None,
    is_standby_down: StandbyIsDown = False,
    environment: EnvironmentFile = None,
    site: SiteOptions = None,
    is_dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the policies that would be in force; change nothing.")
    ] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Change the policies of a running link: what acks=all waits for, what becomes of a returning
    site's own records, the lease, and what the standby does by itself. In force at the active site
    when this returns; the other one may be away.

    Example: antipode links alter a-b --lease-ms 10000 --failover automatic
    """
    from dr.links.alteration import alter_link
    from dr.sites.core.lease_sentences import lease_sentence
    from dr.sites.core.sync_policies import policy_sentence
    from dr.sites.site_client import LinkChanges

    changes = LinkChanges(
        sync=SyncPolicy.NONE if sync is AlteredSync.NONE else None if sync is None else SyncPolicy(sync.value),
        sync_timeout_ms=checked_timeout_ms(sync, sync_timeout_ms),
        sync_bound_ms=checked_bound_ms(sync, sync_bound_ms),
        reinstate=None if reinstatement is None else reinstate_policy_of(reinstatement),
        lease_ms=lease_ms,
        failover_mode=None if failover is None else failover_mode_of(failover),
        failover_lag_records_max=failover_lag_records_max,
        failover_lag_ms_max=failover_lag_ms_max,
    )
    if changes.is_empty:
        raise usage_error("say what to change: --sync, --reinstate, --lease-ms, --failover or --failover-max-lag-...")
    altered = with_clients(
        agents(environment, site),
        lambda clients: alter_link(
            name, list(clients.values()), changes, is_dry_run=is_dry_run, is_standby_down=is_standby_down
        ),
    )
    record = altered.record
    verb = "would be changed" if is_dry_run else "is changed"
    summary = policy_sentence(record) or "acks=all waits for no other site"
    summary += f"; copies are reinstated by {'the mirror' if record.reinstate_policy else 'a person'}"
    summary += f"; {lease_sentence(record)}"
    print_record(record, f"link {name} {verb} at {record.active_site}: {summary}", output)
    # No failure: the change is in force at the active site, and the other one reads it when it is
    # back.
    if altered.problem:
        print_error(altered.problem)
