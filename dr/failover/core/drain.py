"""Decides how long a failover waits for the records that the target lacks: as long as records
arrive, within the time that the policy gives. Pure; caller: `playbook.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from dr.failover.core.completion import Completion
from dr.failover.core.known_source import KnownSource
from dr.failover.core.steps import FailoverPolicy
from dr.sites.core.evidence import Evidence, SiteEvidence
from dr.sites.core.log_columns import LogEnds, safe_ends
from dr.sites.core.positions import PartitionPosition
from wire.protocol.ids import TopicPartition


class Drain:
    """The drain of one run. Times are the playbook's, in ms."""

    def __init__(self, known: KnownSource, policy: FailoverPolicy, *, settled_ends: LogEnds | None = None) -> None:
        """`settled_ends`: the ends of the target's logs when they had not grown for `settle_ms`,
        before this run.
        """
        self._settled_ends = settled_ends
        self._known = known
        self._policy = policy
        self._started_at_ms: int | None = None
        self._stopped_at_ms: int | None = None
        self._ends: LogEnds = {}
        self._logs: Mapping[TopicPartition, PartitionPosition] | None = None
        self._last_arrival_at_ms = 0

    @property
    def drained_ends(self) -> LogEnds:
        """Ends that the target is known to keep before anything is raised: those of a fenced
        source, when it has them all.
        """
        exact = self._known.exact_ends
        if exact == self._ends:
            return exact
        return {key: end for key, end in exact.items() if self._ends.get(key, 0) == end}

    def begin(self, now_ms: int) -> None:
        """Start the wait; later calls change nothing."""
        if self._started_at_ms is None:
            self._started_at_ms = self._last_arrival_at_ms = now_ms

    def stop_writers(self, now_ms: int) -> None:
        """Writers were stopped, or found stopped, at this time; the first time counts."""
        if self._stopped_at_ms is None:
            self._stopped_at_ms = now_ms

    def start_writers(self) -> None:
        """Note that another operator has given the writes back."""
        self._stopped_at_ms = None

    def observe_target(self, target: SiteEvidence, now_ms: int) -> None:
        """Note the ends of the target's logs, to see whether records still arrive."""
        if target.partitions is self._logs:
            return  # the same answer again
        self._logs = target.partitions
        ends = safe_ends(target.partitions)
        if ends != self._ends:
            self._ends = ends
            self._last_arrival_at_ms = now_ms
        if ends != self._settled_ends:
            self._settled_ends = None

    def is_over(self, evidence: Evidence, lacking: Completion, now_ms: int) -> bool:
        """True when the target has everything, or a longer wait makes no sense."""
        if lacking.is_complete:
            return True
        # A fenced source that answers can be drained completely, so a pause in the arrivals does
        # not end the drain.
        may_arrive = self._known.is_fence_proven and evidence.source is not None
        if self._settled_ends is not None and not may_arrive:
            return True
        if self._started_at_ms is None:
            return False
        if self._known.is_fence_proven and self._stopped_at_ms is not None:
            if now_ms - self._stopped_at_ms >= self._policy.unavailability_max_ms:
                return True
        elif now_ms - self._started_at_ms >= self._policy.drain_timeout_ms:
            return True
        return not may_arrive and now_ms - self._last_arrival_at_ms >= self._policy.settle_ms

    def stopped_for(self, now_ms: int) -> str:
        """The time for which writers have been stopped, as a part of a sentence; empty when they
        are not stopped.
        """
        if not self._known.is_fence_proven or self._stopped_at_ms is None:
            return ""
        return (
            f" after writes were stopped for {now_ms - self._stopped_at_ms} ms (at most {self._policy.unavailability_max_ms} ms "
            "are allowed)"
        )
