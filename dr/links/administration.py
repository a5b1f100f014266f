"""Creates, lists, describes, confirms and deletes links, at both sites, for the `antipode links`
commands.

A link exists at both sites or at neither: if one site refuses it, the record is removed from the
other. `cli` prints the results of these functions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import grpc
from msgspec import Struct

from dr.links.core.link_preflight import LinkCheck, judged, refusals
from dr.links.link_preflight import ask_mirror, preflight
from dr.sites.core.fencing import FIRST_EPOCH
from dr.sites.core.link_checks import MODE_EXACT, pair_problems, record_problems, topic_id_problems
from dr.sites.core.mirror_reports import MIRROR_NEVER_SEEN, failing_sentences
from dr.sites.link_addresses import address_problems
from dr.sites.site_client import SiteClient, SiteRefused, SiteUnreachable
from runtime.clock import Clock, SystemClock
from runtime.process import OperationalFailure
from runtime.retries import jittered_backoff
from wire.control.cluster_pb2 import LinkPhase, LinkRecord, LinkSite, SiteView
from wire.control.site_pb2 import DescribeLinkReply, LinkStatus
from wire.rules.links import (
    DEFAULT_TOPIC_BLACKLIST,
    SYNC_TIMEOUT_MS,
    FailoverMode,
    ReinstatePolicy,
    SyncPolicy,
    supersedes,
)

NOTICE_MS = 5_000
"""Time (ms) within which a site's agents must report a stored link."""


class SiteAddresses(Struct, frozen=True, kw_only=True):
    """The addresses that this site gives to the other one: its LINK listeners and its agents."""

    bootstrap_servers: str
    agents: Sequence[str]


class LinkSpec(Struct, frozen=True, kw_only=True):
    """An operator's request for a link."""

    name: str
    source_site: str
    target_site: str
    source: SiteAddresses
    target: SiteAddresses
    topic_whitelist: Sequence[str] = (".*",)
    topic_blacklist: Sequence[str] = DEFAULT_TOPIC_BLACKLIST
    group_whitelist: Sequence[str] = (".*",)
    group_blacklist: Sequence[str] = ()
    is_routed: bool = True
    sync: SyncPolicy = SyncPolicy.NONE
    sync_timeout_ms: int = SYNC_TIMEOUT_MS
    sync_bound_ms: int = 0
    reinstate: ReinstatePolicy = ReinstatePolicy.MANUAL
    lease_ms: int = 0
    failover_mode: FailoverMode = FailoverMode.MANUAL
    failover_lag_records_max: int = 0
    failover_lag_ms_max: int = 0

    def record(self, *, now_ms: int) -> LinkRecord:
        """The record of a new link: the source active, nothing fenced."""
        return LinkRecord(
            name=self.name,
            source_site=self.source_site,
            target_site=self.target_site,
            mode=MODE_EXACT,
            epoch=FIRST_EPOCH,
            active_site=self.source_site,
            phase=LinkPhase.MIRRORING,
            topic_whitelist=self.topic_whitelist,
            topic_blacklist=self.topic_blacklist,
            is_blacklist_complete=True,
            group_whitelist=self.group_whitelist,
            group_blacklist=self.group_blacklist,
            is_routed=self.is_routed,
            sync_policy=self.sync.value,
            sync_timeout_ms=0 if self.sync is SyncPolicy.NONE else self.sync_timeout_ms,
            sync_bound_ms=self.sync_bound_ms,
            reinstate_policy=self.reinstate.value,
            lease_ms=self.lease_ms,
            failover_mode=self.failover_mode.value,
            failover_lag_records_max=self.failover_lag_records_max,
            failover_lag_ms_max=self.failover_lag_ms_max,
            sites={
                self.source_site: LinkSite(bootstrap_servers=self.source.bootstrap_servers, agents=self.source.agents),
                self.target_site: LinkSite(bootstrap_servers=self.target.bootstrap_servers, agents=self.target.agents),
            },
            updated_at_ms=now_ms,
            made_at_ms=now_ms,
        )


class LinkAtSite(Struct, frozen=True, kw_only=True):
    """The state of a link as one site reports it; `problem` if it reports none."""

    site: str
    status: LinkStatus | None = None
    description: DescribeLinkReply | None = None
    problem: str = ""
    mirror_report_age_ms: int | None = None
    """The age (ms) of the mirror's last report to the passive site that everything is carried,
    where each daemon reports for its part; MIRROR_NEVER_SEEN without a report, None when no agent
    answered.
    """
    mirror_problems: tuple[str, ...] = ()
    """The daemons of the mirror that cannot carry groups' offsets, by their reports to the passive
    site, as sentences.
    """


class CheckedLink(Struct, frozen=True, kw_only=True):
    """The record that would be stored, and the results of the checks."""

    record: LinkRecord
    checks: Sequence[LinkCheck]

    @property
    def problems(self) -> list[str]:
        """The reasons that prevent the link."""
        return refusals(self.checks)


async def check_link(
    spec: LinkSpec, *, source: SiteClient, target: SiteClient, mirror: str = "", clock: Clock | None = None
) -> CheckedLink:
    """Check the link without a change; return problems and passed checks. Raises SiteUnreachable.
    `mirror` is the MirrorAdmin address of the link's daemon, "" if unknown.
    """
    now_ms = (clock or SystemClock()).now_ms()
    record = spec.record(now_ms=now_ms)
    checks = judged(
        "record",
        [*record_problems(record), *address_problems(record)],
        otherwise="names, mode, filters and sync policy are accepted",
    )
    if refusals(checks):
        return CheckedLink(record=record, checks=checks)
    source_view = await source.view(asking_site=spec.target_site)
    target_view = await target.view(asking_site=spec.source_site)
    problems = pair_problems(source_view, target_view, source_site=spec.source_site, target_site=spec.target_site)
    checks += judged("sites", problems, otherwise="they share the cluster id and no node ids")
    checks += await preflight(record, source=source, target=target, live=len(target_view.brokers), now_ms=now_ms)
    checks.append(await ask_mirror(spec.name, mirror))
    return CheckedLink(record=record, checks=checks)


async def create_link(
    spec: LinkSpec, *, source: SiteClient, target: SiteClient, clock: Clock | None = None
) -> LinkRecord:
    """Check the link and create it. Raises OperationalFailure with all problems; then no record is
    left.
    """
    return await make_link(
        await check_link(spec, source=source, target=target, clock=clock), source=source, target=target
    )


async def make_link(checked: CheckedLink, *, source: SiteClient, target: SiteClient) -> LinkRecord:
    """Store the link at both sites and confirm it there. Raises OperationalFailure with all
    problems; then no record is left.
    """
    record = checked.record
    _refuse_when(record.name, checked.problems)
    stored_at: list[SiteClient] = []
    try:
        for client in (target, source):  # The passive site comes first, so that two sites never write at the same time.
            await _create_at(client, record, stored_at)
        await _check_topic_ids(record, source=source, target=target)
        for client in (source, target):
            await client.confirm_link(record.name, epoch=record.epoch, lease_ms=record.lease_ms)
    except BaseException as error:
        await asyncio.shield(_undo(record, stored_at, error))
        raise
    return record


async def _create_at(client: SiteClient, record: LinkRecord, stored_at: list[SiteClient]) -> None:
    try:
        await client.create_link(record)
    except SiteUnreachable:
        stored_at.append(client)  # The site may have stored it although the call failed.
        raise
    stored_at.append(client)


async def _check_topic_ids(record: LinkRecord, *, source: SiteClient, target: SiteClient) -> None:
    source_view = await _view_with(record, source, asking_site=target.name)
    target_view = await _view_with(record, target, asking_site=source.name)
    _refuse_when(record.name, topic_id_problems(record, source_view, target_view))


async def _view_with(record: LinkRecord, client: SiteClient, *, asking_site: str) -> SiteView:
    """The site's view when its agents have noticed the link, which takes milliseconds with their
    watches.
    """
    async for attempt in jittered_backoff(retry_on=SiteUnreachable, initial_ms=10, max_ms=100, budget_ms=NOTICE_MS):
        with attempt:
            view = await client.view(asking_site=asking_site)
            if all(link.name != record.name for link in view.links):
                raise SiteUnreachable(f"site {client.name} has stored link {record.name} but does not report it")
    return view


async def _undo(record: LinkRecord, stored_at: Sequence[SiteClient], cause: BaseException) -> None:
    for client in reversed(stored_at):
        try:
            await client.delete_link(record.name, epoch=record.epoch)
        except SiteRefused:
            continue  # The record was not stored there.
        except SiteUnreachable as error:
            raise OperationalFailure(
                f"{cause}; and link {record.name} could not be deleted at site {client.name} ({error}): delete it there"
            ) from error


def _refuse_when(name: str, problems: Sequence[str]) -> None:
    if problems:
        raise OperationalFailure(f"link {name} cannot be created: {'; '.join(problems)}")


async def list_links(clients: Sequence[SiteClient], clock: Clock | None = None) -> list[LinkAtSite]:
    """Every link as each site reports it; a site that does not answer gives one entry with its
    problem.
    """

    async def ask(client: SiteClient) -> list[LinkAtSite]:
        try:
            reply = await client.links()
        except OperationalFailure as failure:
            return [LinkAtSite(site=client.name, problem=str(failure))]
        received = await asyncio.gather(*(_sync_reports(status.record, client, now_ms) for status in reply.links))
        return [
            LinkAtSite(site=client.name, status=status, mirror_report_age_ms=age_ms, mirror_problems=problems)
            for status, (age_ms, problems) in zip(reply.links, received, strict=True)
        ]

    now_ms = (clock or SystemClock()).now_ms()
    return [entry for entries in await asyncio.gather(*(ask(client) for client in clients)) for entry in entries]


async def _sync_reports(record: LinkRecord, client: SiteClient, now_ms: int) -> tuple[int | None, tuple[str, ...]]:
    """`mirror_report_age_ms` and `mirror_problems`."""
    if record.active_site == client.name:
        return None, ()
    try:
        words = await client.mirror_reports(record.name)
    except OperationalFailure:
        return None, ()
    age_ms = max(0, (words.answered_at_ms or now_ms) - words.synced_at_ms) if words.synced_at_ms else MIRROR_NEVER_SEEN
    return age_ms, failing_sentences(words.failing)


async def describe_link(name: str, clients: Sequence[SiteClient]) -> list[LinkAtSite]:
    """The link's record and partitions at every site asked."""

    async def ask(client: SiteClient) -> LinkAtSite:
        try:
            return LinkAtSite(site=client.name, description=await client.describe_link(name))
        except OperationalFailure as failure:
            return LinkAtSite(site=client.name, problem=str(failure))

    return list(await asyncio.gather(*(ask(client) for client in clients)))


async def stored_link(name: str, client: SiteClient) -> LinkRecord | None:
    """The link as the site has it; None if the site has no such link."""
    try:
        return (await client.describe_link(name, is_brief=True)).record
    except SiteRefused as refused:
        if refused.code is grpc.StatusCode.NOT_FOUND:
            return None
        raise


def governing_record(entries: Sequence[LinkAtSite]) -> LinkRecord:
    """The record that wins among the sites' records. Raises OperationalFailure when no site has
    one.
    """
    records = [entry.description.record for entry in entries if entry.description is not None]
    if not records:
        raise OperationalFailure("; ".join(entry.problem for entry in entries))
    governing = records[0]
    for record in records[1:]:
        governing = record if supersedes(record, governing) else governing
    return governing


async def delete_link(name: str, clients: Sequence[SiteClient], *, may_skip_unreachable: bool = False) -> list[str]:
    """Remove the link at every given site; return the sites where it is removed. A second deletion
    is not an error.

    With `may_skip_unreachable` a site that does not answer keeps its copy: delete it there when it
    is back.
    """
    epochs: dict[str, int] = {}
    for client in clients:
        try:
            epochs[client.name] = (await client.describe_link(name, is_brief=True)).record.epoch
        except SiteRefused:
            continue  # the site has no such link
        except SiteUnreachable:
            if not may_skip_unreachable:
                raise
    if not epochs:
        raise OperationalFailure(f"link {name!r} is not known at {', '.join(client.name for client in clients)}")
    for client in clients:
        if client.name in epochs:
            await client.delete_link(name, epoch=epochs[client.name])
    return sorted(epochs)


async def confirm_link(name: str, client: SiteClient) -> LinkRecord:
    """Confirm the site's stored record by the operator's decision, without asking the peer."""
    stored = (await client.describe_link(name, is_brief=True)).record
    return (await client.confirm_link(name, epoch=stored.epoch, lease_ms=stored.lease_ms)).record
