"""Asks both sites of a link for the facts about the losses of a failover now; `core/readiness.py`
compares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from dr.links.administration import LinkAtSite, describe_link, governing_record
from dr.links.core.link_preflight import (
    LinkCheck,
    mirror_seen_check,
    proof_check,
    quarantine_check,
    rehearsal_check,
    resting_mirror_check,
)
from dr.links.core.readiness import Readiness, readiness
from dr.links.link_preflight import preflight
from dr.proof.core.verification import LinkVerification
from dr.sites.core.mirror_reports import MIRROR_NEVER_SEEN, MIRROR_SILENT_MS, mirror_sentence
from dr.sites.observation import LinkObserver
from dr.sites.site_client import SiteClient
from runtime.clock import Clock, SystemClock
from runtime.process import OperationalFailure
from wire.control.cluster_pb2 import LinkRecord
from wire.control.site_pb2 import LinkRehearsal
from wire.protocol.ids import UNKNOWN
from wire.rules.links import other_site


async def check_readiness(name: str, clients: Sequence[SiteClient], clock: Clock | None = None) -> Readiness:
    """Report the records and offsets that the link's standby lacks. Raises OperationalFailure when
    no agent knows the link, or no address of the standby's agents is known.
    """
    entries = await describe_link(name, clients)
    record = governing_record(entries)
    standby = other_site(record, record.active_site)
    by_name = {client.name: client for client in clients}
    if standby not in by_name:
        raise OperationalFailure(f"no agent address is known of {standby}, the standby of link {name}")
    used_clock = clock or SystemClock()
    observer = LinkObserver(name, target=by_name[standby], source=by_name.get(record.active_site), clock=used_clock)
    evidence = await observer.evidence(with_groups=True)
    if evidence.target is None and evidence.source is None:
        raise OperationalFailure(f"{evidence.target_problem}; {evidence.source_problem}")
    found = readiness(evidence, now_ms=used_clock.now_ms())
    proof = proof_check(
        _proof(entries, record.active_site),
        epoch=record.epoch,
        active_site=record.active_site,
        now_ms=used_clock.now_ms(),
    )
    rehearsed = rehearsal_check(_rehearsal(entries, standby), standby=standby, now_ms=used_clock.now_ms())
    kept = quarantine_check(
        (entry.site, use) for entry in entries if entry.description is not None for use in entry.description.quarantines
    )
    return replace(
        found, checks=(*await _checks(record, by_name, found, now_ms=used_clock.now_ms()), proof, rehearsed, kept)
    )


def _rehearsal(entries: Sequence[LinkAtSite], standby: str) -> LinkRehearsal | None:
    for entry in entries:
        if entry.site == standby and entry.description is not None and entry.description.HasField("rehearsal"):
            return entry.description.rehearsal
    return None


def _proof(entries: Sequence[LinkAtSite], active_site: str) -> LinkVerification | None:
    for entry in entries:
        if entry.site == active_site and entry.description is not None and entry.description.HasField("verification"):
            return LinkVerification.of_message(entry.description.verification)
    return None


async def _checks(
    record: LinkRecord, by_name: Mapping[str, SiteClient], found: Readiness, *, now_ms: int
) -> list[LinkCheck]:
    """Repeat the checks of the link's creation. Empty while a site does not answer, which another
    problem already reports.
    """
    source, target = by_name.get(found.active_site), by_name[found.standby]
    age_ms = MIRROR_NEVER_SEEN if found.groups_age_ms <= UNKNOWN else found.groups_age_ms
    received = mirror_seen_check(
        mirror_sentence(age_ms),
        is_recent=MIRROR_NEVER_SEEN < age_ms <= MIRROR_SILENT_MS,
        problems=found.mirror_problems,
    )
    resting_ms = found.resting_mirror_age_ms
    back = resting_mirror_check(
        mirror_sentence(resting_ms),
        is_recent=MIRROR_NEVER_SEEN < resting_ms <= MIRROR_SILENT_MS,
        active_site=found.active_site,
    )
    if source is None:
        return [received]
    try:
        live = len((await target.view(asking_site=source.name)).brokers)
        checks = await preflight(record, source=source, target=target, live=live, now_ms=now_ms, is_made=True)
    except OperationalFailure:
        return [received, back]
    return [*checks, received, back]
