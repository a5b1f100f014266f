"""Turns Spark's digests by site and range into a report of partitions that sets both sites side by
side. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

from spark_jobs.logs.core.splits import LogEnds
from spark_jobs.reconciling.core.extents import Extent
from spark_jobs.reconciling.core.verdict import PartitionReport, RangeReport, Side
from wire.protocol.ids import PartitionKey


class RangeSum(NamedTuple):
    """The content of one range at one site."""

    site: str
    topic: str
    partition: int
    range_start: int
    records: int
    bytes: int
    batches: int
    digest: str


class RangeKey(NamedTuple):
    """A range of a partition."""

    topic: str
    partition: int
    range_start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """The sums of both sites, by partition and range."""

    source_site: str
    target_site: str
    ranges: Mapping[PartitionKey, Mapping[int, Mapping[str, RangeSum]]]

    @classmethod
    def of(cls, sums: Iterable[RangeSum], *, source_site: str, target_site: str) -> Comparison:
        """Arrange the sums."""
        ranges: dict[PartitionKey, dict[int, dict[str, RangeSum]]] = defaultdict(lambda: defaultdict(dict))
        for one in sums:
            ranges[one.topic, one.partition][one.range_start][one.site] = one
        return cls(source_site=source_site, target_site=target_site, ranges=ranges)

    def differing(self) -> list[RangeKey]:
        """Ranges whose digests are not the same."""
        return [
            RangeKey(topic, partition, start)
            for (topic, partition), by_start in sorted(self.ranges.items())
            for start, by_site in sorted(by_start.items())
            if _digest(by_site.get(self.source_site)) != _digest(by_site.get(self.target_site))
        ]

    def report(self, extent: Extent, *, is_equal: bool) -> PartitionReport:
        """One partition's report. `is_equal`: nothing was found in it either."""
        by_start = self.ranges.get((extent.topic, extent.partition), {})
        ranges = tuple(self._range(start, by_start[start]) for start in sorted(by_start))
        source, target = (
            _side(ends, [by_site[site] for _, by_site in sorted(by_start.items()) if site in by_site])
            for site, ends in ((self.source_site, extent.source), (self.target_site, extent.target))
        )
        return PartitionReport(
            topic=extent.topic,
            partition=extent.partition,
            source=source,
            target=target,
            is_equal=is_equal,
            ranges=ranges,
        )

    def _range(self, start: int, by_site: Mapping[str, RangeSum]) -> RangeReport:
        source, target = by_site.get(self.source_site), by_site.get(self.target_site)
        return RangeReport(
            start_offset=start,
            source_records=0 if source is None else source.records,
            target_records=0 if target is None else target.records,
            source_digest=_digest(source),
            target_digest=_digest(target),
        )


def _digest(one: RangeSum | None) -> str:
    return "" if one is None else one.digest


def _side(ends: LogEnds, held: Sequence[RangeSum]) -> Side:
    return Side(
        start_offset=ends.start_offset,
        end_offset=ends.end_offset,
        records=sum(one.records for one in held),
        bytes=sum(one.bytes for one in held),
        batches=sum(one.batches for one in held),
        digest=digest_of_digests(held),
    )


def digest_of_digests(held: Collection[RangeSum]) -> str:
    """One digest for a whole partition: of its ranges' starts and digests in order; empty when
    nothing is held.
    """
    if not held:
        return ""
    text = ",".join(f"{one.range_start}:{one.digest}" for one in sorted(held, key=lambda one: one.range_start))
    return sha256(text.encode()).hexdigest()[:16]
