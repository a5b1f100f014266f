"""Explains a reconciliation before it runs: for each topic, how it is read, how many bytes that
takes, and which ranges are left out, with the reason. Pure.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import Any, Final

from spark_jobs.logs.core.splits import LogEnds
from spark_jobs.reconciling.core.extents import Extent
from wire.protocol.ids import PartitionKey

DIGEST_BYTES: Final = 150
"""Bytes that the digests of a partition of equal sites take on the line, both directions."""


class ReadingMode(enum.StrEnum):
    """The way in which a topic is compared."""

    DIGESTS = "digests"
    HEADERS = "headers"
    RECORDS = "headers, records where they differ"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicReading:
    """The part of one topic that is read. `source_bytes` and `target_bytes` are estimates: the
    sizes of the logs in proportion to the offsets that are read. `skipped` says which ranges are
    not, and why.
    """

    topic: str
    partitions: int
    mode: ReadingMode
    offsets: int
    source_bytes: int
    target_bytes: int
    skipped: tuple[str, ...]

    def as_document(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    """Bytes of the logs by partition, at each site; logs of unknown size are left out."""

    source: Mapping[PartitionKey, int]
    target: Mapping[PartitionKey, int]


def reading_plan(
    plan: Iterable[Extent],
    *,
    sizes: Sizes,
    sites: tuple[str, str],
    compacted: Collection[str],
    judged: Collection[PartitionKey] = (),
    is_quick: bool = False,
) -> list[TopicReading]:
    """A line for each topic, sorted. `sites` are the names of source and target; `judged` has the
    partitions that an interrupted run has compared.
    """
    found = []
    for topic, group in groupby(sorted(plan, key=lambda one: (one.topic, one.partition)), key=lambda one: one.topic):
        extents = list(group)
        is_unread = is_quick and topic in compacted
        wanted = [one for one in extents if (one.topic, one.partition) not in judged and not is_unread]
        reasons = [reason for one in wanted for reason in _left_out(one, sites)]
        if len(wanted) < len(extents) and not is_unread:
            reasons.insert(0, f"{len(extents) - len(wanted)} partitions are judged already")
        if is_unread:
            reasons = ["compacted: each site compacts on its own, digests do not compare; leave --quick out"]
        read = DIGEST_BYTES * len(wanted) // 2 if is_quick else None
        found.append(
            TopicReading(
                topic=topic,
                partitions=len(extents),
                mode=_mode(topic, compacted, is_quick=is_quick),
                offsets=sum(one.offsets for one in wanted),
                source_bytes=read if read is not None else _bytes(wanted, sizes.source, of_source=True),
                target_bytes=read if read is not None else _bytes(wanted, sizes.target, of_source=False),
                skipped=tuple(reasons),
            )
        )
    return found


def _mode(topic: str, compacted: Collection[str], *, is_quick: bool) -> ReadingMode:
    if is_quick:
        return ReadingMode.DIGESTS
    return ReadingMode.RECORDS if topic in compacted else ReadingMode.HEADERS


def _bytes(extents: Iterable[Extent], sizes: Mapping[PartitionKey, int], *, of_source: bool) -> int:
    total = 0
    for one in extents:
        ends = one.source if of_source else one.target
        until = one.source_until if of_source else one.target_until
        held = max(ends.end_offset - ends.start_offset, 0)
        if held:
            total += sizes.get((one.topic, one.partition), 0) * max(until - one.first_offset, 0) // held
    return total


def _left_out(one: Extent, sites: tuple[str, str]) -> list[str]:
    """Sentences about the parts of one partition that are not compared."""
    place, reasons = f"partition {one.partition}", []
    if one.source == LogEnds() and one.target == LogEnds():
        return [f"{place}: no records at either site"]
    both_hold = one.source.end_offset and one.target.end_offset
    for ends, site in ((one.source, sites[0]), (one.target, sites[1])):
        if both_hold and ends.start_offset < one.first_offset:
            other = sites[1] if site == sites[0] else sites[0]
            reasons.append(f"{place}: offsets {ends.start_offset} to {one.first_offset - 1} have expired at {other}")
    return reasons
