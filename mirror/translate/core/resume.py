"""Finds the position at which a translate link resumes after a crash: the stored position may lag
behind the target's log, and the log is right.

The batches that the mirror wrote after the stored position are in the target's log under its
producer ids. They are the source's next batches, in order, under the sequences that follow
(`core/translation.py`): so the two logs are compared from the stored position on, until every batch
of this link in the target's tail has a source batch. A contradiction is a `HistoryMismatch`, never
a guess.

The tail may lack the copy of a source batch and have the copy of a later one. Where compaction or
expiry removed the copy, its offsets are absent from the target's log, and the batch is skipped.
Where no offsets are absent, the target never had the batch: a broker that has forgotten a producer
accepts any sequence, so it may append a late request of a killed mirror after it has refused an
earlier one. Then the link continues at the missing batch, and the batches behind it are written
twice.

A batch in the tail may have the records of several batches of the source (`core/merging.py`).
Sequences count records, so it stands for the ones that follow each other there, and what is left of
it after each of them must be the next one.

That is certain only while each offset of the source from the stored position on has its record, or
is in a skipped batch: if records are missing, a batch may be counted as the previous one. In that
case `SourceIsThinned` is raised, and `core/thinned_source.py` is used.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable

from msgspec import Struct

from mirror.translate.core.renumbering import SEQUENCE_MASK, next_sequence
from mirror.translate.core.translation import Position, Translation
from wire.batches.record_batch import BatchHeader, Buffer, iterate_headers

_HALF = 1 << 30


class HistoryMismatch(Exception):
    """The target's tail is not the result of the source's log and the stored position."""


class SourceIsThinned(Exception):
    """The source lacks records in the range from which the tail was mirrored."""


def is_before(position: Position, header: BatchHeader) -> bool:
    """True if one of this link's batches is below the position's sequence."""
    epoch, sequence = position.sequences.get(header.producer_id, (0, 0))
    behind = next_sequence(sequence, -header.base_sequence)
    return header.producer_epoch < epoch or (header.producer_epoch == epoch and 0 < behind < _HALF)


def end_of_copy(position: Position, ours: Iterable[BatchHeader]) -> int | None:
    """The offset at which the target's log stops being the stored one: the first of this link's
    batches that is below the position by its offset and not by its sequence. A log that begins anew
    accepts a batch from the middle, because its broker knows no producer. None if there is no such
    batch.
    """
    return min(
        (one.base_offset for one in ours if one.base_offset < position.target_next and not is_before(position, one)),
        default=None,
    )


class SequenceRanges:
    """Ranges of one producer's sequences, relative to the first one that was seen."""

    def __init__(self, origin: int) -> None:
        self._origin = origin
        # Ordered, without overlaps: begin and end of each.
        self._ranges: list[tuple[int, int]] = []

    def add(self, sequence: int, count: int) -> list[tuple[int, int]]:
        """Add a range; return the parts of it that are new: the number of sequences before each
        one, and its length.
        """
        begin = next_sequence(sequence, -self._origin)
        if begin >= _HALF:
            begin -= SEQUENCE_MASK + 1  # it is from before the first one
        end, new = begin + count, list[tuple[int, int]]()
        first = bisect_left(self._ranges, begin, key=lambda one: one[1])
        last, at = first, begin
        while last < len(self._ranges) and self._ranges[last][0] < end:
            known_begin, known_end = self._ranges[last]
            if at < known_begin:
                new.append((at - begin, known_begin - at))
            at = max(at, known_end)
            last += 1
        if at < end:
            new.append((at - begin, end - at))
        joined = self._ranges[first:last]
        whole = (min(begin, joined[0][0]), max(end, joined[-1][1])) if joined else (begin, end)
        self._ranges[first:last] = [whole]
        return new


class _Found(Struct, frozen=True):
    base_offset: int
    count: int
    # Offsets that the target's log lacks between the stored position and this batch.
    absent_before: int

    def after(self, count: int) -> _Found:
        """What follows its first `count` records."""
        return _Found(self.base_offset + count, self.count - count, self.absent_before)

    def first(self, count: int) -> _Found:
        """Its first `count` records."""
        return _Found(self.base_offset, count, self.absent_before)


class _Before(Struct, frozen=True):
    """The comparison before a batch."""

    position: Position
    run_count: int
    copied_records: int


class TailMatch:
    """The comparison of one partition: call `see_target` for the target's tail, then `see_source`
    until `is_complete`.
    """

    def __init__(self, translation: Translation, *, producer_ids: Collection[int]) -> None:
        translation.rest()
        self._translation = translation
        before = translation.position
        # The translation does not change before `finish`: an interrupted match leaves it unchanged.
        self._position = Position(before.source_next, before.source_epoch, before.target_next, dict(before.sequences))
        self._runs: list[tuple[int, int, int]] = []
        self._producer_ids = producer_ids
        self._tail: dict[tuple[int, int, int], _Found] = {}
        # The sequences of each producer and epoch that are in the tail.
        self._seen: dict[tuple[int, int], SequenceRanges] = {}
        self._target_end = translation.position.target_next
        self._absent_offsets = 0
        # Records of the source that the tail lacks, and the state before the first of them since
        # the last batch that was found.
        self._lacking_records = 0
        self._before_lacking: _Before | None = None
        # The first source offset of a batch that the target never had; None if there is no such
        # batch.
        self.never_written: int | None = None
        # Records of the source that are in the tail, or were there before compaction.
        self._copied_records = 0
        self.matched_batches = 0

    @property
    def is_complete(self) -> bool:
        """True if every batch of this link in the tail has its source batch."""
        return not self._tail

    def see_target(self, records: Buffer) -> None:
        """Batches of the target's log at or after the stored position."""
        position = self._position
        for _, header in iterate_headers(records, may_end_in_partial=True):
            if header.next_offset <= position.target_next:
                continue
            self._absent_offsets += max(0, header.base_offset - self._target_end)
            self._target_end = max(self._target_end, header.next_offset)
            if header.producer_id in self._producer_ids and header.base_sequence >= 0 and not header.is_control:
                self._see_ours(header)

    def _see_ours(self, header: BatchHeader) -> None:
        found = _Found(header.base_offset, header.last_offset_delta + 1, self._absent_offsets)
        sequence = header.base_sequence
        if is_before(self._position, header):
            # The batch was already processed, and this part of the log is read again; or the target
            # had forgotten the producer, and the batch begins with records that it had already.
            behind = next_sequence(self._position.stamp(header.producer_id).sequence, -sequence)
            if header.producer_epoch < self._position.stamp(header.producer_id).producer_epoch or behind >= found.count:
                return
            found, sequence = found.after(behind), next_sequence(sequence, behind)
        # Records that occur twice, because the target had forgotten the producer, count at their
        # first offset, where a reader finds them.
        producer = (header.producer_id, header.producer_epoch)
        seen = self._seen.setdefault(producer, SequenceRanges(sequence))
        for skipped, count in seen.add(sequence, found.count):
            key = (*producer, next_sequence(sequence, skipped))
            self._tail[key] = found.after(skipped).first(count)

    def see_source(
        self, records: Buffer, *, skipped: Collection[int], producer_of: Callable[[BatchHeader], int]
    ) -> None:
        """The source's next batches. Raises HistoryMismatch if a batch cannot be the one in the
        tail; SourceIsThinned if that is not certain.
        """
        for _, header in iterate_headers(records, may_end_in_partial=True):
            if self.is_complete:
                return
            if header.next_offset <= self._position.source_next:
                continue
            is_skipped = header.base_offset in skipped
            is_whole = is_skipped or header.record_count == header.last_offset_delta + 1
            if header.base_offset > self._position.source_next or not is_whole:
                raise SourceIsThinned(f"between {self._position.source_next} and {header.next_offset}")
            if is_skipped or self._match(header, producer_of(header)):
                self._pass(header)

    def finish(self) -> None:
        """Finish after the target's log is known up to its end. HistoryMismatch if a record there
        has no source.

        Raises SourceIsThinned if the source had no batches at all.
        """
        if not self.is_complete:
            if self._position.source_next == self._translation.position.source_next:
                raise SourceIsThinned(f"from {self._position.source_next} on")
            producer_id, epoch, sequence = min(self._tail, key=lambda key: self._tail[key].base_offset)
            raise HistoryMismatch(
                f"the target holds a batch of this mirror at offset {self._tail[producer_id, epoch, sequence].base_offset} "
                f"(producer {producer_id}, sequence {sequence}) that the source does not have"
            )
        self._position.target_next = max(self._position.target_next, self._target_end)
        take_over(self._translation, self._position, self._runs, copied_records=self._copied_records)

    def _match(self, header: BatchHeader, producer_id: int) -> bool:
        """Look for a batch in the tail; False if an earlier one was never written there."""
        position = self._position
        stamp = position.stamp(producer_id)
        found = self._tail.pop((stamp.producer_id, stamp.producer_epoch, stamp.sequence), None)
        before = self._state() if found is None else None
        if found is None and self._has_newer_epoch(position, producer_id):
            stamp = position.stamp(producer_id)
            found = self._tail.pop((stamp.producer_id, stamp.producer_epoch, stamp.sequence), None)
        if found is None:
            self._lacking_records += header.record_count
            self._before_lacking = self._before_lacking or before
        elif self._before_lacking is not None and found.absent_before < self._lacking_records:
            self._return_to(self._before_lacking)
            return False
        else:
            self._before_lacking = None
            count = header.record_count
            if found.count < count:
                raise HistoryMismatch(
                    f"the target has {found.count} records at offset {found.base_offset} where the source has "
                    f"{count} at {header.base_offset}"
                )
            if found.count > count:
                key = (stamp.producer_id, stamp.producer_epoch, next_sequence(stamp.sequence, count))
                self._tail[key] = found.after(count)
            self._runs.append((header.base_offset, found.base_offset, count))
            position.target_next = found.base_offset + count
            self.matched_batches += 1
        self._copied_records += header.record_count
        after = next_sequence(stamp.sequence, header.record_count)
        position.sequences[producer_id] = (stamp.producer_epoch, after)
        return True

    def _state(self) -> _Before:
        position = self._position
        copy = Position(position.source_next, position.source_epoch, position.target_next, dict(position.sequences))
        return _Before(copy, len(self._runs), self._copied_records)

    def _return_to(self, before: _Before) -> None:
        """End the comparison at a batch that the target never had."""
        self._position = before.position
        self.never_written = before.position.source_next
        del self._runs[before.run_count :]
        self._copied_records = before.copied_records
        self._tail.clear()

    def _has_newer_epoch(self, position: Position, producer_id: int) -> bool:
        """True if a later epoch begins here in the tail; its sequences begin anew."""
        epoch, _ = position.sequences.get(producer_id, (0, 0))
        old = [key for key in self._tail if key[0] == producer_id and key[1] == epoch]
        later = sorted(key[1] for key in self._tail if key[0] == producer_id and key[1] > epoch and key[2] == 0)
        if old or not later:
            return False
        position.sequences[producer_id] = (later[0], 0)
        return True

    def _pass(self, header: BatchHeader) -> None:
        position = self._position
        position.source_next = header.next_offset
        position.source_epoch = header.partition_leader_epoch


def take_over(
    translation: Translation, position: Position, runs: Iterable[tuple[int, int, int]], *, copied_records: int
) -> None:
    """The tail is known: the translation continues at `position`, and the gaps between
    `copied_records` of ours are counted.
    """
    before = translation.position
    if position == before:
        return
    passed = position.target_next - max(before.target_next, translation.target_start)
    translation.surplus.between += max(0, passed - copied_records)
    for run in runs:
        translation.map.append(*run)
    translation.position = position
    translation.is_dirty = True
    translation.rest()
