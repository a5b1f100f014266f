"""The reports of a site's standbys about the logs here. Records that a standby lacks are kept
longer than the topic's retention, and a consumer near a standby may read the records that the
standby has there. Pure.

The leader of a partition holds the records that a standby has not acknowledged, or all records
before the first report. A follower deletes nothing by itself: its log start follows the leader's.
There is one `StandbyEnds` for a broker; reports are valid in the link epoch in which they arrived.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker.log.core.retention import RetentionHold
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import PartitionKey

# longer and larger than anything
FOLLOWS_THE_LEADER: Final = RetentionHold(from_offset=0, ms_max=1 << 62, bytes_max=1 << 62)


REPORT_AGE_MS_MAX: Final = 15_000
"""A standby whose last report is older may have lost its mirror: no consumer is sent there. Mirrors
report every five to ten seconds.
"""


class StandbyEnd(NamedTuple):
    """A report: the standby has everything below `end_offset`. `is_close` if those were all the
    records that the leader had at the previous report.
    """

    end_offset: int
    high_watermark: int
    reported_at_ms: float
    is_close: bool


class HoldBounds(NamedTuple):
    """`antipode.link.hold.max.ms` and `.bytes`; nothing is held where one of them is 0."""

    ms_max: int
    bytes_max: int

    @property
    def is_on(self) -> bool:
        """True if logs are held for standbys."""
        return self.ms_max > 0 and self.bytes_max > 0


@dataclass(slots=True)
class StandbyEnds:
    """The offsets up to which the standbys have the partitions that this broker leads, by
    partition, link and link epoch.
    """

    _ends: dict[PartitionKey, dict[tuple[str, int], StandbyEnd]] = field(default_factory=dict)

    def note(self, key: PartitionKey, end_offset: int, link: LinkRecord, *, high_watermark: int, now_ms: float) -> None:
        """A mirror of the link says that the standby has everything below the offset;
        `high_watermark` is the leader's.
        """
        of_partition = self._ends.setdefault(key, {})
        former = of_partition.get((link.name, link.epoch))
        # one report for each link: one of an earlier epoch was about another direction
        if former is None:
            for other in [known for known in of_partition if known[0] == link.name]:
                del of_partition[other]
        # a standby under load cannot be closer: it has all records that the leader had one report
        # ago
        is_close = former is not None and end_offset >= former.high_watermark
        of_partition[link.name, link.epoch] = StandbyEnd(end_offset, high_watermark, now_ms, is_close)

    def readable(self, key: PartitionKey, link: LinkRecord, offset: int, *, now_ms: float) -> int | None:
        """The offset up to which the link's standby has the partition. None if a consumer at
        `offset` must not be sent there: no recent report, or a standby that lacks the offset and is
        not close.
        """
        known = self._ends.get(key, {}).get((link.name, link.epoch))
        if known is None or now_ms - known.reported_at_ms > REPORT_AGE_MS_MAX:
            return None
        return known.end_offset if known.is_close or offset < known.end_offset else None

    def forget(self, key: PartitionKey) -> None:
        """The partition is gone."""
        self._ends.pop(key, None)

    def hold(
        self, key: PartitionKey, links: Sequence[LinkRecord], bounds: HoldBounds, *, is_leader: bool
    ) -> RetentionHold | None:
        """The hold on a log that these links mirror from here; None if nothing is kept beyond its
        retention.
        """
        if not links or not bounds.is_on:
            return None
        if not is_leader:
            # a follower may be elected: it must not have deleted records that a standby lacks
            return FOLLOWS_THE_LEADER
        ends = self._ends.get(key, {})
        reports = [ends.get((link.name, link.epoch)) for link in links]
        # before the first report of any link, all records count as lacking
        lowest = min(0 if report is None else report.end_offset for report in reports)
        return RetentionHold(from_offset=lowest, ms_max=bounds.ms_max, bytes_max=bounds.bytes_max)
