"""Compares one partition of a translate link at its two ends: by the link's offset map, and by
content in order where the map has no entry. Pure.

Under the map a record at a source offset has one place at the target, and both must hold the same
record. Records that the map leaves out are explained if a reason is known: markers, transactions
that are not committed, records that came from the target, the target's own clients. Everything else
is a finding. Findings name offsets of the source, except `extra` and `duplicate`, which name
offsets of the target.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
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
    is_transactional: bool = False
    is_marker: bool = False
    is_commit: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslatedLog:
    """One partition: what both ends hold, in log order, and the runs of its map, oldest first.
    `own_producers` are the ids under which the link writes. Records at `source_until` or
    `target_until` or later are not judged; they are given because a transaction or a copy may reach
    over that bound.
    """

    topic: str
    partition: int
    source: Sequence[PlacedRecord]
    target: Sequence[PlacedRecord]
    runs: Sequence[MirroredRun] = ()
    source_start: int = 0
    target_start: int = 0
    own_producers: Collection[int] = ()
    is_compacted: bool = False
    source_until: int = NO_BOUND
    target_until: int = NO_BOUND


@dataclass(slots=True)
class TranslatedJudgement:
    """Offsets by what they mean: findings are faults, explanations are not."""

    faults: dict[tuple[FindingKind, str], list[int]] = field(default_factory=lambda: defaultdict(list))
    reasons: dict[tuple[ExplanationKind, str, str], list[int]] = field(default_factory=lambda: defaultdict(list))

    def find(self, kind: FindingKind, offset: int, detail: str) -> None:
        """Note an offset of a fault."""
        self.faults[kind, detail].append(offset)

    def explain(self, kind: ExplanationKind, end: str, offset: int, detail: str) -> None:
        """Note an offset of one end with a reason."""
        self.reasons[kind, end, detail].append(offset)

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
            for (kind, detail), offsets in self.faults.items()
            for one in _ranges(offsets)
        ]
        return sorted(found, key=lambda one: (one.first_offset, one.kind))

    def explanations(self, topic: str, partition: int, sites: Mapping[str, str]) -> list[Explanation]:
        """A line for each reason and end; `sites` are the names of the ends."""
        return [
            Explanation(
                topic=topic,
                partition=partition,
                kind=kind,
                first_offset=min(offsets),
                last_offset=max(offsets),
                site=sites[end],
                detail=f"{len(offsets)} offsets: {detail}",
            )
            for (kind, end, detail), offsets in sorted(self.reasons.items())
        ]


def _ranges(offsets: Iterable[int]) -> list[OffsetRange]:
    return merged(OffsetRange(first=offset, last=offset) for offset in offsets)


def judged(log: TranslatedLog) -> TranslatedJudgement:
    """Compare both ends."""
    found = TranslatedJudgement()
    rest_of_source, mapped = _judge_by_map(log, found)
    rest_of_target = _unmapped_target(log, found, mapped)
    _judge_by_content(log, found, rest_of_source, rest_of_target)
    return found


def _judge_by_map(log: TranslatedLog, found: TranslatedJudgement) -> tuple[list[PlacedRecord], set[int]]:
    """The records of the source that the map leaves out, and the target offsets that it gives to
    the others.
    """
    copies = {one.offset: one for one in log.target}
    newest = _newest(log)
    uncommitted = _uncommitted(log.source)
    rest: list[PlacedRecord] = []
    mapped: set[int] = set()
    starts = [run.source_offset for run in log.runs]
    for record in log.source:
        place = _at_target(log.runs, starts, record.offset)
        if record.offset >= log.source_until:
            if place is not None:
                mapped.add(place)
            elif not record.is_marker and record.offset not in uncommitted:
                rest.append(record)
        elif record.is_marker:
            found.explain(ExplanationKind.MARKER, SOURCE, record.offset, "markers of transactions are not mirrored")
        elif record.offset in uncommitted:
            found.explain(ExplanationKind.UNCOMMITTED, SOURCE, record.offset, "their transactions are not committed")
        elif place is None:
            rest.append(record)
        else:
            mapped.add(place)
            _judge_copy(log, found, record, copy=copies.get(place), place=place, newest=newest)
    return rest, mapped


def _at_target(runs: Sequence[MirroredRun], starts: Sequence[int], offset: int) -> int | None:
    """Where the map puts a source offset; None if the map has no entry."""
    index = bisect_right(starts, offset) - 1
    if index < 0 or offset >= starts[index] + runs[index].record_count:
        return None
    return runs[index].target_offset + offset - starts[index]


def _judge_copy(
    log: TranslatedLog,
    found: TranslatedJudgement,
    record: PlacedRecord,
    *,
    copy: PlacedRecord | None,
    place: int,
    newest: Mapping[bytes, int],
) -> None:
    if copy is not None:
        if not _is_same(record, copy):
            found.find(
                FindingKind.DIVERGED, record.offset, "the target has another record where the link's offset map puts it"
            )
    elif place < log.target_start:
        found.explain(ExplanationKind.EXPIRED, TARGET, place, "the log of the target starts later")
    elif record.key is not None and newest.get(record.key, -1) > record.offset:
        found.explain(ExplanationKind.COMPACTED, TARGET, place, "a newer record of the key follows at the source")
    else:
        found.find(FindingKind.MISSING, record.offset, "the target lacks them where the link's offset map puts them")


def _newest(log: TranslatedLog) -> dict[bytes, int]:
    """The last offset of each key at the source; of compacted topics only."""
    return {one.key: one.offset for one in log.source if one.key is not None} if log.is_compacted else {}


def _is_same(record: PlacedRecord, copy: PlacedRecord) -> bool:
    if copy.is_marker or record.content != copy.content:
        return False
    return None in (record.timestamp_ms, copy.timestamp_ms) or record.timestamp_ms == copy.timestamp_ms


def _uncommitted(records: Sequence[PlacedRecord]) -> set[int]:
    """Offsets of transactions that end with an abort, or that do not end within the records."""
    open_offsets: dict[int, list[int]] = defaultdict(list)
    found: set[int] = set()
    for one in records:
        if one.is_marker:
            ended = open_offsets.pop(one.producer_id, [])
            found.update(() if one.is_commit else ended)
        elif one.is_transactional:
            open_offsets[one.producer_id].append(one.offset)
    return found.union(*open_offsets.values())


def _unmapped_target(log: TranslatedLog, found: TranslatedJudgement, mapped: Collection[int]) -> list[PlacedRecord]:
    """The records of the target to which the map gives no record of the source."""
    uncommitted = _uncommitted(log.target)
    by_target = sorted(MirroredRun(run.target_offset, run.source_offset, run.record_count) for run in log.runs)
    starts = [run.source_offset for run in by_target]
    rest: list[PlacedRecord] = []
    for copy in log.target:
        if copy.offset in mapped:
            continue
        origin = _at_target(by_target, starts, copy.offset)
        if copy.offset >= log.target_until and (copy.is_marker or copy.offset in uncommitted):
            continue
        if copy.is_marker:
            found.explain(ExplanationKind.MARKER, TARGET, copy.offset, "markers of transactions at the target")
        elif copy.offset in uncommitted:
            found.explain(ExplanationKind.UNCOMMITTED, TARGET, copy.offset, "their transactions are not committed")
        elif origin is not None and origin < log.source_start:
            found.explain(ExplanationKind.EXPIRED, SOURCE, origin, "the log of the source starts later")
        elif origin is not None and log.is_compacted:
            found.explain(ExplanationKind.COMPACTED, SOURCE, origin, "the source has compacted them away")
        else:
            rest.append(copy)
    return rest


def _judge_by_content(
    log: TranslatedLog, found: TranslatedJudgement, source: Sequence[PlacedRecord], target: Sequence[PlacedRecord]
) -> None:
    """Match what the map leaves out, each record with the first equal one of the target."""
    noted_until = log.runs[-1].source_offset + log.runs[-1].record_count if log.runs else 0
    has_times = all(one.timestamp_ms is not None for one in (*source, *target))
    waiting: dict[tuple[bytes, int | None], deque[PlacedRecord]] = defaultdict(deque)
    for copy in target:
        waiting[copy.content, copy.timestamp_ms if has_times else None].append(copy)
    newest = _newest(log)
    last_place = -1
    for record in source:
        equal = waiting[record.content, record.timestamp_ms if has_times else None]
        if record.offset >= log.source_until:
            if equal:
                equal.popleft()
        elif not equal:
            if record.key is not None and newest.get(record.key, -1) > record.offset:
                found.explain(ExplanationKind.COMPACTED, TARGET, record.offset, "a newer record of the key follows")
            else:
                found.find(FindingKind.MISSING, record.offset, "the target has no record of this content")
        else:
            place = equal.popleft().offset
            if record.offset < noted_until:
                found.explain(ExplanationKind.RETURNED, SOURCE, record.offset, "they came from the target")
            elif place < last_place:
                found.find(FindingKind.DIVERGED, record.offset, "the target has them in another order")
            else:
                last_place = place
    contents = {one.content for one in log.source}
    left_over = (one for queue in waiting.values() for one in queue if one.offset < log.target_until)
    for left in sorted(left_over):
        if log.runs and left.producer_id not in log.own_producers:
            found.explain(ExplanationKind.LOCAL, TARGET, left.offset, "other clients of the target wrote them")
        elif left.content in contents:
            found.find(FindingKind.DUPLICATE, left.offset, "offsets of the target; the record is there already")
        else:
            found.find(FindingKind.EXTRA, left.offset, "offsets of the target; the source has no such record")
