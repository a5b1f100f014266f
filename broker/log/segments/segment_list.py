"""The ordered segments of one log, and reading across them: slices for fetches, lookups by offset
and by time.

Readers that read forward store where their next read begins (`_next_reads`), and readers near the
end find their batch in the active segment's memory; only other readers need an index lookup. Holes
between segments and inside them (compaction, mirrored holes) are skipped.

Caller: broker/log/partition_log.py, which alone changes the list.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, NamedTuple

from broker.log.segments.log_slice import LogSlice
from broker.log.segments.segment import Segment
from broker.log.segments.transaction_index import AbortedTransaction
from runtime.disk import Disk
from wire.batches.record_batch import BatchHeader

_REMEMBERED_READS: Final = 16  # readers that go forward in one log


class _Place(NamedTuple):
    segment: Segment
    position: int
    base_offset: int


class FoundBatch(NamedTuple):
    """A batch that a lookup by time found."""

    header: BatchHeader
    content: bytes


class Segments:
    """Segments by base offset, oldest first; the last one is active."""

    def __init__(self, segments: list[Segment], disk: Disk) -> None:
        self._disk = disk
        self._list = segments
        self._bases = [segment.base_offset for segment in segments]
        self._next_reads: dict[int, _Place] = {}
        self.size_bytes = sum(segment.size_bytes for segment in segments)

    def __len__(self) -> int:
        return len(self._list)

    @property
    def all(self) -> list[Segment]:
        """All segments, oldest first; not to be changed."""
        return self._list

    @property
    def active(self) -> Segment:
        """The segment that is appended to."""
        return self._list[-1]

    @property
    def first(self) -> Segment:
        """The oldest segment."""
        return self._list[0]

    def add(self, segment: Segment) -> None:
        """Add a new active segment."""
        self._list.append(segment)
        self._bases.append(segment.base_offset)

    def replace(self, old: list[Segment], new: list[Segment]) -> None:
        """Put `new` in the place of `old`, which are neighbours."""
        start = self._list.index(old[0])
        self._list[start : start + len(old)] = new
        self._changed()

    def remove_first(self, count: int) -> list[Segment]:
        """Take the oldest segments off the list."""
        removed, self._list = self._list[:count], self._list[count:]
        self._changed()
        return removed

    def remove_from(self, index: int) -> list[Segment]:
        """Take the newest segments off the list, from `index` on."""
        removed, self._list = self._list[index:], self._list[:index]
        self._changed()
        return removed

    def _changed(self) -> None:
        self._bases = [segment.base_offset for segment in self._list]
        self.size_bytes = sum(segment.size_bytes for segment in self._list)
        self._next_reads.clear()

    def forget_reads(self) -> None:
        """Positions have changed: the active segment was truncated."""
        self._changed()

    def index_of(self, offset: int) -> int:
        """Index of the segment whose range `offset` falls into; the first one for lower offsets."""
        return max(bisect_right(self._bases, offset) - 1, 0)

    def last_kept(self, offset: int) -> int:
        """Index of the segment that is active after a truncation to `offset`: the first, or one
        that begins below it.
        """
        index = self.index_of(offset)
        return index - (index > 0 and self._bases[index] == offset)

    # -- reading -----------------------------------------------------------------------------------

    def read(self, offset: int, *, max_bytes: int, end_offset: int, has_minimum_one_batch: bool) -> LogSlice:
        """Whole batches from the one that holds `offset`, ending before `end_offset`, within one
        segment.
        """
        # a follower or consumer continues where its last response ended: no index is read
        place = self._next_reads.get(offset) or self._find(offset)
        if place is None or place.base_offset >= end_offset:
            return self._empty(offset)
        segment, start, base_offset = place
        is_to_the_end = end_offset >= segment.next_offset
        end, after_end = (
            (segment.size_bytes, segment.next_offset) if is_to_the_end else self._end_position(segment, end_offset)
        )
        limit = start + max_bytes
        if limit >= end:
            length, next_offset = end - start, after_end
        else:
            boundary = segment.boundary(limit, start)
            length, next_offset = (boundary.position - start, boundary.base_offset) if boundary else (0, offset)
        # max.bytes never stops a reader's progress (KIP-74)
        if length <= 0 and has_minimum_one_batch:
            length, next_offset = segment.batch_size(start)
            # the batch may extend past the high watermark: then this reader may not have it
            length = length if start + length <= end else 0
        if length <= 0:
            return self._empty(offset)
        self._note_next_read(next_offset, segment, start + length)
        return LogSlice(
            self._disk,
            segment.file,
            position=start,
            length=length,
            base_offset=base_offset,
            next_offset=next_offset,
            segment_base_offset=segment.base_offset,
        )

    def bytes_between(self, offset: int, end_offset: int) -> int:
        """The bytes between two offsets, by whole batches."""
        place = self._next_reads.get(offset) or self._find(offset)
        if place is None or place.base_offset >= end_offset:
            return 0
        first, last = self._list.index(place.segment), self.index_of(end_offset - 1)
        ending = self._list[last]
        tail = ending.size_bytes if end_offset >= ending.next_offset else self._end_position(ending, end_offset)[0]
        return sum(segment.size_bytes for segment in self._list[first:last]) + tail - place.position

    def _find(self, offset: int) -> _Place | None:
        for segment in self._list[self.index_of(offset) :]:
            found = segment.find(offset) if segment.size_bytes else None
            if found is not None:
                return _Place(segment, found.position, found.base_offset)
        return None

    def _end_position(self, segment: Segment, end_offset: int) -> tuple[int, int]:
        """The end of the whole batches below `end_offset`, and the offset that follows them."""
        noted = self._next_reads.get(end_offset)
        if noted is not None and noted.segment is segment:
            return noted.position, end_offset
        found = segment.find(end_offset)
        return (found.position, min(found.base_offset, end_offset)) if found else (segment.size_bytes, end_offset)

    def _note_next_read(self, offset: int, segment: Segment, position: int) -> None:
        # the end position of a closed segment is not a valid start of a read
        if position >= segment.size_bytes and segment is not self._list[-1]:
            return
        notes = self._next_reads
        if len(notes) >= _REMEMBERED_READS:
            # dicts keep their order: the oldest note goes
            del notes[next(iter(notes))]
        notes[offset] = _Place(segment, position, offset)

    def forget_reads_at_end(self) -> None:
        """A new segment begins: a stored read position at the end of the old one must move to
        it.
        """
        active = self._list[-1]
        for offset in [
            o for o, p in self._next_reads.items() if p.segment is active and p.position >= p.segment.size_bytes
        ]:
            del self._next_reads[offset]

    def _empty(self, offset: int) -> LogSlice:
        segment = self._list[self.index_of(offset)]
        return LogSlice(
            self._disk,
            None,
            position=0,
            length=0,
            base_offset=offset,
            next_offset=offset,
            segment_base_offset=segment.base_offset,
        )

    def find_timestamp(self, timestamp_ms: int, from_offset: int) -> FoundBatch | None:
        """The first batch at or above `from_offset` that has a record of `timestamp_ms` or later,
        with its bytes.
        """
        for segment in self._list[self.index_of(from_offset) :]:
            found = segment.find_timestamp(timestamp_ms, from_offset) if segment.size_bytes else None
            if found is not None:
                position, header = found
                return FoundBatch(header, segment.read(position, header.size_bytes))
        return None

    def aborted_transactions(self, from_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in the range."""
        found = []
        for segment in self._list[self.index_of(from_offset) :]:
            for entry in segment.transactions.entries():
                if entry.last_offset >= from_offset and entry.first_offset < end_offset:
                    found.append(entry)
                # Kafka's stop: after the stable offset has passed the range, later markers end
                # later transactions
                if entry.last_stable_offset >= end_offset:
                    return found
        return found
