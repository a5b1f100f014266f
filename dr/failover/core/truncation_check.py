"""Whether a failover to a time or to a consistent point would leave logs without keys: compaction
has removed records whose newer ones the failover would truncate. Checked before the epoch is
raised: for a time at once, for a consistent point when the target gets no more records, because
later markers complete transactions. Pure; callers: `playbook.py`, and the shells that look the
offsets up.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from dr.failover.core.steps import NAMED_IN_A_REASON_MAX, FailoverPolicy
from dr.sites.core.evidence import Evidence, SiteEvidence
from dr.sites.core.log_columns import thinned_logs
from runtime.times import iso_time
from wire.protocol.ids import TopicPartition


class TruncationCheck:
    """Of one run: the offsets at which it would truncate the compacted logs of the target."""

    def __init__(self, policy: FailoverPolicy) -> None:
        self._policy = policy
        self._ends: dict[TopicPartition, int | None] = {}
        self._has_point = False

    def unknown(self, evidence: Evidence) -> list[TopicPartition]:
        """The compacted logs of which the offset of the time is still to be looked up."""
        if not self._policy.kept_before_ms:
            return []
        return [key for key in self._thinned(evidence) if key not in self._ends]

    def unknown_of_point(self, evidence: Evidence) -> list[TopicPartition]:
        """The compacted logs of which the end at the consistent point is still to be looked up. To
        be asked when the target gets no more records.
        """
        return [] if self._has_point or not self._policy.is_cut_consistent else self._thinned(evidence)

    def _thinned(self, evidence: Evidence) -> list[TopicPartition]:
        target, policy = evidence.target, self._policy
        is_due = target is not None and evidence.governing.active_site != target.site
        if target is None or not is_due or policy.accepts_data_loss or policy.is_abort:
            return []
        return thinned_logs(target.copies)

    def note(self, keys: Iterable[TopicPartition], ends: Mapping[TopicPartition, int]) -> None:
        """Note the offset of the first record of the time or later, of those logs that have one."""
        self._ends.update((key, ends.get(key)) for key in keys)

    def note_point(self, keys: Iterable[TopicPartition], ends: Mapping[TopicPartition, int]) -> None:
        """Note the ends of those logs that the consistent point shortens."""
        self._has_point = True
        self.note(keys, ends)

    def refusal(self, target: SiteEvidence) -> str:
        """Refuse to truncate a log below the offset up to which it is compacted: only the source
        or a copy of the removed records would have these keys. Empty for no refusal.
        """
        if not self._ends or self._policy.accepts_data_loss:
            return ""
        found = [(key, end) for key, end in sorted(self._ends.items()) if end is not None and key in target.copies]
        lacking = [(key, end, target.copies[key].thinned_to) for key, end in found]
        lacking = [(key, end, thinned_to) for key, end, thinned_to in lacking if end < thinned_to]
        if not lacking:
            return ""
        named = ", ".join(
            f"{key.topic}-{key.partition} at {end} (compacted up to {thinned_to})"
            for key, end, thinned_to in lacking[:NAMED_IN_A_REASON_MAX]
        )
        more = f" and {len(lacking) - NAMED_IN_A_REASON_MAX} more" if len(lacking) > NAMED_IN_A_REASON_MAX else ""
        point, instead = iso_time(self._policy.kept_before_ms), "choose a later time"
        if self._has_point:
            point, instead = "the latest point without torn transactions", "promote without --consistent"
        return (
            f"{point} is before the compaction of logs at {target.site}, which would be truncated there: {named}{more}; "
            f"keys would be missing whose older records compaction has removed: {instead}, or accept data loss "
            "(--accept-data-loss)"
        )
