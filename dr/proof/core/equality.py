"""The results of a comparison by digests for each partition, and their meaning for the link. Pure.
Caller: dr/proof/comparison.py; `antipode reconcile --quick` prints them.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable

from msgspec import Struct

from dr.proof.core.descent import Difference, DifferenceKind


class Verdict(enum.StrEnum):
    """The answer of a comparison; its exit codes are those of `antipode reconcile`."""

    # The order gives the exit codes.
    EQUAL = "equal"
    DIFFERENT = "different"
    NOT_COMPARED = "could not compare"

    @property
    def exit_code(self) -> int:
        """0 equal, 1 different, 2 could not compare."""
        return list(Verdict).index(self)


class LogExtent(Struct, frozen=True, kw_only=True):
    """The start of a leader's log, and the end up to which its site has replicated it."""

    log_start_offset: int
    high_watermark: int


class PartitionEquality(Struct, frozen=True, kw_only=True):
    """The result for one partition. The comparison covers `first_offset` up to `end_offset`, which
    is not included. `not_compared` is the reason if nothing was compared, otherwise empty.
    """

    topic: str
    partition: int
    source: LogExtent | None
    target: LogExtent | None
    source_end_offset: int = 0
    """The end up to which the source's site had replicated the log when the comparison began."""
    first_offset: int = 0
    end_offset: int = 0
    differences: tuple[Difference, ...] = ()
    unnamed: int = 0
    not_compared: str = ""

    @property
    def is_equal(self) -> bool:
        """True if no difference was found."""
        return not self.differences


class DamagedLog(Struct, frozen=True, kw_only=True):
    """A log whose bytes on disk, at one site's leader, differ from the written ones."""

    topic: str
    partition: int
    site: str


class DamagedFollower(Struct, frozen=True, kw_only=True):
    """A damaged batch on the disk of a broker that follows the partition; offsets are included."""

    topic: str
    partition: int
    site: str
    node_id: int
    base_offset: int
    last_offset: int
    reason: str

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition} at site {self.site}: the batch at offsets {self.base_offset} to "
            f"{self.last_offset} is damaged on the disk of broker {self.node_id}, a follower: {self.reason}"
        )


class TopicEquality(Struct, frozen=True, kw_only=True):
    """The sums over a topic's partitions."""

    topic: str
    partitions: int
    offsets_compared: int
    differences: int
    not_compared: tuple[str, ...]


class EqualityReport(Struct, frozen=True, kw_only=True):
    """A comparison by digests. `problems` made the report incomplete; `notes` do not."""

    source_site: str
    target_site: str
    partitions: tuple[PartitionEquality, ...]
    problems: tuple[str, ...]
    notes: tuple[str, ...]
    compared_at_ms: int
    elapsed_ms: int
    damaged: tuple[DamagedLog, ...] = ()
    """Partitions that were not compared because their bytes on disk have changed."""
    damaged_followers: tuple[DamagedFollower, ...] = ()
    """Each is also a problem: a failover inside the site would make such a replica the leader."""

    @property
    def verdict(self) -> Verdict:
        """Problems take precedence over differences: an incomplete comparison proves nothing, and
        neither does one of compacted topics alone.
        """
        if self.problems or all(one.not_compared for one in self.partitions):
            return Verdict.NOT_COMPARED
        return Verdict.EQUAL if all(one.is_equal for one in self.partitions) else Verdict.DIFFERENT

    @property
    def left_out(self) -> int:
        """The number of partitions that have no digests to compare."""
        return sum(bool(one.not_compared) for one in self.partitions)

    @property
    def topics(self) -> list[TopicEquality]:
        """The results by topic, sorted."""
        by_topic: dict[str, list[PartitionEquality]] = {}
        for one in self.partitions:
            by_topic.setdefault(one.topic, []).append(one)
        return [_added_up(topic, found) for topic, found in sorted(by_topic.items())]


def _added_up(topic: str, partitions: Iterable[PartitionEquality]) -> TopicEquality:
    found = list(partitions)
    return TopicEquality(
        topic=topic,
        partitions=len(found),
        offsets_compared=sum(one.end_offset - one.first_offset for one in found),
        differences=sum(len(one.differences) + one.unnamed for one in found),
        not_compared=tuple(sorted({one.not_compared for one in found if one.not_compared})),
    )


def compared_range(source: LogExtent, target: LogExtent) -> tuple[int, int]:
    """The range that both logs hold: first offset and end; empty when they share nothing."""
    first = max(source.log_start_offset, target.log_start_offset)
    return first, max(first, min(source.high_watermark, target.high_watermark))


def differences_of_ends(*, source_before: LogExtent, source_after: LogExtent, target: LogExtent) -> list[Difference]:
    """The records that only one log has at its end. The source is asked before and after the
    target: the target must have the source's earlier end, and the source must have the target's end
    by then.
    """
    if target.high_watermark < source_before.high_watermark:
        # What the source has deleted during the comparison is not missing at the target.
        first, end = max(target.high_watermark, source_after.log_start_offset), source_before.high_watermark
        return _end_difference(DifferenceKind.MISSING, first, end)
    if target.high_watermark > source_after.high_watermark:
        return _end_difference(DifferenceKind.EXTRA, source_after.high_watermark, target.high_watermark)
    return []


def _end_difference(kind: DifferenceKind, first_offset: int, end_offset: int) -> list[Difference]:
    if first_offset >= end_offset:
        return []
    detail = "beyond the end of the other log"
    return [Difference(kind=kind, first_offset=first_offset, last_offset=end_offset - 1, detail=detail)]
