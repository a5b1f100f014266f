"""The state of the source as one run of a failover knows it: its logs and groups as last reported,
and its fence. Pure; caller: `playbook.py`.

Log ends that were observed under a fence are exact: they cannot change. If a log grows all the
same, a writer bypasses the fence.
"""

from __future__ import annotations

from collections.abc import Mapping

from dr.failover.core.source_ends import SourceEnd, SourceEndsInColumns, source_ends
from dr.sites.core.access_rules import AccessRules, access_lacking
from dr.sites.core.divergence import Differences, find_differences, promotion_of
from dr.sites.core.evidence import Evidence, SiteEvidence, SiteGroups
from dr.sites.core.log_columns import LogEnds, LogsInColumns
from dr.sites.core.positions import PartitionPosition
from wire.protocol.ids import TopicPartition

FENCED_LOOKS_MIN = 2
"""Looks at a fenced source before an epoch is raised: only a second look shows that its logs do not
grow.
"""


class KnownSource:
    """The source of one run that makes `to_site` active."""

    def __init__(self, *, to_site: str) -> None:
        self._to_site = to_site
        # What is known of the logs is either here or, if it is one answer in columns, there.
        self._ends: dict[TopicPartition, SourceEnd] = {}
        self._columns: SourceEndsInColumns | None = None
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
        return dict(self._ends) if self._columns is None else self._columns

    @property
    def columns(self) -> LogsInColumns | None:
        """The source's last report, if it has all that is known of its logs, and in columns."""
        return None if self._columns is None else self._columns.logs

    @property
    def are_columns_exact(self) -> bool:
        """True if `columns` was reported under the fence."""
        return self._columns is not None and self._columns.is_exact

    @property
    def is_unknown(self) -> bool:
        """True if the source has not reported a log."""
        return not (self._ends or self._columns)

    def end(self, key: TopicPartition) -> SourceEnd | None:
        """The end of one log; None if it is not known."""
        return self._ends.get(key) if self._columns is None else self._columns.get(key)

    @property
    def exact_ends(self) -> LogEnds:
        """The ends that were seen under the fence."""
        if self._columns is not None:
            return self._columns.logs.ends if self._columns.is_exact else {}
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
        self._columns = None
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
        if isinstance(source.partitions, LogsInColumns) and self._is_replaced_by(source.partitions, is_exact=is_exact):
            self._columns = SourceEndsInColumns(source.partitions, source.seen_at_ms, is_exact)
            self._ends.clear()
            return
        self._ends, self._columns = dict(self.ends), None
        for key, end in source_ends(source.partitions, seen_at_ms=source.seen_at_ms, is_exact=is_exact).items():
            known = self._ends.get(key)
            if known is None or not known.is_exact or is_exact:
                self._ends[key] = end

    def _is_replaced_by(self, logs: LogsInColumns, *, is_exact: bool) -> bool:
        """True if these logs replace everything that is known."""
        if self._columns is not None:
            is_kept = self._columns.is_exact and not is_exact
            known = self._columns.logs
            return not is_kept and (known.order is logs.order or known.keys() <= logs.keys())
        return self._ends.keys() <= logs.keys() and (is_exact or not any(end.is_exact for end in self._ends.values()))

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
        copies = self._maybe_different(target.copies)
        known = (
            self._ends if self._columns is None else {key: end for key in copies if (end := self.end(key)) is not None}
        )
        return find_differences(
            copies,
            {key: end.history for key, end in known.items()},
            is_source_final={key: is_source_fresh or end.is_exact for key, end in known.items()},
            promotion=promotion_of(source_site, target.promotions),
            ends=ends,
        )

    def _maybe_different(
        self, copies: Mapping[TopicPartition, PartitionPosition]
    ) -> Mapping[TopicPartition, PartitionPosition]:
        """The copies without those that the columns show to be the source's history."""
        if not isinstance(copies, LogsInColumns):
            return copies
        if self.is_unknown:
            return {key: copies[key] for key in copies.without_source()}
        if self._columns is not None and self._columns.logs.order is copies.order:
            return {key: copies[key] for key in copies.not_prefixes_of(self._columns.logs)}
        return copies

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
        logs = source.partitions
        if isinstance(logs, LogsInColumns) and self._columns is not None and self._columns.logs.order is logs.order:
            grown = {key: logs[key] for key in logs.ends.above(self._columns.logs.ends)}
        else:
            grown = dict(logs)
        for key, position in sorted(grown.items()):
            known = self.end(key)
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
