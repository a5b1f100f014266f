"""The rules that prevent a link: rules for one site alone, and rules for both sites together.

Each function returns sentences, empty if there is no problem, so that a person sees every problem
at once. Node ids and the cluster id must fit together: clients of one site get the brokers of both
sites in one Metadata answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from wire.control.cluster_pb2 import LinkRecord, SiteView
from wire.control.site_pb2 import SurveyLinkReply
from wire.rules.links import (
    LEASE_MS_MAX,
    LEASE_MS_MIN,
    FailoverMode,
    InvalidPattern,
    ReinstatePolicy,
    SiteRole,
    SyncPolicy,
    carries_group,
    carries_topic,
    check_pattern,
    failover_mode,
    other_site,
    patterns_of,
    role_of,
)
from wire.rules.topic_names import is_internal_topic

NODE_IDS_PER_SITE = 1000
"""Node ids of a site are its number times this, plus 0 to 999."""

MODE_EXACT = "exact"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


def record_problems(record: LinkRecord) -> list[str]:
    """Return the errors of the record itself."""
    problems: list[str] = []
    if not _NAME.fullmatch(record.name):
        problems.append(f"name {record.name!r}: accepted are 1 to 100 letters, digits, dots, dashes and underscores")
    if not record.source_site or not record.target_site:
        problems.append("a link needs a source site and a target site")
    elif record.source_site == record.target_site:
        problems.append(f"source and target are both {record.source_site!r}; a link joins two sites")
    if record.mode != MODE_EXACT:
        problems.append(f"mode {record.mode!r}: accepted is {MODE_EXACT!r}")
    policies = [policy.value for policy in SyncPolicy]
    if record.sync_policy not in policies:
        problems.append(f"sync policy {record.sync_policy!r}: accepted are {', '.join(map(repr, policies))}")
    reinstatements = [policy.value for policy in ReinstatePolicy]
    if record.reinstate_policy not in reinstatements:
        accepted = ", ".join(map(repr, reinstatements))
        problems.append(f"reinstate policy {record.reinstate_policy!r}: accepted are {accepted}")
    if record.sync_policy == SyncPolicy.DEGRADE.value and record.sync_timeout_ms <= 0:
        problems.append(f"sync_timeout_ms {record.sync_timeout_ms}: accepted with the sync policy degrade is 1 or more")
    if SyncPolicy.BOUND.value in (record.sync_policy, record.sync_policy_to_restore) and record.sync_bound_ms <= 0:
        problems.append(f"sync_bound_ms {record.sync_bound_ms}: accepted with the sync policy bound is 1 or more")
    problems += lease_problems(record)
    if not record.topic_whitelist:
        problems.append("the topic whitelist is empty: the link would carry nothing")
    return problems + _pattern_problems(record)


def lease_problems(record: LinkRecord) -> list[str]:
    """Return the errors of the record's lease, and of the settings that depend on it."""
    problems: list[str] = []
    if record.lease_ms and not LEASE_MS_MIN <= record.lease_ms <= LEASE_MS_MAX:
        problems.append(f"lease_ms {record.lease_ms}: accepted are 0 (no lease) and {LEASE_MS_MIN} to {LEASE_MS_MAX}")
    modes = [mode.value for mode in FailoverMode]
    if record.failover_mode not in modes:
        problems.append(f"failover mode {record.failover_mode!r}: accepted are {', '.join(map(repr, modes))}")
    elif record.failover_mode and not record.lease_ms:
        problems.append(
            f"failover mode {record.failover_mode!r} needs a lease: without one the old site may still take writes"
        )
    lags = {name: getattr(record, name) for name in ("failover_lag_records_max", "failover_lag_ms_max")}
    return problems + [f"{name} {lag}: accepted is 0 (no bound) or more" for name, lag in lags.items() if lag < 0]


def arbiter_problems(arbiters: Mapping[str, str]) -> list[str]:
    """Return the reasons why two sites cannot share a lease, from the identity of the arbiter that
    each one reaches (empty: none).
    """
    problems = [
        f"site {site} reaches no arbiter: set antipode.arbiter.connect at its brokers, and see that it answers"
        for site, arbiter_id in sorted(arbiters.items())
        if not arbiter_id
    ]
    if not problems and len(set(arbiters.values())) > 1:
        problems.append(f"sites {' and '.join(sorted(arbiters))} have different arbiters: they need the same one")
    return problems


def _pattern_problems(record: LinkRecord) -> list[str]:
    problems: list[str] = []
    for pattern in patterns_of(record):
        try:
            check_pattern(pattern)
        except InvalidPattern as error:
            problems.append(str(error))
    return problems


def overlap_problems(record: LinkRecord, *, site: str, links: Iterable[LinkRecord], topics: Iterable[str]) -> list[str]:
    """Topics that two links would carry so that `site` cannot be sure of its role: it must be
    active under both.
    """
    names = list(topics)
    problems: list[str] = []
    for other in links:
        if other.name == record.name:
            continue
        if role_of(record, site) is role_of(other, site) is SiteRole.ACTIVE:
            continue
        if shared := _shared_topics(record, other, names):
            problems.append(
                f"link {other.name!r} carries {', '.join(shared[:5])} already; blacklist them in one of the two"
            )
        elif same := sorted(set(record.topic_whitelist) & set(other.topic_whitelist)):
            problems.append(f"link {other.name!r} has the whitelist pattern {same[0]!r} too")
    return problems


def automatic_problems(
    record: LinkRecord, *, site: str, links: Iterable[LinkRecord], topics: Iterable[str]
) -> list[str]:
    """Return the other links of the active site `site` that fail over by themselves for topics of
    the record, if the record does so too: their standbys decide without each other, so both could
    be promoted when the site is lost.
    """
    names = list(topics)
    if record.active_site != site or failover_mode(record) is not FailoverMode.AUTOMATIC:
        return []
    problems: list[str] = []
    for other in links:
        is_second = other.name != record.name and other.active_site == site
        if not is_second or failover_mode(other) is not FailoverMode.AUTOMATIC:
            continue
        shared = _shared_topics(record, other, names) or sorted(
            set(record.topic_whitelist) & set(other.topic_whitelist)
        )
        if shared:
            problems.append(
                f"failover mode 'automatic': link {other.name!r} carries {', '.join(shared[:5])} too and fails over by "
                f"itself to {other_site(other, site)}, so {other_site(record, site)} and {other_site(other, site)} could "
                f"both be promoted; accepted are 'manual' and 'observe', or take 'automatic' from {other.name!r} first"
            )
    return problems


def deposed_problems(record: LinkRecord, *, links: Iterable[LinkRecord], topics: Iterable[str]) -> list[str]:
    """Return other links under which the active site is passive for topics of both links. The
    standby of such a link receives nothing new.
    """
    site, names = record.active_site, list(topics)
    problems: list[str] = []
    for other in links:
        is_elsewhere = other.name != record.name and site in (other.source_site, other.target_site)
        if not is_elsewhere or role_of(other, site) is not SiteRole.PASSIVE:
            continue
        if shared := _shared_topics(record, other, names):
            problems.append(
                f"site {site} is passive for {', '.join(shared[:5])}, since link {other.name} made {other.active_site} active: "
                f"let {other_site(record, site)} follow {other.active_site}, as docs/failover.md says of a second standby"
            )
    return problems


def lost_link_problem(link: str, *, site: str) -> str:
    """The problem of a link that one of its ends does not have, while that site answers."""
    return f"site {site} has no link {link}: if it has lost its data, antipode links restore {link} --at {site}"


def group_warnings(record: LinkRecord, *, links: Iterable[LinkRecord], topics: Iterable[str]) -> list[str]:
    """The other links that carry groups of this one without its topics: if only one of the two
    links is failed over, each of its sites is passive for these groups by one of them.
    """
    names = list(topics)
    warnings: list[str] = []
    for other in links:
        has_same_sites = {record.source_site, record.target_site} == {other.source_site, other.target_site}
        if other.name == record.name or not has_same_sites or _shared_topics(record, other, names):
            continue
        if shared := _shared_group_patterns(record, other):
            warnings.append(
                f"link {other.name!r} carries groups of {shared[0]!r} too: after a failover of one of the two links alone, "
                f"these groups work at neither site; give each link its own groups (--group-whitelist), or move both"
            )
    return warnings


def _shared_group_patterns(record: LinkRecord, other: LinkRecord) -> list[str]:
    """The patterns of groups that both links have, or that match a name or pattern of the other
    one. Whether two regular expressions match one name is not decided here.
    """
    shared = set(record.group_whitelist) & set(other.group_whitelist)
    for one, second in ((record, other), (other, record)):
        shared |= {pattern for pattern in second.group_whitelist if carries_group(one, pattern)}
    return sorted(shared)


def _shared_topics(record: LinkRecord, other: LinkRecord, topics: Iterable[str]) -> list[str]:
    names = [topic for topic in topics if not is_internal_topic(topic)]
    candidates = [*names, *_literals(record), *_literals(other)]
    return sorted({name for name in candidates if carries_topic(record, name) and carries_topic(other, name)})


def _literals(record: LinkRecord) -> list[str]:
    return [pattern for pattern in record.topic_whitelist if re.escape(pattern) == pattern]


def pair_problems(source: SiteView, target: SiteView, *, source_site: str, target_site: str) -> list[str]:
    """Return the reasons why two sites cannot share an exact link."""
    problems = [
        f"the agents given for site {wanted!r} belong to site {view.site!r}"
        for wanted, view in ((source_site, source), (target_site, target))
        if view.site != wanted
    ]
    if source.cluster_id != target.cluster_id:
        problems.append(
            f"cluster ids differ ({source.cluster_id} and {target.cluster_id}): sites of an exact link share one, "
            "start one of them for the first time with the other's id in antipode.cluster.id"
        )
    shared = sorted(_node_ranges(source) & _node_ranges(target))
    if shared:
        first = shared[0] * NODE_IDS_PER_SITE
        problems.append(
            f"both sites have node ids from {first} to {first + NODE_IDS_PER_SITE - 1}: give each site a range of its own"
        )
    return problems


def _node_ranges(view: SiteView) -> set[int]:
    return {broker.node_id // NODE_IDS_PER_SITE for broker in view.brokers}


def topic_id_problems(
    record: LinkRecord, source: SiteView | SurveyLinkReply, target: SiteView | SurveyLinkReply
) -> list[str]:
    """Carried topics that exist at both sites as two different topics. Views of a routed link show
    others, too.
    """
    ids = {topic.name: topic.topic_id for topic in source.topics if carries_topic(record, topic.name)}
    clashing = sorted(topic.name for topic in target.topics if ids.get(topic.name, topic.topic_id) != topic.topic_id)
    return [_clash(clashing, target.site)] if clashing else []


def _clash(topics: Sequence[str], site: str) -> str:
    return f"at {site} {', '.join(topics[:5])} exist as other topics of the same name: delete or blacklist them"
