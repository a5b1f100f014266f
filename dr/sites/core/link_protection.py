"""Decides whether a link's standby protects its active site, since when, and if not, why.

Protected means: the standby answers, its mirror reports that everything is carried, every copy has
the active site's history, and the standby has had, since the last problem, all records that the
active site held at one moment. The lag is reported separately: a protected standby may lag. Pure;
`dr/agent/protection_judge.py` asks the sites.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from dr.sites.core.divergence import Divergence, diverged_copies
from dr.sites.core.evidence import Evidence, SiteEvidence
from dr.sites.core.log_columns import LogEnds, log_ends
from dr.sites.core.mirror_reports import mirror_sentence
from wire.protocol.ids import TopicPartition

NAMED_MAX = 3
"""Partitions that a reason names; the others are counted."""


class LinkProtection(Struct, frozen=True, kw_only=True):
    """The verdict on one link. `reason` is empty while the link is protected; `since_ms` (Unix ms)
    is when the current verdict began.
    """

    epoch: int
    since_ms: int
    reason: str = ""

    @property
    def is_protected(self) -> bool:
        """No reason against it."""
        return not self.reason


class ProtectionWatch:
    """The verdict on one link, brought up to date with each observation."""

    def __init__(self, known: LinkProtection | None = None) -> None:
        """`known` is the verdict that another process has stored last."""
        self._verdict = known
        self._ends_to_reach: LogEnds | None = None
        self._compared: tuple[SiteEvidence, SiteEvidence, Mapping[TopicPartition, Divergence]] | None = None

    def observe(self, evidence: Evidence, *, now_ms: int) -> LinkProtection:
        """The verdict from new evidence of both sites, for a failover to the standby. Raises
        ValueError when the active site itself did not answer: then nothing is known.
        """
        source = evidence.source
        if source is None:
            raise ValueError(evidence.source_problem)
        reason = _problem(evidence, source, self._diverged)
        if reason:
            # the standby has to reach the ends anew after each problem
            self._ends_to_reach = None
        else:
            reason = self._catching_up(evidence, source)
        before = self._verdict
        if before is None or before.epoch != source.record.epoch or before.is_protected == bool(reason):
            self._verdict = LinkProtection(epoch=source.record.epoch, since_ms=now_ms, reason=reason)
        else:
            self._verdict = LinkProtection(epoch=before.epoch, since_ms=before.since_ms, reason=reason)
        return self._verdict

    def _diverged(self, target: SiteEvidence, source: SiteEvidence) -> Mapping[TopicPartition, Divergence]:
        """The copies that differ; compared again only if the evidence has other logs."""
        known = self._compared
        is_same = (
            known is not None
            and known[0].partitions is target.partitions
            and known[1].partitions is source.partitions
            and known[0].unprotected == target.unprotected
        )
        if known is None or not is_same:
            known = self._compared = target, source, diverged_copies(target.copies, source.partitions)
        return known[2]

    def _catching_up(self, evidence: Evidence, source: SiteEvidence) -> str:
        """Return why the standby is not yet protected again after a problem; empty once it has
        received everything.
        """
        before = self._verdict
        if before is not None and before.is_protected and before.epoch == source.record.epoch:
            return ""
        target = evidence.target
        assert target is not None
        # the ends of one moment: under load the standby never reaches the ends of each moment
        if self._ends_to_reach is None:
            self._ends_to_reach = log_ends(source.partitions)
        ends = log_ends(target.copies)
        missing = sum(max(0, end - ends.get(key, 0)) for key, end in self._ends_to_reach.items())
        if missing:
            return f"{target.site} has not caught up once: {missing:,} records are missing there"
        self._ends_to_reach = None
        return ""


def _problem(
    evidence: Evidence,
    source: SiteEvidence,
    compare: Callable[[SiteEvidence, SiteEvidence], Mapping[TopicPartition, Divergence]],
) -> str:
    """The most serious problem; empty if there is none."""
    target = evidence.target
    if target is None:
        return evidence.target_problem
    if target.record.epoch != source.record.epoch:
        return f"{target.site} has epoch {target.record.epoch} of the link, {source.site} epoch {source.record.epoch}"
    if not target.carries_all:
        return (
            f"{target.site} has no mirror that carries all ({mirror_sentence(target.mirror_age_ms)}); start one: antipode "
            f"mirror --config FILE, with link.name={evidence.link} and the agents of {target.site} as site.agents"
        )
    diverged = compare(target, source)
    problems = [one.sentence(copy_site=target.site, source_site=source.site) for _, one in sorted(diverged.items())]
    problems += [*source.deposed, *(topic.reason for topic in target.unprotected), *target.mirror_problems]
    problems += [*_leaderless(source), *_leaderless(target)]
    more = len(problems) - NAMED_MAX
    return "; ".join(problems if more <= 0 else [*problems[:NAMED_MAX], f"and {more} more"])


def _leaderless(site: SiteEvidence) -> list[str]:
    return [f"{key} has no leader at {site.site}" for key in sorted(site.leaderless)]
