"""Reads the state of both sites other than their records, and compares it; `core/surroundings.py`
decides. Caller: `antipode reconcile`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Final, TypeVar

from kio.schema.errors import ErrorCode
from msgspec import Struct
from msgspec.structs import replace

from dr.proof.core.surroundings import (
    LogSpan,
    QuarantinedRange,
    SiteSurroundings,
    SurroundingDifference,
    SurroundingKind,
    compare_surroundings,
)
from dr.proof.site_digests import new_client
from dr.sites.core.evidence import SiteEvidence, SiteGroups
from dr.sites.observation import LinkObserver
from runtime.clock import Clock
from runtime.process import OperationalFailure
from wire.client.client_errors import BrokerError, KafkaClientError, UnsupportedApi
from wire.client.raw_client import KafkaClient
from wire.client.requests.access_requests import describe_client_quotas, describe_scram_users
from wire.client.requests.acl_requests import describe_acls
from wire.protocol.ids import DEBUGGING_CONSUMER, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, PartitionKey
from wire.protocol.messages.quarantine_messages import LIST, QUARANTINE
from wire.rules.acls import AclFilter
from wire.rules.client_quotas import QuotaEntity
from wire.rules.topic_names import is_internal_topic

SETTLE_POLL_S: Final = 0.5
WITHOUT_MEMBERS: Final = frozenset({"", "Empty", "Dead"})

Listed = TypeVar("Listed")
TopicFilter = Callable[[str], bool]


class SurroundingsReport(Struct, frozen=True, kw_only=True):
    """The result. `notes` name the parts that could not be compared."""

    differences: tuple[SurroundingDifference, ...]
    notes: tuple[str, ...]


class ComparedSites(Struct, frozen=True, kw_only=True):
    """The two sites by their names in notes and their bootstrap addresses."""

    source_site: str
    target_site: str
    source_bootstrap: str
    target_bootstrap: str


async def compare_beside_records(
    sites: ComparedSites,
    is_wanted: TopicFilter,
    clock: Clock,
    *,
    settle_timeout_ms: int,
    observer: LinkObserver | None = None,
) -> SurroundingsReport:
    """Compare the sites. With an `observer` of the link, the sites' agents report the groups'
    offsets, because the brokers of a routed link forward requests about groups to the active site.
    Mirrors copy groups' offsets some time after the records, so a difference in them counts only if
    it lasts for `settle_timeout_ms`. Raises OperationalFailure when a site does not answer.
    """
    deadline_ms = clock.monotonic_ms() + settle_timeout_ms
    async with new_client(sites.source_bootstrap) as source, new_client(sites.target_bootstrap) as target:
        while True:
            try:
                has_groups = observer is None
                here, there = await asyncio.gather(
                    _ask(source, sites.source_site, is_wanted, has_groups=has_groups),
                    _ask(target, sites.target_site, is_wanted, has_groups=has_groups),
                )
                spans = await _spans(target, there)
                if observer is not None:
                    here, there = await _with_observed_groups(observer, here, there)
            except KafkaClientError as error:
                raise OperationalFailure(
                    f"the configs, groups and users of the sites cannot be read: {error}"
                ) from error
            found = compare_surroundings(here, there, spans)
            lasts = any(one.kind is SurroundingKind.GROUP for one in found)
            if not lasts or clock.monotonic_ms() >= deadline_ms:
                return SurroundingsReport(differences=tuple(found), notes=(*here.notes, *there.notes))
            await asyncio.sleep(SETTLE_POLL_S)


async def _with_observed_groups(
    observer: LinkObserver, here: SiteSurroundings, there: SiteSurroundings
) -> tuple[SiteSurroundings, SiteSurroundings]:
    """The same state, with the groups as the agents report them. Raises OperationalFailure when a
    site's agents do not answer.
    """
    evidence = await observer.evidence(with_groups=True)
    if evidence.source is None or evidence.target is None:
        raise OperationalFailure(evidence.source_problem or evidence.target_problem)
    return _with_groups(here, evidence.source), _with_groups(there, evidence.target)


def _with_groups(found: SiteSurroundings, site: SiteEvidence) -> SiteSurroundings:
    groups = site.groups or SiteGroups()
    return replace(
        found,
        offsets={
            (place.group, (place.topic, place.partition)): offset
            for place, offset in groups.offsets.items()
            if place.topic in found.partition_counts
        },
        groups_with_members=groups.with_members,
        notes=(*found.notes, *groups.problems),
    )


async def _ask(client: KafkaClient, site: str, is_wanted: TopicFilter, *, has_groups: bool) -> SiteSurroundings:
    topics = {
        name: len(topic.partitions)
        for name, topic in (await client.metadata()).topics.items()
        if is_wanted(name) and not is_internal_topic(name)
    }
    groups = await client.list_groups() if has_groups else []
    names = sorted({one.group_id for one in groups})
    notes: list[str] = []
    offsets = await _offsets(client, site, names, topics.keys(), notes)
    acls = await _listed("ACLs", site, notes, describe_acls(client, AclFilter()))
    quotas = await _listed("client quotas", site, notes, describe_client_quotas(client))
    users = await _listed("SCRAM users", site, notes, describe_scram_users(client))
    return SiteSurroundings(
        partition_counts=topics,
        configs=await client.topic_configs(sorted(topics)) if topics else {},
        offsets=offsets,
        groups_with_members=frozenset(one.group_id for one in groups if one.state not in WITHOUT_MEMBERS),
        acls=None if acls is None else frozenset(acls),
        quotas=None if quotas is None else {_quota_name(*key): f"{value:.12g}" for key, value in quotas.items()},
        users=None if users is None else {" ".join(key): f"{count} iterations" for key, count in users.items()},
        quarantined=await _quarantined(client, site, is_wanted, notes),
        notes=tuple(notes),
    )


async def _quarantined(
    client: KafkaClient, site: str, is_wanted: TopicFilter, notes: list[str]
) -> dict[QuarantinedRange, int] | None:
    """The ranges that the site's brokers keep, each once, with the size of the largest copy; None,
    together with a note, if brokers have no quarantine or do not list it.
    """
    found: dict[QuarantinedRange, int] = {}
    for node in sorted((await client.metadata([])).brokers):
        try:
            reply = await (await client.connection(node)).call(QUARANTINE, {"action": LIST, "name": "", "position": 0})
        except UnsupportedApi:
            return None
        if reply.error_code:
            notes.append(f"quarantines are not compared: broker {node} of {site} does not list its own")
            return None
        for one in filter(lambda entry: is_wanted(entry.topic), reply.entries):
            kept = QuarantinedRange(one.topic, one.partition, one.first_offset, one.end_offset)
            found[kept] = max(found.get(kept, 0), one.size_bytes)
    return found


async def _offsets(
    client: KafkaClient, site: str, names: Sequence[str], topics: Collection[str], notes: list[str]
) -> dict[tuple[str, PartitionKey], int]:
    found: dict[tuple[str, PartitionKey], int] = {}
    for group, committed in (await client.committed_by_groups(names)).items() if names else ():
        if isinstance(committed, KafkaClientError):
            notes.append(f"the offsets of group {group} at {site} are not known: {committed}")
            continue
        for (topic, partition), fetched in committed.items():
            if topic in topics and fetched.offset >= 0:
                found[group, (topic, partition)] = fetched.offset
    return found


async def _listed(what: str, site: str, notes: list[str], listing: Awaitable[Listed]) -> Listed | None:
    """The items that the site lists. None, together with a note, if it has no authorizer or does
    not list them.
    """
    try:
        return await listing
    except BrokerError as error:
        if error.code is not ErrorCode.security_disabled:
            notes.append(f"{what} are not compared: {site} does not list them: {error}")
        return None


def _quota_name(entity: QuotaEntity, key: str) -> str:
    return " ".join([*(f"{kind} {name or '(any)'}" for kind, name in entity), key])


async def _spans(client: KafkaClient, site: SiteSurroundings) -> Mapping[PartitionKey, LogSpan]:
    keys = [(name, number) for name, count in site.partition_counts.items() for number in range(count)]
    if not keys:
        return {}
    first = await client.offsets_at(keys, EARLIEST_TIMESTAMP, replica_id=DEBUGGING_CONSUMER)
    last = await client.offsets_at(keys, LATEST_TIMESTAMP, replica_id=DEBUGGING_CONSUMER)
    return {key: LogSpan(start_offset=first[key], end_offset=last[key]) for key in keys}
