"""The state of the source as one run of a failover knows it: its logs and groups as last reported,
and its fence. Pure; caller: `playbook.py`.

Log ends that were observed under a fence are exact: they cannot change. If a log grows all the
same, a writer bypasses the fence.
"""

from __future__ import annotations

from collections.abc import Mapping

from dr.failover.core.source_ends import SourceEnd, source_ends
from dr.sites.core.access_rules import AccessRules, access_lacking
from dr.sites.core.divergence import Differences, find_differences, promotion_of
from dr.sites.core.evidence import Evidence, PartitionPosition, SiteEvidence, SiteGroups
from wire.protocol.ids import TopicPartition

FENCED_LOOKS_MIN = 2
"""Looks at a fenced source before an epoch is raised: only a second look shows that its logs do not
grow.
"""


class KnownSource:
    """The source of one run that makes `to_site` active."""

    def __init__(self, *, to_site: str) -> None:
        self._to_site = to_site
        self._ends: dict[TopicPartition, SourceEnd] = {}
        # The logs whose ends were last noted as exact.
        self._exact_logs: Mapping[TopicPartition, PartitionPosition] | None = None
        self._fenced_epoch = 0
        self.groups: SiteGroups | None = None
        """The groups as the source last reported them under a fence; None without such a report."""
        self.access = AccessRules()
        """The access rules as the source last reported them under a fence, together with groups."""
        self.is_access_carried = False
        """True if the target was seen to have all access rules of the fenced source."""
        self.is_fence_proven = False
        """True once every live broker of the source was seen to refuse writes."""
        self.fenced_looks = 0
        """Number of looks at the source under its fence."""
        self.bypass = ""
        """The first log that grew under the fence, in a sentence; empty when none did."""

    @property
    def needs_second_look(self) -> bool:
        """True if the source was seen only once under its fence."""
        return self.is_fence_proven and self.fenced_looks < FENCED_LOOKS_MIN

    @property
    def ends(self) -> Mapping[TopicPartition, SourceEnd]:
        """The log ends in the source's own last report; they are exact if the source was fenced at
        that time.
        """
        return dict(self._ends)

    @property
    def exact_ends(self) -> Mapping[TopicPartition, int]:
        """The ends that were seen under the fence."""
        return {key: end.end_offset for key, end in self._ends.items() if end.is_exact}

    def observe_fence(self, evidence: Evidence) -> bool:
        """Note the state of the fence. True when another operator has ended the fence that this run
        saw: then the source has been writing again.
        """
        source = evidence.source
        if source is not None and source.is_fenced:
            if self.is_fence_proven:
                self.bypass = self.bypass or self._growth_under_the_fence(source)
                self._remember_groups(source, evidence.target)
            self.fenced_looks += 1
            self.is_fence_proven, self._fenced_epoch = True, source.record.epoch
            self.remember(source)
            return False
        if not self.is_fence_proven or not self._was_given_back(evidence):
            return False
        self.is_fence_proven = False
        self.fenced_looks = 0
        self._ends.clear()
        self._exact_logs = None
        self.groups = None
        self.access, self.is_access_carried = AccessRules(), False
        return True

    def _remember_groups(self, source: SiteEvidence, target: SiteEvidence | None) -> None:
        if source.groups is None:
            return
        self.groups, self.access = source.groups, source.access
        self.is_access_carried = (
            target is not None and source.access.fenced is not None and not access_lacking(source.access, target.access)
        )

    def remember(self, source: SiteEvidence) -> None:
        """Note the ends of the logs; an exact end is only replaced by another exact one."""
        is_exact = source.is_fenced
        if is_exact and source.partitions is self._exact_logs:
            return  # the same answer again
        self._exact_logs = source.partitions if is_exact else None
        for key, end in source_ends(source.partitions, seen_at_ms=source.seen_at_ms, is_exact=is_exact).items():
            known = self._ends.get(key)
            if known is None or not known.is_exact or is_exact:
                self._ends[key] = end

    def differences(
        self,
        target: SiteEvidence,
        *,
        source_site: str,
        is_source_fresh: bool = False,
        ends: Mapping[TopicPartition, int] | None = None,
    ) -> Differences:
        """The partitions where the target's copies, up to `ends` where given, are not the known
        history of the source. `is_source_fresh`: the source was asked after the target, so that the
        target cannot be a later state.
        """
        return find_differences(
            target.copies,
            {key: end.history for key, end in self._ends.items()},
            is_source_final={key: is_source_fresh or end.is_exact for key, end in self._ends.items()},
            promotion=promotion_of(source_site, target.promotions),
            ends=ends,
        )

    def _growth_under_the_fence(self, source: SiteEvidence) -> str:
        """Describe the first log of the fenced source that grew since the last look; empty when
        none did, or when markers of decided transactions may have caused the growth.
        """
        # A coordinator may write markers of decided transactions under a fence, so growth proves
        # nothing until all of them are written.
        groups = self.groups
        if source.partitions is self._exact_logs:
            return ""
        if groups is None or groups.committing_transactions or groups.transaction_problems:
            return ""
        for key, position in sorted(source.partitions.items()):
            known = self._ends.get(key)
            if known is not None and known.is_exact and position.log_end_offset > known.end_offset:
                return (
                    f"{key} grew from {known.end_offset} to {position.log_end_offset} at {source.site} although every broker there "
                    "reported that it refuses writes"
                )
        return ""

    def _was_given_back(self, evidence: Evidence) -> bool:
        known = [site.record for site in (evidence.target, evidence.source) if site is not None]
        # Only the epoch decides: while a broker does not answer, an intact fence looks as if it
        # were broken.
        return any(record.epoch > self._fenced_epoch and record.active_site != self._to_site for record in known)
