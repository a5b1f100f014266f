"""Decides which ranges an archive lets go: by age, by size, and from the start of each log only.
Pure.

A range goes as a whole. A compacted topic keeps all: the newest record of a key may be in its
oldest range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from spark_jobs.archiving.core.manifest import ArchivedRange, LogId, LogStart, Manifest, by_log, newest_topics

NO_BOUND = -1


class _Dated(NamedTuple):
    """A range, the number of its manifest, and when its wave began (Unix ms)."""

    archived_at_ms: int
    manifest: int
    range: ArchivedRange


@dataclass(frozen=True, slots=True, kw_only=True)
class Expiry:
    """The result: ranges that go, the new starts of their logs, and the compacted topics that keep
    all.
    """

    ranges: tuple[ArchivedRange, ...]
    starts: tuple[LogStart, ...]
    kept_compacted: tuple[str, ...]

    @property
    def bytes(self) -> int:
        """The size of what goes."""
        return sum(one.bytes for one in self.ranges)


def expiry(manifests: Sequence[Manifest], *, archived_before_ms: int = NO_BOUND, bytes_max: int = NO_BOUND) -> Expiry:
    """The ranges that were archived before a time (Unix ms), and as many of the oldest ones as
    bring the archive down to `bytes_max`; -1 sets no bound.
    """
    compacted = {name for name, topic in newest_topics(manifests).items() if topic.is_compacted}
    dated = {
        (one.log, one.first_offset): _Dated(manifest.started_at_ms, manifest.number, one)
        for manifest in manifests
        for one in manifest.ranges
    }
    held = [one for ranges in by_log(manifests).values() for one in ranges]
    gone: set[tuple[LogId, int]] = set()
    if archived_before_ms != NO_BOUND:
        for ranges in by_log(manifests).values():
            for one in ranges:
                if one.topic in compacted or dated[one.log, one.first_offset].archived_at_ms >= archived_before_ms:
                    break
                gone.add((one.log, one.first_offset))
    if bytes_max != NO_BOUND:
        left = sum(one.bytes for one in held if (one.log, one.first_offset) not in gone)
        for candidate in sorted(dated.values(), key=lambda one: (one.manifest, one.range.log, one.range.first_offset)):
            key = (candidate.range.log, candidate.range.first_offset)
            if left <= bytes_max:
                break
            if key not in gone and candidate.range.topic not in compacted:
                gone.add(key)
                left -= candidate.range.bytes
    going = tuple(one for one in held if (one.log, one.first_offset) in gone)
    return Expiry(
        ranges=going,
        starts=_starts(going),
        kept_compacted=tuple(sorted(compacted & {one.topic for one in held})),
    )


def _starts(ranges: Sequence[ArchivedRange]) -> tuple[LogStart, ...]:
    found: dict[LogId, LogStart] = {}
    for one in ranges:
        if one.log not in found or one.end_offset > found[one.log].start_offset:
            found[one.log] = LogStart(
                topic=one.topic, topic_id=one.topic_id, partition=one.partition, start_offset=one.end_offset
            )
    return tuple(found[log] for log in sorted(found))
