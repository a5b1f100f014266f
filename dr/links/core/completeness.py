"""Report, by partition, the time up to which every record that the link's source accepted has
arrived at the target. This time only grows.

Pure; `dr/links/completeness.py` asks the sites again and again. The completeness of a partition is
the latest of:

| evidence | complete until |
| --- | --- |
| the target's safe end has reached the end of the source's log | the moment before the source was
asked |
| it has reached the end that the source had when it was asked earlier | that moment |
| the source is silent, and it has reached the end that the mirror last saw there | when the mirror
saw it |
| its newest record, if its timestamp is not ahead of our clock | that record's timestamp: a later
record with an earlier timestamp counts as late |

Nothing is claimed for a copy that differs from the source's log, or whose history is unproven: its
end and its newest record may belong to another history.

So a log without new records is complete until now. If the source does not answer, the time of its
logs does not advance. Nothing is claimed for a partition that the target cannot describe.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import NamedTuple

from msgspec import Struct

from dr.sites.core.divergence import diverged_copies, find_differences, promotion_of
from dr.sites.core.evidence import Evidence
from dr.sites.core.positions import PartitionPosition
from wire.control.mirror_pb2 import DescribeMirrorReply, MirrorPartition
from wire.protocol.ids import UNKNOWN, TopicPartition

NEVER = -1


class PartitionCompleteness(Struct, frozen=True, kw_only=True):
    """One partition. `behind_records` may be UNKNOWN."""

    topic: str
    partition: int
    complete_until_ms: int
    behind_records: int


class TopicCompleteness(Struct, frozen=True, kw_only=True):
    """A topic is complete until the earliest of its partitions is."""

    topic: str
    is_complete: bool
    complete_until_ms: int
    partitions: int
    partitions_complete: int
    behind_records: int


class _Marker(NamedTuple):
    end_offset: int
    at_ms: int


class Completeness:
    """The results of all checks of one link so far."""

    def __init__(self) -> None:
        self._until_ms: dict[TopicPartition, int] = {}
        self._behind: dict[TopicPartition, int] = {}
        self._markers: dict[TopicPartition, _Marker] = {}

    def take(self, evidence: Evidence, *, asked_at_ms: int) -> None:
        """Add an observation of both sites that began at `asked_at_ms` (Unix ms)."""
        target = evidence.target.partitions if evidence.target is not None else {}
        source = evidence.source.partitions if evidence.source is not None else {}
        leaderless = {key for site in (evidence.target, evidence.source) if site is not None for key in site.leaderless}
        known = {*target, *source, *leaderless, *self._until_ms}
        self._behind = dict.fromkeys(known, UNKNOWN)
        differing = _differing(evidence)
        for key in known:
            if key in differing:
                self._until_ms.setdefault(key, NEVER)
                self._behind[key] = differing[key]
                continue
            reached = self._reached(key, source.get(key), target.get(key), asked_at_ms)
            self._until_ms[key] = max(self._until_ms.get(key, NEVER), reached)

    def _reached(
        self, key: TopicPartition, source: PartitionPosition | None, target: PartitionPosition | None, asked_at_ms: int
    ) -> int:
        if target is None:
            # A log without records is complete.
            is_empty = source is not None and source.log_start_offset == source.log_end_offset
            return asked_at_ms if is_empty else NEVER
        end = target.safe_end_offset
        if source is None:
            is_level = 0 <= target.source_high_watermark <= end
            return max(target.source_seen_at_ms if is_level else NEVER, _newest(target, asked_at_ms))
        self._behind[key] = max(0, source.log_end_offset - end)
        if end >= source.log_end_offset:
            self._markers.pop(key, None)
            return asked_at_ms
        marker = self._markers.setdefault(key, _Marker(source.log_end_offset, asked_at_ms))
        passed_ms = NEVER
        if end >= marker.end_offset:
            passed_ms = marker.at_ms
            # Under load the copy never reaches the end of this moment, so the first end that it has
            # not reached is kept until it has.
            self._markers[key] = _Marker(source.log_end_offset, asked_at_ms)
        return max(passed_ms, _newest(target, asked_at_ms))

    def take_mirror(self, reply: DescribeMirrorReply, *, asked_at_ms: int) -> None:
        """Add the report of the link's mirror, requested at `asked_at_ms`. Targets with other
        offsets need it.
        """
        for one in reply.partitions:
            key = TopicPartition(one.topic, one.partition)
            self._behind[key] = one.lag_records
            self._until_ms[key] = max(self._until_ms.get(key, NEVER), _reported(one, asked_at_ms))

    def partitions(self) -> list[PartitionCompleteness]:
        """Every partition that is known."""
        return [
            PartitionCompleteness(
                topic=key.topic,
                partition=key.partition,
                complete_until_ms=until_ms,
                behind_records=self._behind.get(key, UNKNOWN),
            )
            for key, until_ms in sorted(self._until_ms.items())
        ]


def _differing(evidence: Evidence) -> dict[TopicPartition, int]:
    """The number of records that each copy with another history lacks; UNKNOWN for unproven copies
    while the source does not answer.
    """
    target, source = evidence.target, evidence.source
    if target is None:
        return {}
    if source is not None:
        diverged = diverged_copies(target.copies, source.partitions)
        return {key: one.source_end - one.parts_at for key, one in diverged.items()}
    promotion = promotion_of(evidence.governing.active_site, target.promotions)
    found = find_differences(target.copies, {}, is_source_final={}, promotion=promotion)
    return dict.fromkeys((*found.diverged, *found.unproven), UNKNOWN)


def _newest(position: PartitionPosition, asked_at_ms: int) -> int:
    # A timestamp after the look comes from a clock that is ahead, so it proves nothing.
    return position.max_timestamp_ms if position.max_timestamp_ms <= asked_at_ms else NEVER


def _reported(one: MirrorPartition, asked_at_ms: int) -> int:
    """The time in a mirror's report. Its lag proves nothing: before the mirror has caught up once,
    that may count from its own start.
    """
    return asked_at_ms - one.complete_ms_ago if one.HasField("complete_ms_ago") else NEVER


def by_topic(partitions: Iterable[PartitionCompleteness], *, until_ms: int) -> list[TopicCompleteness]:
    """Group the partitions, which are sorted, by topic; a topic is complete until its earliest
    partition is.
    """
    found = []
    for topic, group in groupby(partitions, key=lambda one: one.topic):
        ones = list(group)
        complete = sum(one.complete_until_ms >= until_ms for one in ones)
        behind = [one.behind_records for one in ones]
        found.append(
            TopicCompleteness(
                topic=topic,
                is_complete=complete == len(ones),
                complete_until_ms=min(one.complete_until_ms for one in ones),
                partitions=len(ones),
                partitions_complete=complete,
                behind_records=UNKNOWN if UNKNOWN in behind else sum(behind),
            )
        )
    return found
