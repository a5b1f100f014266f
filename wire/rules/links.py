"""The rules of links for every program: the topics and groups that a link carries, and a site's
rights under it.

Pure functions over the generated ``LinkRecord``. Broker, controller, mirror and disaster-recovery
tools import these so that they cannot disagree. Nothing here reads or writes;
`wire/znodes/link_znodes.py` has the stored form.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.rules.topic_names import is_internal_topic

LEADER_EPOCH_BAND = 1 << 20
"""Elections that a site may run within one link epoch before it would reach the next band."""

LEADER_EPOCH_MAX = (1 << 31) - 1

MIRROR_GROUP_PREFIX = "__antipode-mirror."
"""Groups by which the daemons of one link share its partitions; each site has its own."""


UNDERSCORED = r"__.*"
"""Topics that begin with two underscores: by convention state of some other system. A link from
before blacklists had to list them does not mirror them either.
"""

DEFAULT_TOPIC_BLACKLIST = (r"mm2.*\.internal", r".*\.replica", UNDERSCORED)
"""The topics that a new link does not mirror by default: MirrorMaker 2's default of
`topics.exclude` (Apache Kafka 4.3.1).
"""


class SiteRole(enum.Enum):
    """The role of one site for the topics of a link."""

    ACTIVE = "active"
    FENCED = "fenced"
    PASSIVE = "passive"


class SyncPolicy(enum.Enum):
    """Decides whether the source acknowledges records, and shows them to consumers, before the
    standby has them.
    """

    NONE = ""
    BLOCK = "block"
    DEGRADE = "degrade"
    BOUND = "bound"


class ReinstatePolicy(enum.Enum):
    """Decides how records that a returning standby has alone go into quarantine: automatically, or
    when a person asks for it.
    """

    MANUAL = ""
    AUTOMATIC = "automatic"


class FailoverMode(enum.Enum):
    """The reaction of the standby's agents to the loss of the active site: none, report that they
    would fail over, or fail over.
    """

    MANUAL = ""
    OBSERVE = "observe"
    AUTOMATIC = "automatic"


LEASE_MS_MIN = 1_000
LEASE_MS_MAX = 600_000
LEASE_MS_DEFAULT = 10_000
"""Time (ms) for which a permit to write is valid if a link has an arbiter. Oracle's threshold for
the same purpose is 30 s by default and at least 6 s.
"""


_SYNC_POLICIES = {policy.value: policy for policy in SyncPolicy}

KEPT_POLICY = "keep"
"""The value that leaves the sync policy unchanged in a request that alters a link."""

MANUAL_POLICY = "manual"
"""The value of `ReinstatePolicy.MANUAL` in a request that alters a link, because an empty text
means no change.
"""

SYNC_TIMEOUT_MS = 10_000
"""Default time (ms) that a link that may degrade waits for a silent standby."""


class InvalidPattern(ValueError):
    """A whitelist or blacklist entry is not a regular expression."""


@lru_cache(maxsize=512)
def _compiled(pattern: str) -> re.Pattern[str]:
    # patterns are matched for each topic of each image
    try:
        return re.compile(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise InvalidPattern(f"pattern {pattern!r} is not a regular expression: {error}") from error


def check_pattern(pattern: str) -> None:
    """InvalidPattern when nothing can be matched with it."""
    _compiled(pattern)


def patterns_of(link: LinkRecord) -> list[str]:
    """Every pattern of the link's filters."""
    return [*link.topic_whitelist, *link.topic_blacklist, *link.group_whitelist, *link.group_blacklist]


def matches(name: str, *, whitelist: Sequence[str], blacklist: Sequence[str]) -> bool:
    """True when a whitelist pattern matches the whole name and no blacklist pattern does; unmatched
    is out.
    """
    # the whole name: a blacklist entry must not hide topics that only begin like it
    if any(_compiled(pattern).fullmatch(name) for pattern in blacklist):
        return False
    return any(_compiled(pattern).fullmatch(name) for pattern in whitelist)


def blacklist_of(link: LinkRecord) -> tuple[str, ...]:
    """Patterns of all topics that the link does not mirror, except internal ones; an older link has
    some of them that its record does not list.
    """
    listed = tuple(link.topic_blacklist)
    # a link from before the default: `__.*` counts although its list lacks it
    return listed if link.is_blacklist_complete or UNDERSCORED in listed else (*listed, UNDERSCORED)


def truncates_logs(link: LinkRecord) -> bool:
    """True in an epoch that a failover raised to a time, or to a point without torn transactions:
    the promoted site truncates its logs before it takes writes.
    """
    return link.kept_before_ms > 0 or link.is_cut_consistent


def carries_topic(link: LinkRecord, topic: str) -> bool:
    """True when the link mirrors the topic. Internal topics (`wire/rules/topic_names.py`) are never
    carried.
    """
    return not is_internal_topic(topic) and matches(topic, whitelist=link.topic_whitelist, blacklist=blacklist_of(link))


def carries_the_same(one: LinkRecord, other: LinkRecord) -> bool:
    """True when both records of a link name the same topics."""
    return one.topic_whitelist == other.topic_whitelist and blacklist_of(one) == blacklist_of(other)


def carries_group(link: LinkRecord, group: str) -> bool:
    """True when the link brings the consumer group's offsets along. Groups of mirrors among
    themselves are never carried.
    """
    return not group.startswith(MIRROR_GROUP_PREFIX) and matches(
        group, whitelist=link.group_whitelist, blacklist=link.group_blacklist
    )


def stand_in(name: str, site: str) -> LinkRecord:
    """A record in the place of one that this site cannot parse and does not remember.

    The link may carry any topic that no other link carries, and no site is known to be active: no
    client may write to such topics.
    """
    return LinkRecord(name=name, source_site=site, target_site=site, phase=LinkPhase.FENCED, topic_whitelist=[".*"])


def is_stand_in(link: LinkRecord) -> bool:
    """True if `stand_in` made the record: each real record has an active site."""
    return not link.active_site


def links_of_topic(links: Iterable[LinkRecord], topic: str) -> list[LinkRecord]:
    """The links that carry the topic, by name: several where a site has several standbys. Stand-ins
    only where no real link carries it.
    """
    carrying = sorted((link for link in links if carries_topic(link, topic)), key=lambda link: link.name)
    # a stand-in may carry anything: it decides only where no real link does
    return [link for link in carrying if not is_stand_in(link)] or carrying


def links_of_group(links: Iterable[LinkRecord], group: str) -> list[LinkRecord]:
    """The links that carry the group, by name."""
    return sorted((link for link in links if carries_group(link, group)), key=lambda link: link.name)


def governing_link(links: Sequence[LinkRecord], site: str) -> LinkRecord | None:
    """The link that decides for the site, among the links that carry something there: the most
    restrictive one, because another link cannot make a site active that one link made passive. Of
    equally restrictive links, a sync link decides, or else the first one.
    """

    def rank(link: LinkRecord) -> tuple[int, bool]:
        # passive wins: no other link makes a site active that one has made passive
        return _RESTRICTIVENESS[role_of(link, site)], sync_policy(link) is SyncPolicy.NONE

    return min(links, key=rank, default=None)


def role_of(link: LinkRecord, site: str) -> SiteRole:
    """The site's role; a FENCED link makes its active site FENCED and leaves the other one
    PASSIVE.
    """
    if link.active_site != site:
        return SiteRole.PASSIVE
    return SiteRole.FENCED if link.phase == LinkPhase.FENCED else SiteRole.ACTIVE


_RESTRICTIVENESS: Final = {SiteRole.PASSIVE: 0, SiteRole.FENCED: 1, SiteRole.ACTIVE: 2}


def sync_policy(link: LinkRecord) -> SyncPolicy:
    """The link's policy; a value that this release does not know counts as the strictest one."""
    # an older release must not acknowledge what a newer policy would hold back
    return _SYNC_POLICIES.get(link.sync_policy, SyncPolicy.BLOCK)


def needs_standby(policy: SyncPolicy) -> bool:
    """True for a policy under which a lost standby stops the producers of the active site."""
    return policy in (SyncPolicy.BLOCK, SyncPolicy.BOUND)


def reinstate_policy(link: LinkRecord) -> ReinstatePolicy:
    """The link's policy; a value that this release does not know waits for a person."""
    is_automatic = link.reinstate_policy == ReinstatePolicy.AUTOMATIC.value
    return ReinstatePolicy.AUTOMATIC if is_automatic else ReinstatePolicy.MANUAL


def failover_mode(link: LinkRecord) -> FailoverMode:
    """The link's mode; a value that this release does not know waits for a person."""
    known = {mode.value: mode for mode in FailoverMode}
    return known.get(link.failover_mode, FailoverMode.MANUAL)


def blocks(link: LinkRecord) -> bool:
    """True when the active site acknowledges nothing that the standby lacks, or did so until its
    standby was lost.
    """
    return SyncPolicy.BLOCK.value in (sync_policy(link).value, link.sync_policy_to_restore)


def other_site(link: LinkRecord, site: str) -> str:
    """The peer of `site` in the link."""
    if site not in (link.source_site, link.target_site):
        raise ValueError(f"site {site!r} is not part of link {link.name!r} ({link.source_site}, {link.target_site})")
    return link.target_site if site == link.source_site else link.source_site


class LinkEpoch(NamedTuple):
    """An epoch of one link. A link of the same name that is made later begins with the same
    epochs.
    """

    epoch: int
    made_at_ms: int


def link_epoch(link: LinkRecord) -> LinkEpoch:
    """The epoch of the record."""
    return LinkEpoch(link.epoch, link.made_at_ms)


def supersedes(candidate: LinkRecord, stored: LinkRecord) -> bool:
    """True when `candidate` must replace `stored`: a higher epoch, the same epoch in the later
    phase, or in both a higher revision.
    """
    # in this order: a phase only moves on within an epoch, and a revision within a phase
    return (candidate.epoch, candidate.phase, candidate.revision) > (stored.epoch, stored.phase, stored.revision)


def next_leader_epoch_floor(*, current_floor: int, highest_known_epoch: int) -> int:
    """The first leader epoch of the next band, above every epoch that the fenced site may still
    give out.
    """
    # the band above both: the fenced site may still elect within its own
    floor = (max(current_floor, highest_known_epoch) // LEADER_EPOCH_BAND + 1) * LEADER_EPOCH_BAND
    if floor + LEADER_EPOCH_BAND > LEADER_EPOCH_MAX:
        raise ValueError(f"leader epoch floor {floor} leaves no room below {LEADER_EPOCH_MAX}")
    return floor
