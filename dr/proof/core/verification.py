"""Keeps the time until which the sites of a link are proven equal; each comparison updates it.
Pure.

The sites are proven equal until a moment if all records that the source's logs held at that moment
were compared and are equal. Compacted logs have no digests: the proof names their topics as not
covered. A standby that lags is not different: the proof then reaches only to
the last moment whose log ends the standby has reached.

Caller: dr/agent/equality_watch.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from dr.proof.core.equality import EqualityReport, PartitionEquality
from wire.control import site_pb2
from wire.protocol.ids import PartitionKey

SNAPSHOTS_MAX: Final = 120
"""Maximum number of moments that are kept until the standby has reached them."""
TOPICS_NAMED_MAX: Final = 5
"""Topics that are named where a proof does not cover more."""


class LinkVerification(Struct, frozen=True, kw_only=True):
    """The state of one link's proof. Times are Unix ms; `verified_until_ms` is 0 before the first
    proof.
    """

    epoch: int
    verified_until_ms: int = 0
    compared_at_ms: int = 0
    differences: int = 0
    reason: str = ""
    """The first difference, or the first part that could not be compared; empty if everything is
    proven.
    """
    not_covered: str = ""
    """The topics that no comparison by digests covers, and why; empty if there are none."""

    @classmethod
    def of_message(cls, stored: site_pb2.LinkVerification) -> LinkVerification:
        """Decode an agent's report."""
        return cls(
            epoch=stored.epoch,
            verified_until_ms=stored.verified_until_ms,
            compared_at_ms=stored.compared_at_ms,
            differences=stored.differences,
            reason=stored.reason,
            not_covered=stored.not_covered,
        )

    def as_message(self) -> site_pb2.LinkVerification:
        """Encode for storage and reports."""
        return site_pb2.LinkVerification(
            epoch=self.epoch,
            verified_until_ms=self.verified_until_ms,
            compared_at_ms=self.compared_at_ms,
            differences=self.differences,
            reason=self.reason,
            not_covered=self.not_covered,
        )


class VerificationWatch:
    """The state of one link, with the moments that are still to be proven."""

    def __init__(self, known: LinkVerification | None = None) -> None:
        """`known` is the last state that another process stored."""
        self._known = known
        self._snapshots: deque[tuple[int, Mapping[PartitionKey, int]]] = deque(maxlen=SNAPSHOTS_MAX)
        self.proven_ends: dict[PartitionKey, int] = {}
        """By partition, the offset below which both sites were equal at the last comparison."""
        self.proven_until_ms: dict[PartitionKey, int] = {}
        """By partition, the moment (Unix ms) until which it is proven equal; 0 before its first
        proof.
        """

    def observe(self, report: EqualityReport, *, epoch: int) -> LinkVerification:
        """The state after a comparison in this epoch of the link. Each epoch begins a new proof,
        because the previous standby may have lost the end of its logs in the failover.
        """
        if self._known is None or self._known.epoch != epoch:
            self._known = LinkVerification(epoch=epoch)
            self._snapshots.clear()
            self.proven_until_ms = {}
        compared = [one for one in report.partitions if not one.not_compared]
        different = [one for one in compared if not one.is_equal]
        self.proven_ends = {(one.topic, one.partition): one.end_offset for one in compared if one.is_equal}
        ends = {(one.topic, one.partition): one.source_end_offset for one in compared}
        self._snapshots.append((report.compared_at_ms, ends))
        self.proven_until_ms = {key: self._partition_until(key) for key in ends}
        verified_until_ms = self._known.verified_until_ms
        not_covered = _not_covered(report)
        # A comparison that covers no topic of a link with topics proves nothing.
        if not different and not report.problems and (compared or not not_covered):
            verified_until_ms = self._proven_until(verified_until_ms, frozenset(ends))
        self._known = replace(
            self._known,
            verified_until_ms=verified_until_ms,
            compared_at_ms=report.compared_at_ms,
            differences=sum(len(one.differences) + one.unnamed for one in different),
            reason=_reason(different, report),
            not_covered=not_covered,
        )
        return self._known

    def _partition_until(self, key: PartitionKey) -> int:
        """The last moment whose end of this partition is proven; a partition with a difference
        keeps its earlier moment.
        """
        before_ms, proven_end = self.proven_until_ms.get(key, 0), self.proven_ends.get(key, -1)
        # The default makes moments without the partition count as not proven.
        moments = (at_ms for at_ms, ends in reversed(self._snapshots) if ends.get(key, proven_end + 1) <= proven_end)
        return max(before_ms, next(moments, 0))

    def _proven_until(self, before_ms: int, there: frozenset[PartitionKey]) -> int:
        """The last moment whose ends are proven; topics that were deleted since do not count."""
        proven_ms = before_ms
        while self._snapshots:
            at_ms, ends = self._snapshots[0]
            # Ends only grow: if this moment is not proven, no later one is.
            if any(self.proven_ends.get(key, -1) < end for key, end in ends.items() if key in there):
                break
            proven_ms = at_ms
            self._snapshots.popleft()
        return proven_ms


def _not_covered(report: EqualityReport) -> str:
    """The topics that were not compared, by reason."""
    by_reason: dict[str, list[str]] = {}
    for topic in report.topics:
        for reason in topic.not_compared:
            by_reason.setdefault(reason, []).append(topic.topic)
    return "; ".join(f"{_named(topics)}: {reason}" for reason, topics in sorted(by_reason.items()))


def _named(topics: list[str]) -> str:
    if len(topics) == 1:
        return f"topic {topics[0]}"
    more = f" and {len(topics) - TOPICS_NAMED_MAX} more" if len(topics) > TOPICS_NAMED_MAX else ""
    return f"{len(topics)} topics ({', '.join(topics[:TOPICS_NAMED_MAX])}{more})"


def _reason(different: list[PartitionEquality], report: EqualityReport) -> str:
    if different:
        one = different[0]
        first = one.differences[0]
        place = f"{one.topic}-{one.partition} offsets {first.first_offset} to {first.last_offset}"
        return f"{first.kind} at site {report.target_site}: {place} {first.detail}".rstrip()
    return "; ".join(report.problems)
