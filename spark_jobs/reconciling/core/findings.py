"""The findings of a comparison, and the interval arithmetic that turns differing batches into exact
offset ranges.

Spark returns runs of batches that only one site has or that disagree; batch boundaries may differ
between the sites, so runs that overlap are resolved here into disjoint ranges. Offsets are
inclusive at both ends. Pure.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace


class FindingKind(enum.StrEnum):
    """The kind of a difference, seen from the source."""

    MISSING = "missing"
    EXTRA = "extra"
    DIVERGED = "diverged"
    DUPLICATE = "duplicate"
    CORRUPT = "corrupt"


class ExplanationKind(enum.StrEnum):
    """The reason why a range may differ without a fault."""

    EXPIRED = "expired"
    COMPACTED = "compacted"
    REPEATED = "repeated"
    REBATCHED = "rebatched"
    # Of translate links.
    MARKER = "marker"
    UNCOMMITTED = "uncommitted"
    RETURNED = "returned"
    LOCAL = "local"


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class OffsetRange:
    """Offsets `first` to `last` of one partition, both included."""

    first: int
    last: int

    def __post_init__(self) -> None:
        if self.last < self.first:
            raise ValueError(f"an offset range ends at {self.last} before it begins at {self.first}")

    @property
    def offsets(self) -> int:
        """The number of offsets that it spans (an upper bound of the records in it)."""
        return self.last - self.first + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A range that differs; `site` is where the fault lies when that is known, else empty."""

    topic: str
    partition: int
    kind: FindingKind
    first_offset: int
    last_offset: int
    site: str = ""
    detail: str = ""

    @property
    def offsets(self) -> int:
        """The number of offsets that it spans."""
        return self.last_offset - self.first_offset + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """A range that differs for a legitimate reason."""

    topic: str
    partition: int
    kind: ExplanationKind
    first_offset: int
    last_offset: int
    site: str
    detail: str


def merged(ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
    """The same offsets as disjoint ranges in order, touching ones joined."""
    result: list[OffsetRange] = []
    for current in sorted(ranges):
        if result and current.first <= result[-1].last + 1:
            last = max(result[-1].last, current.last)
            result[-1] = OffsetRange(first=result[-1].first, last=last)
        else:
            result.append(current)
    return result


def intersection(left: Iterable[OffsetRange], right: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Offsets in both, as disjoint ranges in order."""
    ours, theirs = merged(left), merged(right)
    result: list[OffsetRange] = []
    i = j = 0
    while i < len(ours) and j < len(theirs):
        first, last = max(ours[i].first, theirs[j].first), min(ours[i].last, theirs[j].last)
        if first <= last:
            result.append(OffsetRange(first=first, last=last))
        if ours[i].last < theirs[j].last:
            i += 1
        else:
            j += 1
    return result


def difference(left: Iterable[OffsetRange], right: Iterable[OffsetRange]) -> list[OffsetRange]:
    """Offsets in `left` and not in `right`, as disjoint ranges in order."""
    result: list[OffsetRange] = []
    holes = merged(right)
    for current in merged(left):
        first = current.first
        for hole in holes:
            if hole.last < first or hole.first > current.last:
                continue
            if hole.first > first:
                result.append(OffsetRange(first=first, last=hole.first - 1))
            first = hole.last + 1
        if first <= current.last:
            result.append(OffsetRange(first=first, last=current.last))
    return result


def classify(
    *, topic: str, partition: int, only_source: Sequence[OffsetRange], only_target: Sequence[OffsetRange]
) -> list[Finding]:
    """Disjoint findings: records that both hold differently are diverged, the others are missing or
    extra.
    """
    both = intersection(only_source, only_target)
    kinds = (
        (FindingKind.MISSING, difference(only_source, both)),
        (FindingKind.EXTRA, difference(only_target, both)),
        (FindingKind.DIVERGED, both),
    )
    findings = [
        Finding(topic=topic, partition=partition, kind=kind, first_offset=found.first, last_offset=found.last)
        for kind, ranges in kinds
        for found in ranges
    ]
    return sorted(findings, key=lambda finding: finding.first_offset)


def without_expired(found: Finding, *, start_offset: int, site: str) -> tuple[list[Finding], list[Explanation]]:
    """The finding without the offsets below `start_offset`, at which the log of `site` now starts:
    the site may lack these.
    """
    if found.first_offset >= start_offset:
        return [found], []
    reason = Explanation(
        topic=found.topic,
        partition=found.partition,
        kind=ExplanationKind.EXPIRED,
        first_offset=found.first_offset,
        last_offset=min(found.last_offset, start_offset - 1),
        site=site,
        detail=f"the log at {site} has meanwhile expired up to offset {start_offset}",
    )
    if found.last_offset < start_offset:
        return [], [reason]
    return [replace(found, first_offset=start_offset)], [reason]
