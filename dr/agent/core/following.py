"""Several standbys of one site: decides how the links of the other standbys follow a site that a
failover made active. Pure; `dr/agent/link_following.py` acts.

Links belong together when they carry the same topics and groups and have the same active site. Each
of them knows the addresses of all standbys (`LinkRecord.sites`), so a standby can ask a promoted
site although the site that both had copied is lost.

When link a-b makes b active, these steps follow, each at the agents of one site and each decided
from the stored records and the answers of this moment alone. So a step that was interrupted, or
that two agents take at once, is repeated without harm:

| step | site | change |
| --- | --- | --- |
| introduce | a, while it is active | a-b and a-c get each other's standby, and the higher leader-epoch floor of both |
| follow | c | a-c gets its next epoch, in which b is active and takes the place of a |
| join | b | b stores a-c, as c has stored it; also when c was promoted before b had the link |
| stop | a, when it answers again and still regards itself as active | a-c is fenced at a: no client writes there |
| leave | a, when a-b made it passive | a forgets a-c |

The leader-epoch floor orders promotions: each promotion of a topic's site begins a band above all
earlier ones (`wire/rules/links.py`), so a site that answers with records of an earlier promotion is
never followed.

Invariants (the tests' names carry the letters):
    S-a  the next epoch is stored first at the standby, which is passive under the old one
    S-b  a standby follows only a promotion later than the one that its link has
    S-c  a standby does not follow while its active site answers and is active by its own records
    S-d  of two sites promoted at the same time, none is followed
    S-e  a site leaves a link only when another link of the same topics made it passive
    S-f  a site joins only a link whose other end it knows from the link that made it active
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from dr.sites.core.fencing import fenced
from dr.sites.core.record_changes import changed
from dr.sites.core.sync_policies import suspended
from wire.control.cluster_pb2 import LinkPhase, LinkRecord, LinkSite
from wire.rules.links import SiteRole, blacklist_of, is_stand_in, role_of, supersedes

Links = Mapping[str, LinkRecord]


class SiteAnswer(Struct, frozen=True, kw_only=True):
    """The links that another site has last reported; `is_answering` is False when it did not answer
    this time.
    """

    is_answering: bool
    links: Links = field(default_factory=dict)


class Step(enum.Enum):
    """The kind of a change to the own site's records."""

    STORE = "store"
    """Store the record if the link is as it was when this was decided."""
    JOIN = "join"
    """Store a link that this site does not have, if the record beside it is unchanged."""
    LEAVE = "leave"
    """Forget the link, at the epoch of the record."""


class Change(Struct, frozen=True, kw_only=True):
    """One change of the own site's records, and the reason for the log."""

    step: Step
    record: LinkRecord
    reason: str
    instead_of: LinkRecord | None = None
    """STORE: the record on which the decision is based."""
    beside: str = ""
    """JOIN: the own link that names the other end."""


def ends_of(link: LinkRecord) -> frozenset[str]:
    """The two sites that the link joins."""
    return frozenset((link.source_site, link.target_site))


def sites_to_ask(links: Iterable[LinkRecord], site: str) -> set[str]:
    """The other sites that the links name: their other ends, and the other standbys."""
    return {name for link in links if not is_stand_in(link) for name in link.sites if name != site}


def links_to_report(links: Iterable[LinkRecord], asking_site: str) -> list[LinkRecord]:
    """The links that name the site, as an end or as another standby, by name."""
    named = (link for link in links if asking_site in ends_of(link) or asking_site in link.sites)
    return sorted(named, key=lambda link: link.name)


def belong_together(one: LinkRecord, other: LinkRecord) -> bool:
    """True if both are links between sites for the same topics and groups."""
    return one.name != other.name and not is_stand_in(one) and not is_stand_in(other) and _scope(one) == _scope(other)


def changes_due(site: str, links: Links, answers: Mapping[str, SiteAnswer], *, now_ms: int) -> list[Change]:
    """The changes that this site's records need, from its own links and the answers of other
    sites.
    """
    changes: list[Change] = []
    for link in links.values():
        if is_stand_in(link):
            continue
        left = _departure(site, link, links, answers, now_ms=now_ms)
        due = left or _following(site, link, answers, now_ms=now_ms) or _introduction(site, link, links, now_ms=now_ms)
        if due is not None:
            changes.append(due)
    return changes + _joins(site, links, answers)


def without_standby(links: Iterable[LinkRecord], deleted: LinkRecord, *, site: str, now_ms: int) -> list[LinkRecord]:
    """Links that named the other end of a deleted link only as another standby; their records
    without that site.
    """
    gone = ends_of(deleted) - {site}
    found = []
    for link in links:
        names = gone & link.sites.keys() - ends_of(link)
        if not names or not belong_together(link, deleted):
            continue
        forgetting = changed(link, revision=link.revision + 1, updated_at_ms=now_ms)
        for name in names:
            del forgetting.sites[name]
        found.append(forgetting)
    return found


def _scope(link: LinkRecord) -> tuple[object, ...]:
    return (
        frozenset(link.topic_whitelist),
        frozenset(blacklist_of(link)),
        frozenset(link.group_whitelist),
        frozenset(link.group_blacklist),
        link.is_routed,
        link.mode,
    )


def _introduction(site: str, link: LinkRecord, links: Links, *, now_ms: int) -> Change | None:
    """Name the standbys of the links that belong together in each of them."""
    if role_of(link, site) is not SiteRole.ACTIVE:
        return None
    others = [
        other for other in links.values() if belong_together(link, other) and role_of(other, site) is SiteRole.ACTIVE
    ]
    standbys = {name: other.sites[name] for other in others for name in ends_of(other) - {site} if name in other.sites}
    new = {
        name: addresses
        for name, addresses in standbys.items()
        if name not in ends_of(link) and (name not in link.sites or link.sites[name] != addresses)
    }
    floor = max([link.leader_epoch_floor, *(other.leader_epoch_floor for other in others)])
    if not new and floor == link.leader_epoch_floor:
        return None
    record = changed(link, leader_epoch_floor=floor, revision=link.revision + 1, updated_at_ms=now_ms)
    _name_sites(record, new)
    names = ", ".join(sorted(new)) or "no other site"
    return Change(
        step=Step.STORE, record=record, instead_of=link, reason=f"the standbys of {site} know each other: {names}"
    )


def _following(site: str, link: LinkRecord, answers: Mapping[str, SiteAnswer], *, now_ms: int) -> Change | None:
    """Let the standby follow the site that a later promotion made active."""
    if site not in ends_of(link) or link.active_site == site:
        return None
    promotions = [
        record
        for name, answer in answers.items()
        if name in link.sites and name not in (site, link.active_site) and answer.is_answering
        for record in answer.links.values()
        # only the promoted site itself knows that it is promoted
        if belong_together(link, record) and role_of(record, name) is SiteRole.ACTIVE
    ]
    later = [one for one in promotions if one.leader_epoch_floor > link.leader_epoch_floor]
    if not later:
        return None
    latest = max(one.leader_epoch_floor for one in later)
    promoted = {one.active_site: one for one in later if one.leader_epoch_floor == latest}
    if len(promoted) > 1 or not _is_deposed(link, answers.get(link.active_site), latest):
        return None
    (promotion,) = promoted.values()
    return Change(
        step=Step.STORE,
        record=_followed(link, promotion, standby=site, now_ms=now_ms),
        instead_of=link,
        reason=f"link {promotion.name} made {promotion.active_site} active in place of {link.active_site}",
    )


def _is_deposed(link: LinkRecord, answer: SiteAnswer | None, floor: int) -> bool:
    """True if the link's active site does not answer, or knows the promotion of the other site."""
    if answer is None or not answer.is_answering:
        return True
    return any(
        belong_together(link, record) and record.active_site != link.active_site and record.leader_epoch_floor >= floor
        for record in answer.links.values()
    )


def _followed(link: LinkRecord, promotion: LinkRecord, *, standby: str, now_ms: int) -> LinkRecord:
    made_with = link.replaced_site or link.active_site
    record = changed(
        # the promoted site has not seen yet what this standby has: it waits for it only later
        suspended(link),
        epoch=link.epoch + 1,
        source_site=promotion.active_site,
        target_site=standby,
        active_site=promotion.active_site,
        phase=LinkPhase.MIRRORING,
        leader_epoch_floor=promotion.leader_epoch_floor,
        kept_before_ms=0,
        is_cut_consistent=False,
        replaced_site="" if made_with == promotion.active_site else made_with,
        updated_at_ms=now_ms,
    )
    _name_sites(record, {name: promotion.sites[name] for name in promotion.sites if name not in record.sites})
    return record


def _joins(site: str, links: Links, answers: Mapping[str, SiteAnswer]) -> list[Change]:
    """The links of standbys that follow this site, or did before they were promoted, and that it
    does not have yet.
    """
    found: dict[str, Change] = {}
    for name, answer in answers.items():
        for record in answer.links.values():
            is_ours = ends_of(record) == {site, name} and record.active_site in (site, name)
            if not answer.is_answering or not is_ours or record.name in links:
                continue
            beside = next((one.name for one in links.values() if _may_join(one, site, name, record)), "")
            if beside:
                reason = f"site {name} follows {site}, which it knows by link {beside}"
                found[record.name] = Change(step=Step.JOIN, record=record, reason=reason, beside=beside)
    return list(found.values())


def _may_join(link: LinkRecord, site: str, standby: str, record: LinkRecord) -> bool:
    """True if this site's own link explains the record: the link made this site active and the
    standby followed it, or the standby was promoted later, before this site had its link.
    """
    if not belong_together(link, record) or standby not in link.sites:
        return False
    if record.active_site == standby:
        return record.leader_epoch_floor > link.leader_epoch_floor
    # an earlier promotion of this site: it lost the active role, and got it back, before it joined
    return role_of(link, site) is SiteRole.ACTIVE and record.leader_epoch_floor <= link.leader_epoch_floor


def _departure(
    site: str, link: LinkRecord, links: Links, answers: Mapping[str, SiteAnswer], *, now_ms: int
) -> Change | None:
    """Stop writes under a link that continues between two other sites, then leave it."""
    versions = (answer.links[link.name] for answer in answers.values() if link.name in answer.links)
    newest = max(versions, key=lambda one: (one.epoch, one.phase, one.revision), default=link)
    if not supersedes(newest, link) or site in ends_of(newest):
        return None
    if any(_made_passive(other, site, newest) for other in links.values()):
        reason = f"the link joins {newest.source_site} and {newest.target_site} in epoch {newest.epoch}"
        return Change(step=Step.LEAVE, record=link, reason=reason)
    if role_of(link, site) is not SiteRole.ACTIVE:
        return None
    reason = f"{newest.active_site} is active in epoch {newest.epoch}, and {site} does not know why yet"
    return Change(step=Step.STORE, record=fenced(link, now_ms=now_ms), instead_of=link, reason=reason)


def _made_passive(link: LinkRecord, site: str, newest: LinkRecord) -> bool:
    is_passive = role_of(link, site) is SiteRole.PASSIVE and site in ends_of(link)
    return belong_together(link, newest) and is_passive and link.leader_epoch_floor >= newest.leader_epoch_floor


def _name_sites(record: LinkRecord, sites: Mapping[str, LinkSite]) -> None:
    for name, addresses in sites.items():
        record.sites[name].CopyFrom(addresses)
