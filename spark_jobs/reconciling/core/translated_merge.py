"""Compares one partition of a translate link at its two ends: by the link's offset map, and by
content in order where the map has no entry. Pure: the callers' functions read the records.

Under the map a record at a source offset has one place at the target, and both must hold the same
record. Records that the map leaves out are explained if a reason is known: markers, transactions
that are not committed, records that came from the target, the target's own clients. Everything else
is a finding.

Both ends are read side by side, chunk by chunk, so that a log may be larger than memory: the end
that is behind by the map is read next. Without a map the target is read `AHEAD_RECORDS` before the
source. Only records without an equal one are held, by `WaitingRecords`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Final

from spark_jobs.reconciling.core.findings import ExplanationKind, FindingKind
from spark_jobs.reconciling.core.translated_logs import (
    NO_BOUND,
    SOURCE,
    TARGET,
    OffsetMap,
    PlacedRecord,
    TranslatedJudgement,
    TranslatedLog,
)
from spark_jobs.reconciling.core.waiting_records import MemoryRecords, WaitingRecord, WaitingRecords

CHUNK_RECORDS: Final = 2_000
AHEAD_RECORDS: Final = 20_000
Records = Callable[[], Iterable[PlacedRecord]]
"""Reads one end from its start, in log order, each offset once."""


def judged(
    log: TranslatedLog, source: Records, target: Records, waiting: Callable[[], WaitingRecords] = MemoryRecords
) -> TranslatedJudgement:
    """Compare both ends. The source is read once more if records are left over at the end."""
    return _Merge(log, waiting).run(source, target)


class _Merge:
    """One comparison: `run` once."""

    def __init__(self, log: TranslatedLog, waiting: Callable[[], WaitingRecords]) -> None:
        self._log = log
        self._found = TranslatedJudgement()
        self._map = OffsetMap(log.runs)
        self._source_offset, self._target_offset = log.source_start, log.target_start
        """The next offset of each end; `NO_BOUND` when it is read to its end."""
        self._without_copy: dict[int, PlacedRecord] = {}
        """Records of the source by the place at the target that is not read yet."""
        self._copies: dict[int, PlacedRecord] = {}
        """Records of the target, by offset, whose source offset is not read yet."""
        self._source_rest, self._target_rest = waiting(), waiting()
        self._lost = waiting()
        """Records of a compacted source that the target lacks."""
        self._doubtful = waiting()
        """Records of the target that came from nowhere."""
        self._last_source = self._last_place = -1

    def run(self, source: Records, target: Records) -> TranslatedJudgement:
        """Read and judge everything."""
        records = {SOURCE: iter(source()), TARGET: iter(target())}
        while (end := self._wanted()) is not None:
            chunk = list(islice(records[end], CHUNK_RECORDS))
            if end is SOURCE:
                self._take_source(chunk)
            else:
                self._take_target(chunk)
        self._judge_left_over(source)
        return self._found

    def _wanted(self) -> str | None:
        """The end to be read next."""
        if self._target_offset == NO_BOUND:
            return SOURCE if self._source_offset < NO_BOUND else None
        if self._source_offset == NO_BOUND:
            return TARGET
        place = self._map.next_at_target(self._source_offset)
        if place is not None:
            return TARGET if self._target_offset <= place else SOURCE
        ahead, behind = len(self._target_rest), len(self._source_rest)
        return TARGET if ahead < AHEAD_RECORDS or behind > ahead else SOURCE

    def _take_source(self, chunk: list[PlacedRecord]) -> None:
        for record in chunk:
            self._judge_source(record)
        self._source_offset = chunk[-1].offset + 1 if chunk else NO_BOUND
        for place, copy in list(self._copies.items()):
            origin = self._map.at_source(place)
            if origin is None or origin < self._source_offset:
                del self._copies[place]
                self._judge_unmapped_copy(copy)

    def _judge_source(self, record: PlacedRecord) -> None:
        log, found, offset = self._log, self._found, record.offset
        place = self._map.at_target(offset)
        is_uncommitted = offset in log.source_uncommitted
        if offset < log.source_until and record.is_marker:
            found.explain(ExplanationKind.MARKER, SOURCE, offset, "markers of transactions are not mirrored")
        elif offset < log.source_until and is_uncommitted:
            found.explain(ExplanationKind.UNCOMMITTED, SOURCE, offset, "their transactions are not committed")
        elif place is not None:
            self._judge_mapped(record, place)
        elif not record.is_marker and not is_uncommitted:
            self._match_source(record)

    def _judge_mapped(self, record: PlacedRecord, place: int) -> None:
        copy = self._copies.pop(place, None)
        if copy is not None:
            self._judge_copy(record, copy)
        elif place < self._target_offset:
            self._judge_lost(record, place)
        else:
            self._without_copy[place] = record

    def _judge_copy(self, record: PlacedRecord, copy: PlacedRecord) -> None:
        if self._log.is_judged(record.offset) and not _is_same(record, copy):
            self._found.find(
                FindingKind.DIVERGED, record.offset, "the target has another record where the link's offset map puts it"
            )

    def _judge_lost(self, record: PlacedRecord, place: int) -> None:
        if not self._log.is_judged(record.offset):
            return
        if place < self._log.target_start:
            self._found.explain(ExplanationKind.EXPIRED, TARGET, place, "the log of the target starts later")
        elif self._log.is_compacted and record.key is not None:
            self._lost.put(self._waiting(record, place))
        else:
            self._find_lost(record.offset, place)

    def _find_lost(self, offset: int, place: int) -> None:
        detail = (
            "the target has no record of this content"
            if place < 0
            else "the target lacks them where the link's offset map puts them"
        )
        self._found.find(FindingKind.MISSING, offset, detail)

    def _take_target(self, chunk: list[PlacedRecord]) -> None:
        for copy in chunk:
            record = self._without_copy.pop(copy.offset, None)
            origin = self._map.at_source(copy.offset)
            if record is not None:
                self._judge_copy(record, copy)
            elif origin is not None and origin >= self._source_offset:
                self._copies[copy.offset] = copy
            else:
                self._judge_unmapped_copy(copy)
        self._target_offset = chunk[-1].offset + 1 if chunk else NO_BOUND
        for place, record in list(self._without_copy.items()):
            if place < self._target_offset:
                del self._without_copy[place]
                self._judge_lost(record, place)

    def _judge_unmapped_copy(self, copy: PlacedRecord) -> None:
        log, found, offset = self._log, self._found, copy.offset
        origin = self._map.at_source(offset)
        is_uncommitted = offset in log.target_uncommitted
        if offset >= log.target_until and (copy.is_marker or is_uncommitted):
            return
        if copy.is_marker:
            found.explain(ExplanationKind.MARKER, TARGET, offset, "markers of transactions at the target")
        elif is_uncommitted:
            found.explain(ExplanationKind.UNCOMMITTED, TARGET, offset, "their transactions are not committed")
        elif origin is not None and origin < log.source_start:
            found.explain(ExplanationKind.EXPIRED, SOURCE, origin, "the log of the source starts later")
        elif origin is not None and log.is_compacted:
            found.explain(ExplanationKind.COMPACTED, SOURCE, origin, "the source has compacted them away")
        else:
            self._match_target(copy)

    def _match_source(self, record: PlacedRecord) -> None:
        """Match what the map leaves out, each record with the first equal one of the target."""
        waiting = self._waiting(record)
        equal = self._target_rest.take(waiting.content, waiting.timestamp_ms)
        if equal is not None:
            self._judge_matched(waiting.offset, equal.offset)
        elif self._target_offset == NO_BOUND and not self._copies:
            self._judge_unmatched(waiting)
        else:
            self._source_rest.put(waiting)

    def _match_target(self, copy: PlacedRecord) -> None:
        waiting = self._waiting(copy)
        equal = self._source_rest.take(waiting.content, waiting.timestamp_ms)
        if equal is not None:
            self._judge_matched(equal.offset, copy.offset)
        else:
            self._target_rest.put(waiting)

    def _judge_matched(self, offset: int, place: int) -> None:
        if not self._log.is_judged(offset):
            return
        if offset < self._map.noted_until:
            self._found.explain(ExplanationKind.RETURNED, SOURCE, offset, "they came from the target")
        elif place < self._last_place or offset < self._last_source:
            self._found.find(FindingKind.DIVERGED, offset, "the target has them in another order")
        else:
            self._last_source, self._last_place = offset, place

    def _judge_unmatched(self, record: WaitingRecord) -> None:
        if not self._log.is_judged(record.offset):
            return
        if self._log.is_compacted and record.key is not None:
            self._lost.put(record)
        else:
            self._find_lost(record.offset, record.place)

    def _judge_left_over(self, source: Records) -> None:
        """Judge what has no equal record at the other end, after another look at the source: which
        keys have newer records there, and which contents are there at all.
        """
        log, found = self._log, self._found
        for record, _, _ in self._source_rest.drain():
            self._judge_unmatched(record)
        for copy, _, _ in self._target_rest.drain():
            if copy.offset >= log.target_until:
                continue
            if log.runs and copy.producer_id not in log.own_producers:
                found.explain(ExplanationKind.LOCAL, TARGET, copy.offset, "other clients of the target wrote them")
            else:
                self._doubtful.put(copy)
        if len(self._lost) or len(self._doubtful):
            for one in source():
                self._lost.mark(one.content, one.key, one.offset)
                self._doubtful.mark(one.content, None, one.offset)
        for lost, _, is_superseded in self._lost.drain():
            if not is_superseded:
                self._find_lost(lost.offset, lost.place)
            elif lost.place < 0:
                found.explain(ExplanationKind.COMPACTED, TARGET, lost.offset, "a newer record of the key follows")
            else:
                detail = "a newer record of the key follows at the source"
                found.explain(ExplanationKind.COMPACTED, TARGET, lost.place, detail)
        for copy, is_known, _ in self._doubtful.drain():
            if is_known:
                found.find(FindingKind.DUPLICATE, copy.offset, "offsets of the target; the record is there already")
            else:
                found.find(FindingKind.EXTRA, copy.offset, "offsets of the target; the source has no such record")

    def _waiting(self, record: PlacedRecord, place: int = -1) -> WaitingRecord:
        time_ms = record.timestamp_ms if self._log.has_times and record.timestamp_ms is not None else 0
        # Only a compacted topic's keys are looked up again.
        key = record.key if self._log.is_compacted else None
        return WaitingRecord(record.offset, record.content, time_ms, key, record.producer_id, place=place)


def _is_same(record: PlacedRecord, copy: PlacedRecord) -> bool:
    if copy.is_marker or record.content != copy.content:
        return False
    return None in (record.timestamp_ms, copy.timestamp_ms) or record.timestamp_ms == copy.timestamp_ms
