"""One segment of a partition log: a `.log` file of batches with its offset and time index.

It knows bytes, positions and timestamps, but not leader epochs, producers, retention or access
rights. Written at its end only, by its owner on the event loop; read by anyone through
`SharedFile`. The positions of the latest batches are kept in memory, so that readers near the end
need no lookup.

Index entries have Kafka's form: one for each `index.interval.bytes`, with the last offset of a
batch and the batch's position; time index entries have the largest timestamp so far and the last
offset of its batch.

Callers: broker/log/partition_log.py and the files beside it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from broker.log.core.retention import ActiveSegment, SegmentFacts
from broker.log.errors import storage_error, storage_errors
from broker.log.segments.indexed_batches import (
    _POSITION_COLUMN,
    IndexedBatches,
    PlacedBatch,
)
from broker.log.segments.segment_names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
)
from broker.log.segments.sparse_index import OFFSET_ENTRY, TIME_ENTRY
from runtime.disk import Buffer, write_all


class Segment(IndexedBatches):
    """A segment that exists on disk. `next_offset` is the offset after its last batch."""

    is_dirty = False
    _has_torn_tail = False
    _is_preallocated = False

    def append(self, batches: Sequence[PlacedBatch], pieces: Sequence[Buffer], index_interval_bytes: int) -> None:
        """Write `pieces`, which hold `batches`, at the end. After a StorageError the segment is
        unchanged.
        """
        start = self.size_bytes
        self._write(pieces, start)
        if self._first_timestamp_ms is None and start == 0:
            self._first_timestamp_ms = batches[0].max_timestamp
        position = start
        for batch in batches:
            self.note_batch(position, batch, index_interval_bytes)
            position += batch.size_bytes
        self.size_bytes = position
        self.next_offset = batches[-1].last_offset + 1

    def _write(self, pieces: Sequence[Buffer], start: int) -> None:
        descriptor = self.file.acquire()
        try:
            # the truncation after a failed write also failed: its remains would precede the new
            # batches
            if self._has_torn_tail:
                self._cut(descriptor, start)
            write_all(self._disk, descriptor, pieces, start)
        except OSError as error:
            self._has_torn_tail = True
            # if this fails too, the next append or close tries again; nothing reads past size_bytes
            # meanwhile
            with contextlib.suppress(OSError):
                self._cut(descriptor, start)
            self.file.release()
            raise storage_error("appending to", self.path, error) from error
        self.mark_dirty()
        self.file.release()

    def _cut(self, descriptor: int, length: int) -> None:
        self._disk.truncate(descriptor, length)
        self._has_torn_tail = self._is_preallocated = False

    def preallocate(self, length: int) -> None:
        """Give the file of an empty segment its length in advance."""
        descriptor = self.file.acquire()
        try:
            with storage_errors("preallocating", self.path):
                self._disk.truncate(descriptor, length)
        finally:
            self.file.release()
        self._is_preallocated = True

    def trim(self) -> None:
        """Truncate the file to its content if it is longer; durable with the next flush."""
        if not (self._has_torn_tail or self._is_preallocated):
            return
        descriptor = self.file.acquire()
        try:
            with storage_errors("truncating", self.path):
                self._cut(descriptor, self.size_bytes)
        finally:
            self.file.release()
        self.mark_dirty()

    def become_inactive(self) -> None:
        """No more appends: complete and write the indexes, forget the positions of recent
        batches.
        """
        self.trim()
        self._append_time_entry(self.largest_timestamp())
        self.write_indexes()
        self.transactions.write()
        self._forget_recent()

    def mark_dirty(self) -> None:
        """Note that a change is not on disk yet. Keeps the descriptor, so that the flush sees
        errors of the write-back.
        """
        if not self.is_dirty:
            self.file.acquire()
            self.is_dirty = True

    def mark_flushed(self) -> None:
        """Note that everything written is on disk; call once after the flush of a dirty segment."""
        if self.is_dirty:
            self.is_dirty = False
            self.file.release()

    def close(self) -> None:
        """Complete the indexes, remove the remains of a failed write, and release the
        descriptor.
        """
        self.trim()
        # not forced to disk: a lookup checks the entry that it uses, and rebuilds what is wrong
        if not self.needs_no_index:
            self.become_inactive()
        self.mark_flushed()
        self.file.retire()

    def truncate_to(self, offset: int) -> None:
        """Drop every batch that reaches `offset` or lies above it."""
        found = self.find(offset)
        if found is None:
            return
        descriptor = self.file.acquire()
        try:
            with storage_errors("truncating", self.path):
                self._cut(descriptor, found.position)
        finally:
            self.file.release()
        self.size_bytes = found.position
        relative = offset - self.base_offset
        self.offset_index.truncate(found.position, column=_POSITION_COLUMN)
        self.time_index.truncate(relative, column=1)
        self.transactions.truncate(offset)
        # positions and time indexes of the recent batches refer to what was truncated
        self._forget_recent()
        self._largest = None if found.position else (-1, self.base_offset)
        self._first_timestamp_ms = self._first_timestamp_ms if found.position else None
        # 0 although bytes may have come since the last entry: the next entry is only later
        self._bytes_since_entry = 0
        self.next_offset = self._end_by_scan()

    def load_end(self) -> None:
        """Find `next_offset` of a segment that was closed cleanly, from its last index entry on;
        checks that entry.
        """
        entry = self.offset_index.last
        if entry is not None and not self._is_sound(entry):
            self.rebuild_indexes()
            entry = self.offset_index.last
        self.next_offset = self._end_by_scan()
        self._bytes_since_entry = self.size_bytes - (entry[1] if entry else 0)

    def facts(self) -> SegmentFacts:
        """The facts for retention. The age of a segment without timestamps is that of its file."""
        largest = self.largest_timestamp()[0]
        return SegmentFacts(
            self.base_offset, self.next_offset, self.size_bytes, largest if largest >= 0 else self.created_ms
        )

    def active_facts(self, index_bytes_max: int) -> ActiveSegment:
        """The facts for rolling."""
        # each batch has one entry in either index at most: few batches cannot have filled them
        is_index_full = self.size_bytes >= index_bytes_max and (
            self.offset_index.count >= index_bytes_max // OFFSET_ENTRY.size
            # Kafka keeps the last slot for the entry that closing adds
            or self.time_index.count >= index_bytes_max // TIME_ENTRY.size - 1
        )
        facts = self.base_offset, self.size_bytes, self.first_timestamp_ms(), self.created_ms, is_index_full
        # for each append: the constructor of a named tuple is Python, and takes longer
        return tuple.__new__(ActiveSegment, facts)

    def use_names(self, suffix: str) -> None:
        """Open files under their names with this suffix from now on."""
        stem = f"{self.directory}/{self.base_offset:020d}"
        self.file.path = stem + LOG_SUFFIX + suffix
        self.offset_index.path = stem + INDEX_SUFFIX + suffix
        self.time_index.path = stem + TIME_INDEX_SUFFIX + suffix
        self.transactions.path = stem + TRANSACTION_INDEX_SUFFIX + suffix

    def give_up(self) -> None:
        """The log has dropped the segment; slices in use stay readable."""
        self.mark_flushed()
        self.file.retire()

    def paths_after_removal(self) -> list[str]:
        """The names that `rename_for_removal` gives to the files; some files may not exist."""
        return [
            f"{self.directory}/{file_name(self.base_offset, suffix)}{DELETED_SUFFIX}" for suffix in SEGMENT_SUFFIXES
        ]

    def rename_for_removal(self) -> None:
        """Give all files of a segment that was given up the suffix `.deleted`; may run in a
        thread.
        """
        with storage_errors("renaming", self.path):
            for suffix, renamed in zip(SEGMENT_SUFFIXES, self.paths_after_removal(), strict=True):
                with contextlib.suppress(FileNotFoundError):
                    self._disk.rename(f"{self.directory}/{file_name(self.base_offset, suffix)}", renamed)
