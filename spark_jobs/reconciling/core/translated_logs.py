"""One partition of a translate link at its two ends, as data: its records, the link's offset map,
and what a comparison finds. Pure.

Findings name offsets of the source, except `extra` and `duplicate`, which name offsets of the
target.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from spark_jobs.reconciling.core.findings import (
    Explanation,
    ExplanationKind,
    Finding,
    FindingKind,
    OffsetRange,
    merged,
)

SOURCE: Final = "source"
TARGET: Final = "target"
NO_BOUND: Final = 1 << 63
RANGES_MAX: Final = 10_000
"""Ranges of one kind of finding that are listed of a partition."""


class MirroredRun(NamedTuple):
    """`record_count` records at consecutive offsets of both ends, as the link has noted."""

    source_offset: int
    target_offset: int
    record_count: int


class PlacedRecord(NamedTuple):
    """A record, or a marker of a transaction, at one end. `content` is a hash of key, value and
    headers; `timestamp_ms` is None where the broker's clock set it, which differs by end.
    """

    offset: int
    key: bytes | None
    content: bytes
    timestamp_ms: int | None = None
    producer_id: int = -1
    is_marker: bool = False


class BatchSpan(NamedTuple):
    """What the header of a batch says about transactions. `is_commit` is read from the one record
    of a control batch.
    """

    first_offset: int
    last_offset: int
    producer_id: int
    is_transactional: bool
    is_marker: bool
    is_commit: bool


class OffsetSet:
    """Offsets as ranges, both ends included; `in` takes logarithmic time."""

    def __init__(self, ranges: Iterable[OffsetRange] = ()) -> None:
        self._ranges = merged(ranges)
        self._firsts = [one.first for one in self._ranges]

    def __contains__(self, offset: int) -> bool:
        index = bisect_right(self._firsts, offset) - 1
        return index >= 0 and offset <= self._ranges[index].last


class Transactions(NamedTuple):
    """Offsets of the transactions of a log that do not end with a commit, and of those that were
    open at its end when the comparison began.
    """

    uncommitted: OffsetSet
    open_at_survey: OffsetSet


def transactions_of(batches: Iterable[BatchSpan], surveyed_until: int) -> Transactions:
    """What the batches say, up to the last of them; `surveyed_until` is the end of the log when the
    comparison began. Holds the batches of open and aborted transactions, no others.
    """
    open_ranges: dict[int, list[OffsetRange]] = defaultdict(list)
    found: list[OffsetRange] = []
    open_at_survey: list[OffsetRange] | None = None
    for one in batches:
        if open_at_survey is None and one.first_offset >= surveyed_until:
            open_at_survey = [each for ranges in open_ranges.values() for each in ranges]
        if one.is_marker:
            ended = open_ranges.pop(one.producer_id, [])
            found += [] if one.is_commit else ended
        elif one.is_transactional:
            mine = open_ranges[one.producer_id]
            first = one.first_offset
            if mine and mine[-1].last + 1 == first:
                first = mine.pop().first
            mine.append(OffsetRange(first=first, last=one.last_offset))
    open_at_end = [each for ranges in open_ranges.values() for each in ranges]
    return Transactions(OffsetSet([*found, *open_at_end]), OffsetSet(open_at_survey or ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslatedLog:
    """One partition: what is known of both ends before their records are read, and the runs of its
    map, oldest first. `own_producers` are the ids under which the link writes. Records at
    `source_until` or `target_until` or later are not judged; they are read because a transaction or
    a copy may reach over that bound. Nor are records of transactions that were open when the
    comparison began: they may be mirrored meanwhile or not.
    """

    topic: str
    partition: int
    runs: Sequence[MirroredRun] = ()
    source_start: int = 0
    target_start: int = 0
    source_uncommitted: OffsetSet = field(default_factory=OffsetSet)
    source_open_at_survey: OffsetSet = field(default_factory=OffsetSet)
    target_uncommitted: OffsetSet = field(default_factory=OffsetSet)
    has_times: bool = True
    """False if a broker's clock has set timestamps at one of the ends."""
    own_producers: Collection[int] = ()
    is_compacted: bool = False
    source_until: int = NO_BOUND
    target_until: int = NO_BOUND

    def is_judged(self, offset: int) -> bool:
        """True if the target must have the record at this offset of the source."""
        return offset < self.source_until and offset not in self.source_open_at_survey


class OffsetMap:
    """The runs of a link, looked up from both ends."""

    def __init__(self, runs: Sequence[MirroredRun]) -> None:
        self._runs = runs
        self._starts = [run.source_offset for run in runs]
        self._back = sorted(MirroredRun(run.target_offset, run.source_offset, run.record_count) for run in runs)
        self._back_starts = [run.source_offset for run in self._back]
        self.noted_until = runs[-1].source_offset + runs[-1].record_count if runs else 0
        """The first offset of the source that the map does not reach."""

    def at_target(self, offset: int) -> int | None:
        """The target offset that the map gives for a source offset; None if it has no entry."""
        return _mapped(self._runs, self._starts, offset)

    def at_source(self, offset: int) -> int | None:
        """The source offset that the map gives for a target offset; None if it has no entry."""
        return _mapped(self._back, self._back_starts, offset)

    def next_at_target(self, offset: int) -> int | None:
        """The target offset of this source offset, or of the next one that has an entry; None after
        the last entry.
        """
        index = bisect_right(self._starts, offset) - 1
        if index < 0 or offset >= self._starts[index] + self._runs[index].record_count:
            index += 1
        if index >= len(self._runs):
            return None
        return self._runs[index].target_offset + max(offset - self._starts[index], 0)


def _mapped(runs: Sequence[MirroredRun], starts: Sequence[int], offset: int) -> int | None:
    index = bisect_right(starts, offset) - 1
    if index < 0 or offset >= starts[index] + runs[index].record_count:
        return None
    return runs[index].target_offset + offset - starts[index]


@dataclass(slots=True)
class _Reason:
    """Offsets that one sentence explains."""

    first: int
    last: int
    count: int = 0


@dataclass(slots=True)
class TranslatedJudgement:
    """Offsets by what they mean: findings are faults, explanations are not. Its size grows with the
    number of ranges, up to `RANGES_MAX` of a kind.
    """

    faults: dict[tuple[FindingKind, str], list[list[int]]] = field(default_factory=lambda: defaultdict(list))
    reasons: dict[tuple[ExplanationKind, str, str], _Reason] = field(default_factory=dict)
    has_more: bool = False
    """True if there are faults beyond the ranges that are listed."""

    def find(self, kind: FindingKind, offset: int, detail: str) -> None:
        """Note an offset of a fault."""
        ranges = self.faults[kind, detail]
        if ranges and ranges[-1][1] + 1 == offset:
            ranges[-1][1] = offset
        elif len(ranges) < RANGES_MAX:
            ranges.append([offset, offset])
        else:
            self.has_more = True

    def explain(self, kind: ExplanationKind, end: str, offset: int, detail: str) -> None:
        """Note an offset of one end with a reason."""
        reason = self.reasons.get((kind, end, detail))
        if reason is None:
            reason = self.reasons[kind, end, detail] = _Reason(offset, offset)
        reason.first, reason.last = min(reason.first, offset), max(reason.last, offset)
        reason.count += 1

    def findings(self, topic: str, partition: int) -> list[Finding]:
        """The faults as ranges, by offset."""
        found = [
            Finding(
                topic=topic,
                partition=partition,
                kind=kind,
                first_offset=one.first,
                last_offset=one.last,
                detail=detail,
            )
            for (kind, detail), ranges in self.faults.items()
            for one in merged(OffsetRange(first=first, last=last) for first, last in ranges)
        ]
        return sorted(found, key=lambda one: (one.first_offset, one.kind))

    def explanations(self, topic: str, partition: int, sites: Mapping[str, str]) -> list[Explanation]:
        """A line for each reason and end; `sites` are the names of the ends."""
        return [
            Explanation(
                topic=topic,
                partition=partition,
                kind=kind,
                first_offset=reason.first,
                last_offset=reason.last,
                site=sites[end],
                detail=f"{reason.count} offsets: {detail}",
            )
            for (kind, end, detail), reason in sorted(self.reasons.items(), key=lambda one: one[0])
        ]
