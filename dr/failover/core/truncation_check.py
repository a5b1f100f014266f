"""Whether a failover to a time would leave logs without keys: compaction has removed records whose
newer ones the failover would truncate. Checked before the epoch is raised. Pure; callers:
`playbook.py`, and the shells that look the offsets up.
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

    def unknown(self, evidence: Evidence) -> list[TopicPartition]:
        """The compacted logs of which the offset of the time is still to be looked up."""
        target, policy = evidence.target, self._policy
        is_due = target is not None and evidence.governing.active_site != target.site
        if target is None or not is_due or not policy.kept_before_ms or policy.accepts_data_loss or policy.is_abort:
            return []
        return [key for key in thinned_logs(target.copies) if key not in self._ends]

    def note(self, keys: Iterable[TopicPartition], ends: Mapping[TopicPartition, int]) -> None:
        """Note the offset of the first record of the time or later, of those logs that have one."""
        self._ends.update((key, ends.get(key)) for key in keys)

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
        return (
            f"{iso_time(self._policy.kept_before_ms)} is before the compaction of logs at {target.site}, which would be "
            f"truncated there: {named}{more}; keys would be missing whose older records compaction has removed: "
            f"choose a later time, or accept data loss (--accept-data-loss)"
        )
