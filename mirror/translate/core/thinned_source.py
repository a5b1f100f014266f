"""Finds the position at which a translate link resumes after a crash when the source has lost
records that were mirrored.

Compaction and expiry remove records of the source's log and leave the others at their offsets.
Batches can then not be counted as `core/resume.py` counts them: the sequences in the target's tail
give how many records were mirrored since the stored position, but not which. So the source's
remaining records are compared with the tail record by record:

  a. A batch with fewer offsets before it, since the stored position, than records were mirrored is
     mirrored itself.
  b. One with more offsets before it is mirrored when its records are in the tail (the same producer
     of ours, time, key, value and headers), and is not when none of them is.
  c. Compaction and expiry that remove a record of a key have removed the earlier ones of that key.
     So the source's remaining ones of a key's mirrored records are the last of those in the tail:
     each record has one offset where its copy can be.
  d. These offsets grow with the source's, and so does the number of records that the source lost
     before them.

So beyond rule a, the last record that counts as mirrored must be unique at both ends, and the last
one of its key at the target. Everything else is a `HistoryMismatch`: a mere similarity never causes
a record to be skipped or mirrored twice.

If the target was compacted too, the tail lacks records. A record of the source that the tail lacks
then counts as mirrored only by rule a, and no record may be missing at the end of the tail.

Compaction leaves the offsets of the records that it removes absent. If the tail lacks more records
than offsets, the target never had some of them (`core/resume.py` says how that happens). The tail
then counts as ended before them: they are mirrored, and the batches behind them a second time.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from hashlib import blake2b
from typing import NamedTuple

from mirror.translate.core.renumbering import SEQUENCE_MASK, next_sequence
from mirror.translate.core.resume import HistoryMismatch, take_over
from mirror.translate.core.translation import Position, Translation
from wire.batches.record_batch import BatchHeader, Buffer, iterate_headers
from wire.batches.records import Record, decode_batch, encode_record

_HALF = 1 << 30
_DIGEST_BYTES = 16

_Content = tuple[int, bytes]


class _Copy(NamedTuple):
    """One of this link's records in the tail."""

    # Number of records mirrored before it since the stored position, and how many of those the tail
    # has.
    before: int
    found_before: int
    target_offset: int
    content: _Content


class _Left(NamedTuple):
    """A record that the source still has."""

    source_offset: int
    # Offsets before it since the stored position that may have been mirrored.
    room: int
    key: bytes | None
    content: _Content


class _Batch(NamedTuple):
    """A batch of the source that is carried."""

    base_offset: int
    room: int
    records: Sequence[_Left]


class ThinnedMatch:
    """The comparison of one partition: call `see_target` for the target's tail, then `see_source`
    until `is_complete`.
    """

    def __init__(self, translation: Translation, *, producer_ids: Collection[int]) -> None:
        translation.rest()
        self._translation = translation
        self._stored = translation.position
        self._producer_ids = producer_ids
        self._target_end = self._stored.target_next
        # Offsets since the stored position at which the target has no record.
        self._absent_offsets = 0
        self._ends_early = False
        # By producer id: the number of its records mirrored since the stored position.
        self._mirrored: dict[int, int] = {}
        self._mirrored_count = 0
        self._copies: list[_Copy] = []
        self._copies_of: defaultdict[bytes | None, list[_Copy]] = defaultdict(list)
        # How often each content is in the tail, and in the source batches so far.
        self._copied: Counter[_Content] = Counter()
        self._left: Counter[_Content] = Counter()
        self._origin = self._stored.source_next
        self._source_end = self._stored.source_next
        self._skipped_offsets = 0
        self._batches: list[_Batch] = []
        self._has_ended = False
        self.matched_batches = 0

    @property
    def is_complete(self) -> bool:
        """True if the start of the source's records that were not mirrored has been found."""
        return self._has_ended

    @property
    def has_never_written(self) -> bool:
        """True if the target never had records of this link that later ones follow."""
        return self._ends_early

    @property
    def _missing_count(self) -> int:
        """Mirrored records that the tail does not have."""
        return self._mirrored_count - len(self._copies)

    def see_target(self, records: Buffer) -> None:
        """Batches of the target's log at or after the stored position."""
        for place, header in iterate_headers(records, may_end_in_partial=True):
            # batches before the stored position are in the map already
            if header.next_offset <= self._stored.target_next:
                continue
            self._absent_offsets += max(0, header.base_offset - self._target_end)
            self._target_end = max(self._target_end, header.next_offset)
            if header.producer_id in self._producer_ids and header.base_sequence >= 0 and not header.is_control:
                self._see_copies(records, place, header)

    def _see_copies(self, records: Buffer, place: int, header: BatchHeader) -> None:
        epoch, sequence = self._stored.sequences.get(header.producer_id, (0, 0))
        if header.producer_epoch > epoch:
            raise HistoryMismatch(
                f"the target's batch at offset {header.base_offset} is of a later epoch than the stored position, "
                "so its sequence does not show how many records came before"
            )
        mirrored = self._mirrored.get(header.producer_id, 0)
        # masked: sequences continue at 0 after 2^31 - 1, as in Kafka
        index = (header.base_sequence - sequence) & SEQUENCE_MASK
        if index >= _HALF:
            index -= SEQUENCE_MASK + 1  # it begins before the stored position
        end = index + header.last_offset_delta + 1
        if header.producer_epoch < epoch or end <= mirrored:
            return  # The batch is from before the stored position, or a duplicate.
        # A merged batch may begin with records that the target had already.
        repeated = max(0, mirrored - index)
        first = self._mirrored_count + max(0, index - mirrored)
        self._ends_early = self._ends_early or first - len(self._copies) > self._absent_offsets
        if self._ends_early:
            return
        # holes from compaction within a batch: offsets that the sequence counts and the tail lacks
        self._absent_offsets += header.last_offset_delta + 1 - header.record_count
        self._mirrored[header.producer_id] = end
        self._mirrored_count = first + header.last_offset_delta + 1 - repeated
        for record in decode_batch(records, place, header):
            if record.offset - header.base_offset < repeated:
                continue
            content = _content(header.producer_id, record)
            before = first + record.offset - header.base_offset - repeated
            copy = _Copy(before, len(self._copies), record.offset, content)
            self._copies.append(copy)
            self._copies_of[record.key].append(copy)
            self._copied[content] += 1

    def see_source(
        self, records: Buffer, *, skipped: Collection[int], producer_of: Callable[[BatchHeader], int]
    ) -> None:
        """The source's next batches."""
        for place, header in iterate_headers(records, may_end_in_partial=True):
            if self.is_complete:
                return
            if header.next_offset <= self._source_end:
                continue
            self._origin = min(self._origin, header.base_offset)
            if header.base_offset in skipped:
                self._skipped_offsets += header.next_offset - header.base_offset
            elif header.record_count:
                self._see_left(records, place, header, producer_of(header))
            self._source_end = header.next_offset

    def _see_left(self, records: Buffer, place: int, header: BatchHeader, producer_id: int) -> None:
        before = self._origin + self._skipped_offsets
        left = [
            _Left(record.offset, record.offset - before, record.key, _content(producer_id, record))
            for record in decode_batch(records, place, header)
        ]
        batch = _Batch(header.base_offset, header.base_offset - before, left)
        self._batches.append(batch)
        self._left.update(one.content for one in left)
        # the first batch of which nothing was mirrored ends the search
        is_new = not self._missing_count and not self._is_counted(batch) and not self._has_copies(batch)
        self._has_ended = is_new or self._left.total() > self._mirrored_count

    def _is_counted(self, batch: _Batch) -> bool:
        """True if the batch was mirrored, because more records were mirrored than there are offsets
        before it.
        """
        return batch.room < self._mirrored_count

    def _has_copies(self, batch: _Batch) -> bool:
        return any(left.content in self._copied for left in batch.records)

    def _is_one_of_a_kind(self, batch: _Batch) -> bool:
        return any(self._copied[left.content] == 1 == self._left[left.content] for left in batch.records)

    def finish(self, *, source_end: int) -> None:
        """Set the translation's position after the whole tail is matched; raises HistoryMismatch if
        it does not fit.
        """
        # the missing records could belong to any of the producers
        if self._missing_count and len(self._mirrored) > 1:
            raise HistoryMismatch("the target was compacted where it has records of several sites")
        mirrored = [self._is_counted(batch) or self._has_copies(batch) for batch in self._batches]
        passed = self._batches[: max((number + 1 for number, is_so in enumerate(mirrored) if is_so), default=0)]
        if passed and not self._is_counted(passed[-1]) and not self._is_one_of_a_kind(passed[-1]):
            raise HistoryMismatch(
                f"the source's batch at offset {passed[-1].base_offset} is like several records of the target"
            )
        pairs = self._pairs(passed)
        self._check_order(pairs, is_all=len(passed) == len(self._batches))
        position = Position(
            self._source_next(len(passed)), -1, max(self._stored.target_next, self._target_end), self._sequences()
        )
        # the source itself must have had the mirrored records
        if position.source_next > source_end:
            raise HistoryMismatch(
                f"{self._mirrored_count} records were mirrored from offset {self._origin} on, and the source ends at {source_end}"
            )
        self.matched_batches = len(passed)
        runs = [(left.source_offset, copy.target_offset, 1) for left, copy in pairs if copy is not None]
        take_over(self._translation, position, runs, copied_records=self._mirrored_count)

    def _source_next(self, passed_count: int) -> int:
        if passed_count < len(self._batches):
            return self._batches[passed_count].base_offset
        return max(self._source_end, self._origin + self._mirrored_count)

    def _sequences(self) -> dict[int, tuple[int, int]]:
        sequences = dict(self._stored.sequences)
        for producer_id, count in self._mirrored.items():
            epoch, sequence = sequences.get(producer_id, (0, 0))
            sequences[producer_id] = (epoch, next_sequence(sequence, count))
        return sequences

    def _pairs(self, passed: Sequence[_Batch]) -> list[tuple[_Left, _Copy | None]]:
        """Each record with its copy, for each key the last ones of both; None where the tail has
        lost it.
        """
        copies_of = {key: list(copies) for key, copies in self._copies_of.items()}
        pairs: list[tuple[_Left, _Copy | None]] = []
        # from the end: compaction keeps the last record of a key, so the last ones of both belong
        # together
        for batch in reversed(passed):
            for left in reversed(batch.records):
                copies = copies_of.get(left.key)
                copy = copies.pop() if copies else None
                pairs.append((left, copy))
                if copy is not None and copy.content == left.content:
                    continue
                if copy is not None or not self._missing_count or not self._is_counted(batch):
                    raise HistoryMismatch(
                        f"the source's record at offset {left.source_offset} is not the one that the target has in its place"
                    )
        pairs.reverse()
        return pairs

    def _check_order(self, pairs: Sequence[tuple[_Left, _Copy | None]], *, is_all: bool) -> None:
        """Check that the copies have the order of the records, and which records have no copy where
        the tail lacks some.
        """
        before, found_before, gone, without = -1, -1, 0, 0
        for left, copy in pairs:
            if copy is None:
                without += 1
                continue
            missing = (copy.before - before) - (copy.found_before - found_before)
            if copy.before <= before or left.room - copy.before < gone or without > missing:
                raise HistoryMismatch(
                    f"the source's record at offset {left.source_offset} and the target's at {copy.target_offset} "
                    "are the same, but not in the order of the other records"
                )
            before, found_before, gone, without = copy.before, copy.found_before, left.room - copy.before, 0
        missing = (self._mirrored_count - before) - (len(self._copies) - found_before)
        if without > missing or (missing and not is_all):
            raise HistoryMismatch("the target has lost the last records that were mirrored, or never had them")


def _content(producer_id: int, record: Record) -> _Content:
    """The content of a record that does not change by mirroring, and the producer of this link that
    wrote it.
    """
    return producer_id, blake2b(encode_record(record, 0, 0), digest_size=_DIGEST_BYTES).digest()
