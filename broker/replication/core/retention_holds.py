"""What a site's standbys lack of the logs here, which is kept longer than a topic's retention says.
Pure.

The leader of a partition holds what a standby has not acknowledged, or everything before the first
report. A follower gives nothing up by itself: its log start follows the leader's. There is one
`StandbyEnds` for a broker; reports count in the link epoch in which they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from broker.log.core.retention import RetentionHold
from wire.control.cluster_pb2 import LinkRecord

PartitionKey = tuple[str, int]

FOLLOWS_THE_LEADER: Final = RetentionHold(from_offset=0, ms_max=1 << 62, bytes_max=1 << 62)


class HoldBounds(NamedTuple):
    """`antipode.link.hold.max.ms` and `.bytes`; nothing is held where one of them is 0."""

    ms_max: int
    bytes_max: int

    @property
    def is_on(self) -> bool:
        """Whether anything is held."""
        return self.ms_max > 0 and self.bytes_max > 0


@dataclass(slots=True)
class StandbyEnds:
    """Up to where the standbys have the partitions that are led here, by partition, link and link
    epoch.
    """

    _ends: dict[PartitionKey, dict[tuple[str, int], int]] = field(default_factory=dict)

    def note(self, key: PartitionKey, end_offset: int, link: LinkRecord) -> None:
        """A mirror of the link says that the standby has everything below the offset."""
        of_partition = self._ends.setdefault(key, {})
        for other in [known for known in of_partition if known[0] == link.name]:
            del of_partition[other]
        of_partition[link.name, link.epoch] = end_offset

    def forget(self, key: PartitionKey) -> None:
        """The partition is gone."""
        self._ends.pop(key, None)

    def hold(
        self, key: PartitionKey, links: Sequence[LinkRecord], bounds: HoldBounds, *, is_leader: bool
    ) -> RetentionHold | None:
        """What is kept of a log that these links mirror from here; None for nothing beyond its
        retention.
        """
        if not links or not bounds.is_on:
            return None
        if not is_leader:
            return FOLLOWS_THE_LEADER
        ends = self._ends.get(key, {})
        lowest = min(ends.get((link.name, link.epoch), 0) for link in links)
        return RetentionHold(from_offset=lowest, ms_max=bounds.ms_max, bytes_max=bounds.bytes_max)
