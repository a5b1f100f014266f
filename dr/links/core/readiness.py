"""Computes by topic and by group the loss if the active site were lost at this moment: the result
of `antipode links check`.

Unlike the plan of a failover (`dr/failover/core/assess.py`), it assumes that no site is fenced and
drained.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from msgspec import Struct

from dr.links.core.link_preflight import LinkCheck
from dr.sites.core.divergence import Divergence, diverged_copies
from dr.sites.core.evidence import Evidence, SiteEvidence, SiteGroups
from dr.sites.core.group_offsets import offsets_behind
from wire.protocol.ids import UNKNOWN, TopicPartition


class TopicLack(Struct, frozen=True, kw_only=True):
    """Records of a topic that the standby does not have."""

    topic: str
    partitions: tuple[int, ...]
    missing_records: int


class GroupLack(Struct, frozen=True, kw_only=True):
    """Committed offsets of a group that differ at the standby from the active site's."""

    group: str
    missing_offsets: int


class Readiness(Struct, frozen=True, kw_only=True):
    """`problems` give the reasons why the loss is unknown, or name other obstacles. If `problems`,
    `topics` and `groups` are empty, nothing would be lost.

    `groups_age_ms`: how long ago the mirror had carried every offset, UNKNOWN (-1) without a
    report. `resting_mirror_age_ms`: how long ago an idle mirror reported to the active site;
    UNKNOWN without a report.
    """

    link: str
    active_site: str
    standby: str
    topics: tuple[TopicLack, ...] = ()
    groups: tuple[GroupLack, ...] = ()
    groups_age_ms: int = UNKNOWN
    resting_mirror_age_ms: int = UNKNOWN
    problems: tuple[str, ...] = ()
    # Daemons of the mirror that cannot carry groups' offsets; the missing offsets are in `groups`.
    mirror_problems: tuple[str, ...] = ()
    # Results of further checks, for people: they do not affect the decision here.
    checks: tuple[LinkCheck, ...] = ()

    @property
    def missing_records(self) -> int:
        """The number of missing records in all topics."""
        return sum(topic.missing_records for topic in self.topics)

    def is_ready(self, *, lag_records_max: int, groups_age_ms_max: int) -> bool:
        """True if a failover now would lose no more records than `lag_records_max`, and if no group
        lags or the mirror carried all groups' offsets within the last `groups_age_ms_max`.
        """
        is_young = self.groups_age_ms != UNKNOWN and self.groups_age_ms <= groups_age_ms_max
        return not self.problems and self.missing_records <= lag_records_max and (not self.groups or is_young)


def readiness(evidence: Evidence, *, now_ms: int) -> Readiness:
    """Compare the sites; `evidence` is that of a failover to the standby."""
    target, source = evidence.target, evidence.source
    problems = [problem for problem in (evidence.target_problem, evidence.source_problem) if problem]
    record = evidence.governing
    if target is None or source is None:
        return Readiness(
            link=evidence.link, active_site=record.active_site, standby=evidence.target_site, problems=tuple(problems)
        )
    problems += [*source.deposed, *(topic.reason for topic in target.unprotected)]
    diverged = diverged_copies(target.copies, source.partitions)
    problems += [one.sentence(copy_site=target.site, source_site=source.site) for _, one in sorted(diverged.items())]
    for site in (source, target):
        problems += [f"{key} has no leader at {site.site}" for key in sorted(site.leaderless)]
        problems += (site.groups or SiteGroups()).problems
    at_target = target.groups or SiteGroups()
    age_ms = UNKNOWN if at_target.synced_at_ms == UNKNOWN else max(0, now_ms - at_target.synced_at_ms)
    return Readiness(
        link=evidence.link,
        active_site=record.active_site,
        standby=evidence.target_site,
        topics=_topics_behind(source, target, diverged),
        groups=_groups_behind(source, target, is_routed=record.is_routed),
        groups_age_ms=age_ms,
        resting_mirror_age_ms=source.resting_mirror_age_ms,
        mirror_problems=at_target.mirror_problems,
        problems=tuple(problems),
    )


def _topics_behind(
    source: SiteEvidence, target: SiteEvidence, diverged: Mapping[TopicPartition, Divergence]
) -> tuple[TopicLack, ...]:
    missing: dict[str, dict[int, int]] = defaultdict(dict)
    copies = target.copies
    for key, there in source.partitions.items():
        kept = there.log_start_offset
        if key in diverged:
            kept = max(diverged[key].parts_at, kept)
        elif key in copies:
            kept = max(copies[key].log_end_offset, kept)
        if there.log_end_offset > kept:
            missing[key.topic][key.partition] = there.log_end_offset - kept
    return tuple(
        TopicLack(topic=topic, partitions=tuple(sorted(lacks)), missing_records=sum(lacks.values()))
        for topic, lacks in sorted(missing.items())
    )


def _groups_behind(source: SiteEvidence, target: SiteEvidence, *, is_routed: bool) -> tuple[GroupLack, ...]:
    counts: dict[str, int] = defaultdict(int)
    at_source, at_target = source.groups or SiteGroups(), target.groups or SiteGroups()
    for behind in offsets_behind(at_source, at_target, target.partitions, is_routed=is_routed):
        counts[behind.place.group] += 1
    return tuple(GroupLack(group=group, missing_offsets=count) for group, count in sorted(counts.items()))
