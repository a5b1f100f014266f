"""`antipode links`: make, show, confirm and delete the links between sites."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from cli.links.check import check
from cli.links.complete import complete
from cli.links.link_status import status
from cli.links.mirrors import (
    MirrorAddress,
    Name,
    describe_mirror,
    known_mirrors,
    pause,
    print_mirror,
    reset,
    resume,
    verify,
)
from cli.links.reinstate import reinstate
from cli.links.translate_offset import translate_offset
from cli.shared.failures import failures_as_messages, print_error, usage_error
from cli.shared.output import Output, OutputFormat, console, error_console, print_json, print_table
from cli.shared.sites import Agents, EnvironmentFile, SiteOptions, agents, site_clients
from cli.shared.sync_options import SyncBoundOption, SyncTimeoutOption, checked_bound_ms
from runtime.process import ExitCode
from wire.rules.links import (
    DEFAULT_TOPIC_BLACKLIST,
    LEASE_MS_DEFAULT,
    SYNC_TIMEOUT_MS,
    FailoverMode,
    ReinstatePolicy,
    SyncPolicy,
    blacklist_of,
)

if TYPE_CHECKING:
    from google.protobuf.message import Message

    from dr.links.administration import CheckedLink, LinkAtSite, LinkSpec
    from dr.sites.site_client import SiteClient
    from wire.control.cluster_pb2 import LinkRecord

app = typer.Typer(
    help="Links: which topics and groups of one site the other holds an exact copy of, and which site is active.\n\n"
    "Example: antipode links list --environment out/sites/environment.json",
    no_args_is_help=True,
)

app.command()(status)
app.command()(complete)
app.command()(check)
app.command()(pause)
app.command()(resume)
app.command()(verify)
app.command()(reset)
app.command()(reinstate)
app.command()(translate_offset)

Answer = TypeVar("Answer")


class SyncChoice(enum.Enum):
    """The way in which the source waits for the target."""

    BLOCK = SyncPolicy.BLOCK.value
    DEGRADE = SyncPolicy.DEGRADE.value
    BOUND = SyncPolicy.BOUND.value


class FailoverChoice(enum.Enum):
    """The standby's reaction to the loss of the active site."""

    MANUAL = "manual"
    OBSERVE = FailoverMode.OBSERVE.value
    AUTOMATIC = FailoverMode.AUTOMATIC.value


class ReinstateChoice(enum.Enum):
    """The actor that moves a returning site's own records into quarantine: a person or the link's
    mirror.
    """

    MANUAL = "manual"
    AUTOMATIC = ReinstatePolicy.AUTOMATIC.value


SyncOption = Annotated[
    SyncChoice | None,
    typer.Option(
        help="block: acks=all is answered, and consumers see a record, only when the target has it. degrade: the same, until the "
        "target is silent for --sync-timeout-ms. bound: acks=all waits only while the target is more than --sync-bound-ms behind.",
    ),
]
ReinstateOption = Annotated[
    ReinstateChoice,
    typer.Option(
        "--reinstate",
        help="automatic: what a site that returns after a failover has alone goes into quarantine, and the site is a standby again. "
        "manual: antipode links reinstate does that.",
    ),
]
LeaseOption = Annotated[
    int | None,
    typer.Option(
        "--lease-ms",
        min=0,
        help="Have the arbiter decide which site writes: a site that reaches neither the arbiter nor its standby stops writers "
        f"after so long. 0: no lease. Usual: {LEASE_MS_DEFAULT}.",
    ),
]
FailoverOption = Annotated[
    FailoverChoice | None,
    typer.Option(
        "--failover",
        help="What the standby does when the active site is lost. manual: nothing. observe: reports that it would fail over now "
        "(the default with a lease). automatic: fails over. The last two need a lease.",
    ),
]
LagRecordsOption = Annotated[
    int | None,
    typer.Option(
        "--failover-max-lag-records",
        min=0,
        help="An automatic failover waits for a person when the standby is known to lack more records. 0: no bound.",
    ),
]
LagMsOption = Annotated[
    int | None,
    typer.Option(
        "--failover-max-lag-ms",
        min=0,
        help="The same, when a copy was behind for longer than this before the site was lost. 0: no bound.",
    ),
]


@app.command("list")
def list_all(environment: EnvironmentFile = None, site: SiteOptions = None, output: Output = OutputFormat.TEXT) -> None:
    """Every link as every site sees it, and at the passive one the age of its mirror's last report
    (mirror_report_age_ms -1: none yet).

    Example: antipode links list --site a=127.0.0.1:9190 --site b=127.0.0.1:9290
    """
    from dr.links.administration import list_links

    entries = _with_clients(agents(environment, site), lambda clients: list_links(list(clients.values())))
    if output is OutputFormat.JSON:
        print_json([_status_json(entry) for entry in entries])
        return
    rows = [_status_row(entry) for entry in entries]
    columns = (
        "link",
        "seen by",
        "active",
        "epoch",
        "phase",
        "sync",
        "confirmed",
        "peer",
        "mirror",
        "whitelist",
        "blacklist",
    )
    print_table("", columns, rows)


@app.command()
def describe(
    name: Name,
    mirror: MirrorAddress = None,
    environment: EnvironmentFile = None,
    site: SiteOptions = None,
    output: Output = OutputFormat.TEXT,
) -> None:
    """One link at each site: its record and the log of every partition. With --mirror, as its
    mirror daemon sees it.

    Example: antipode links describe a-b --output json
    """
    from dr.links.administration import describe_link

    if mirror is not None:
        reply = describe_mirror(name, mirror, environment)
        if output is OutputFormat.JSON:
            described = _fields(reply)
            described["partitions"] = [_fields(item) for item in reply.partitions]
            described["refused_changes"] = [_fields(item) for item in reply.refused_changes]
            described["groups_stale_since_ms"] = dict(reply.groups_stale_since_ms)
            if reply.HasField("transactions"):
                described["transactions"] = _fields(reply.transactions)
            print_json(described)
        else:
            print_mirror(reply)
        return
    entries = _with_clients(agents(environment, site), lambda clients: describe_link(name, list(clients.values())))
    if output is OutputFormat.JSON:
        print_json([_description_json(entry) for entry in entries])
    else:
        for entry in entries:
            _print_description(entry)
    if all(entry.description is None for entry in entries):
        raise typer.Exit(ExitCode.FAILED)


@app.command()
def create(
    name: Name,
    source: Annotated[str, typer.Option(help="The site that is active at first.")],
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
    sync_timeout_ms: SyncTimeoutOption = SYNC_TIMEOUT_MS,
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

    Checked before: releases, what the target's controller says to the source's topics (replicas,
    partitions, configs), whether a mirror runs. Warnings do not keep a link from being made. Exit
    code 1 when something does.

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
        sync_timeout_ms=sync_timeout_ms,
        sync_bound_ms=checked_bound_ms(sync, sync_bound_ms),
        reinstate=_reinstate_policy(reinstatement),
        lease_ms=lease_ms or 0,
        failover_mode=failover_mode_of(failover or (FailoverChoice.OBSERVE if lease_ms else FailoverChoice.MANUAL)),
        failover_lag_records_max=failover_lag_records_max or 0,
        failover_lag_ms_max=failover_lag_ms_max or 0,
    )
    daemons = known_mirrors(name, mirror, environment)
    checked = _with_clients(known, lambda clients: _made(spec, clients, daemons, is_dry_run=is_dry_run))
    _print_checked(checked, output, is_dry_run=is_dry_run)
    if checked.problems:
        raise typer.Exit(ExitCode.FAILED)
    if not is_dry_run:
        error_console.print(f"antipode links list shows when a mirror reports to {target}", soft_wrap=True)


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
    mirror = daemons.get(spec.target_site) or daemons.get("", "")
    checked = await check_link(spec, source=source, target=target, mirror=mirror)
    if not is_dry_run and not checked.problems:
        await make_link(checked, source=source, target=target)
    return checked


class AlteredSync(enum.Enum):
    """The policies to which a running link may change."""

    BLOCK = SyncPolicy.BLOCK.value
    DEGRADE = SyncPolicy.DEGRADE.value
    BOUND = SyncPolicy.BOUND.value
    NONE = "none"


@app.command()
def alter(
    name: Name,
    sync: Annotated[
        AlteredSync | None,
        typer.Option(help="As for create; none: acknowledge at once. Ends what a failover suspended, too."),
    ] = None,
    sync_timeout_ms: Annotated[
        int | None, typer.Option("--sync-timeout-ms", min=1, help="How long degrade waits for a silent target.")
    ] = None,
    sync_bound_ms: SyncBoundOption = None,
    reinstatement: Annotated[ReinstateChoice | None, typer.Option("--reinstate", help="As for create.")] = None,
    lease_ms: LeaseOption = None,
    failover: FailoverOption = None,
    failover_lag_records_max: LagRecordsOption = None,
    failover_lag_ms_max: LagMsOption = None,
    environment: EnvironmentFile = None,
    site: SiteOptions = None,
    is_dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be in force, change nothing.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Change the policies of a running link: what acks=all waits for, what becomes of a returning
    site's own records, the lease, and what the standby does by itself. In force at the active site
    when this returns; the other one may be away.

    Example: antipode links alter a-b --lease-ms 10000 --failover automatic
    """
    from dr.links.administration import alter_link
    from dr.sites.core.lease_sentences import lease_sentence
    from dr.sites.core.sync_policies import policy_sentence
    from dr.sites.site_client import LinkChanges

    if sync is None and sync_timeout_ms is not None:
        raise usage_error("--sync-timeout-ms is a part of --sync degrade: give --sync too")
    changes = LinkChanges(
        sync=SyncPolicy.NONE if sync is AlteredSync.NONE else None if sync is None else SyncPolicy(sync.value),
        sync_timeout_ms=sync_timeout_ms or 0,
        sync_bound_ms=checked_bound_ms(sync, sync_bound_ms),
        reinstate=None if reinstatement is None else _reinstate_policy(reinstatement),
        lease_ms=lease_ms,
        failover_mode=None if failover is None else failover_mode_of(failover),
        failover_lag_records_max=failover_lag_records_max,
        failover_lag_ms_max=failover_lag_ms_max,
    )
    if changes.is_empty:
        raise usage_error("say what to change: --sync, --reinstate, --lease-ms, --failover or --failover-max-lag-...")
    altered = _with_clients(
        agents(environment, site),
        lambda clients: alter_link(name, list(clients.values()), changes, is_dry_run=is_dry_run),
    )
    record = altered.record
    verb = "would be changed" if is_dry_run else "is changed"
    said = policy_sentence(record) or "acks=all waits for no other site"
    said += f"; copies are reinstated by {'the mirror' if record.reinstate_policy else 'a person'}"
    said += f"; {lease_sentence(record)}"
    _print_record(record, f"link {name} {verb} at {record.active_site}: {said}", output)
    if altered.problem:
        print_error(altered.problem)


@app.command()
def confirm(
    name: Name,
    at: Annotated[str, typer.Option("--at", help="The site whose stored record is the right one.")],
    environment: EnvironmentFile = None,
    site: SiteOptions = None,
    is_sure: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Confirm a site's link record by hand while its peer does not answer. Only if the other site
    was not promoted.

    Example: antipode links confirm a-b --at a
    """
    from dr.links.administration import confirm_link

    known = agents(environment, site)
    if at not in known:
        raise usage_error(f"--at {at!r}: accepted is one of {', '.join(sorted(known))}")
    if not is_sure:
        typer.confirm(f"Is it certain that no other site was promoted for link {name}?", abort=True, err=True)
    record = _with_clients(known, lambda clients: confirm_link(name, clients[at]))
    _print_record(
        record, f"link {name} is confirmed at {at}: {record.active_site} is active in epoch {record.epoch}", output
    )


@app.command()
def delete(
    name: Name,
    environment: EnvironmentFile = None,
    site: SiteOptions = None,
    may_skip_unreachable: Annotated[
        bool, typer.Option("--skip-unreachable", help="Delete it where a site answers; do the rest later.")
    ] = False,
    is_sure: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    output: Output = OutputFormat.TEXT,
) -> None:
    """Forget a link at every site. Topics stay where they are; the standby's copies become ordinary
    topics.

    Example: antipode links delete a-b --yes
    """
    from dr.links.administration import delete_link

    known = agents(environment, site)
    if not is_sure:
        typer.confirm(f"Delete link {name} at {', '.join(sorted(known))}?", abort=True, err=True)
    gone = _with_clients(
        known, lambda clients: delete_link(name, list(clients.values()), may_skip_unreachable=may_skip_unreachable)
    )
    if output is OutputFormat.JSON:
        print_json({"deleted_at": gone})
    else:
        console.print(f"link {name} is gone at {', '.join(gone)}")


def failover_mode_of(choice: FailoverChoice) -> FailoverMode:
    """The mode of a link's record."""
    return FailoverMode.MANUAL if choice is FailoverChoice.MANUAL else FailoverMode(choice.value)


def _reinstate_policy(choice: ReinstateChoice) -> ReinstatePolicy:
    return ReinstatePolicy.AUTOMATIC if choice is ReinstateChoice.AUTOMATIC else ReinstatePolicy.MANUAL


def split_list(text: str) -> tuple[str, ...]:
    """The items of a comma-separated list, without empty ones."""
    return tuple(item.strip() for item in text.split(",") if item.strip())


def _with_clients(known: Agents, ask: Callable[[dict[str, SiteClient]], Awaitable[Answer]]) -> Answer:
    async def run() -> Answer:
        async with site_clients(known) as clients:
            return await ask(clients)

    with failures_as_messages():
        return asyncio.run(run())


def _phase(record: LinkRecord) -> str:
    from wire.control.cluster_pb2 import LinkPhase

    return LinkPhase.Name(record.phase).lower()


def _record_json(record: LinkRecord) -> dict[str, Any]:
    return {**_fields(record), "phase": _phase(record)}


def _fields(message: Message) -> dict[str, Any]:
    """Every field as plain data; numbers stay numbers (protobuf's own JSON writes long ones as
    texts).
    """
    from google.protobuf.descriptor import FieldDescriptor
    from google.protobuf.json_format import MessageToDict

    longs = {field.name for field in message.DESCRIPTOR.fields if field.cpp_type == FieldDescriptor.CPPTYPE_INT64}
    found = MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    return {name: int(value) if name in longs else value for name, value in found.items()}


def _sync(record: LinkRecord) -> str:
    """The policy in a word or three; empty when nothing waits."""
    from dr.sites.core.sync_policies import is_suspended

    suspension = f" ({record.sync_policy_to_restore} suspended)" if is_suspended(record) else ""
    bound = f" {record.sync_bound_ms} ms" if record.sync_policy == SyncPolicy.BOUND.value else ""
    return f"{record.sync_policy}{bound}{suspension}"


def _status_json(entry: LinkAtSite) -> dict[str, Any]:
    if entry.status is None:
        return {"site": entry.site, "problem": entry.problem}
    return {
        "site": entry.site,
        "link": _record_json(entry.status.record),
        "is_confirmed": entry.status.is_confirmed,
        "is_peer_reachable": entry.status.is_peer_reachable,
        "contested_by": entry.status.contested_by or None,
        "lease": _fields(entry.status.lease) if entry.status.HasField("lease") else None,
        "mirror_report_age_ms": entry.mirror_report_age_ms,
        "mirror_problems": list(entry.mirror_problems),
    }


def _status_row(entry: LinkAtSite) -> Sequence[object]:
    from dr.sites.core.mirror_reports import mirror_sentence

    if entry.status is None:
        return ("?", entry.site, "", "", "", "", "", entry.problem, "", "", "")
    record, contested_by = entry.status.record, entry.status.contested_by
    return (
        record.name,
        entry.site,
        record.active_site,
        record.epoch,
        _phase(record),
        _sync(record),
        f"no: {contested_by} is active, says the peer"
        if contested_by
        else "yes"
        if entry.status.is_confirmed
        else "no",
        "answers" if entry.status.is_peer_reachable else "silent",
        "; ".join((mirror_sentence(entry.mirror_report_age_ms), *entry.mirror_problems)),
        ",".join(record.topic_whitelist),
        ",".join(blacklist_of(record)),
    )


def _description_json(entry: LinkAtSite) -> dict[str, Any]:
    if entry.description is None:
        return {"site": entry.site, "problem": entry.problem}
    return {
        "site": entry.site,
        "link": _record_json(entry.description.record),
        "partitions": [_fields(item) for item in entry.description.partitions],
        "cuts": [_fields(item) for item in entry.description.cuts],
    }


def _print_description(entry: LinkAtSite) -> None:
    from dr.sites.core.sync_policies import policy_sentence

    if entry.description is None:
        print_error(entry.problem)
        return
    record = entry.description.record
    rows = [
        (item.topic, item.partition, item.log_start_offset, item.log_end_offset, "degraded" if item.is_degraded else "")
        for item in entry.description.partitions
    ]
    title = f"site {entry.site}: {record.active_site} is active in epoch {record.epoch}, {_phase(record)}"
    if said := policy_sentence(record):
        title += f"; {said}"
    print_table(title, ("topic", "partition", "start offset", "end offset", "sync"), rows)
    if entry.description.cuts:
        cuts = [
            (item.topic, item.partition, item.node_id, item.cuts, item.records, item.bytes, item.kept_bytes)
            for item in entry.description.cuts
        ]
        columns = ("topic", "partition", "broker", "cuts", "records", "bytes", "kept bytes")
        print_table(f"site {entry.site}: cut from logs since their brokers started", columns, cuts)


def _print_checked(checked: CheckedLink, output: OutputFormat, *, is_dry_run: bool) -> None:
    """The checks; of a link that is made the warnings alone."""
    from dr.links.core.link_preflight import Outcome

    record = checked.record
    rows = [(one.check, one.outcome.value, one.detail) for one in checked.checks]
    if output is OutputFormat.JSON:
        columns = ("check", "outcome", "detail")
        print_json({**_record_json(record), "checks": [dict(zip(columns, row, strict=True)) for row in rows]})
        return
    if is_dry_run:
        print_table("", ("check", "outcome", "detail"), rows)
    else:
        for one in checked.checks:
            if one.outcome is Outcome.WARNING:
                error_console.print(f"{one.check}: {one.detail}", soft_wrap=True, markup=False)
    if checked.problems:
        print_error(f"link {record.name} cannot be made: {'; '.join(checked.problems)}")
    else:
        verb = "can be made" if is_dry_run else "is made"
        console.print(f"link {record.name} {verb}: {record.source_site} to {record.target_site}")


def _print_record(record: LinkRecord, sentence: str, output: OutputFormat) -> None:
    if output is OutputFormat.JSON:
        print_json(_record_json(record))
    else:
        console.print(sentence)
