"""The batches of one segment file as readers find them: by offset, position or time, through sparse
indexes and the positions of the latest batches in memory.

Caller: broker/log/segments/segment.py.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from broker.log.errors import CorruptLog, storage_errors
from broker.log.segments.batch_scan import scan_file
from broker.log.segments.descriptors import DescriptorCache, SharedFile
from broker.log.segments.segment_names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from broker.log.segments.sparse_index import OFFSET_ENTRY, TIME_ENTRY, SparseIndex
from broker.log.segments.transaction_index import TransactionIndex
from runtime.disk import Disk
from wire.batches.record_batch import HEADER_SIZE, BatchHeader

SMALL_SEGMENT_BYTES: Final = 64 * 1024
"""Up to this size, reading the headers costs less than index files: at a stop, a log with so small
a last segment has none.
"""


_RECENT_BATCHES_MAX: Final = 512


_POSITION_COLUMN: Final = 1


class PlacedBatch(NamedTuple):
    """A batch as it will lie in the log."""

    base_offset: int
    last_offset: int
    size_bytes: int
    max_timestamp: int


def place(header: BatchHeader) -> PlacedBatch:
    """A stored batch. A batch without records (after compaction) has no timestamp: no lookup by
    time may lead to it.
    """
    max_timestamp = header.max_timestamp if header.record_count else -1
    return PlacedBatch(header.base_offset, header.last_offset, header.size_bytes, max_timestamp)


class BatchPosition(NamedTuple):
    """The place of a batch's start."""

    position: int
    base_offset: int


class IndexedBatches:
    """The batches of a segment on disk. `next_offset` is the offset after the last one."""

    def __init__(
        self,
        directory: str,
        base_offset: int,
        descriptors: DescriptorCache,
        *,
        size_bytes: int,
        next_offset: int,
        created_ms: int,
        index_bytes: tuple[int, int] | None = None,
    ) -> None:
        self.base_offset = base_offset
        self.directory = directory
        self.size_bytes = size_bytes
        self.next_offset = next_offset
        self.created_ms = created_ms
        self._disk: Disk = descriptors.disk
        stem = f"{directory}/{base_offset:020d}"
        self.file = SharedFile(stem + LOG_SUFFIX, descriptors)
        in_files: tuple[int | None, int | None] = (None, None)
        if index_bytes is not None:
            in_files = (index_bytes[0] // OFFSET_ENTRY.size, index_bytes[1] // TIME_ENTRY.size)
        self.offset_index = SparseIndex(stem + INDEX_SUFFIX, OFFSET_ENTRY, self._disk, entries_in_file=in_files[0])
        self.time_index = SparseIndex(stem + TIME_INDEX_SUFFIX, TIME_ENTRY, self._disk, entries_in_file=in_files[1])
        self.transactions = TransactionIndex(stem + TRANSACTION_INDEX_SUFFIX, self._disk)
        self._bytes_since_entry = 0
        self._first_timestamp_ms: int | None = None
        self._largest: tuple[int, int] | None = None if size_bytes else (-1, base_offset)
        self._recent_bases: list[int] = []
        self._recent_ends: list[int] = []
        self._recent_positions: list[int] = []

    @property
    def path(self) -> str:
        """Path of the `.log` file."""
        return self.file.path

    def note_batch(self, position: int, batch: PlacedBatch, index_interval_bytes: int) -> None:
        """Index the newest batch, written at `position`, and keep its position in memory for
        readers near the end.
        """
        self.index_batch(position, batch.size_bytes, batch.last_offset, batch.max_timestamp, index_interval_bytes)
        self._recent_bases.append(batch.base_offset)
        self._recent_ends.append(batch.last_offset + 1)
        self._recent_positions.append(position)
        # dropped by the half: moving three lists for each batch would cost more than the memory
        if len(self._recent_bases) > 2 * _RECENT_BATCHES_MAX:
            for recent in (self._recent_bases, self._recent_ends, self._recent_positions):
                del recent[:_RECENT_BATCHES_MAX]

    def index_batch(
        self, position: int, size_bytes: int, last_offset: int, max_timestamp: int, index_interval_bytes: int
    ) -> None:
        """Index a batch at `position`, behind all indexed ones; the time is -1 for a batch without
        records.
        """
        largest = self._largest or self.largest_timestamp()
        if max_timestamp > largest[0]:
            self._largest = largest = (max_timestamp, last_offset)
        # Kafka's rule: the entry names the batch that passes the interval, so a lookup reads one
        # interval more at most
        if self._bytes_since_entry > index_interval_bytes:
            self.offset_index.append(last_offset - self.base_offset, position)
            self._append_time_entry(largest)
            self._bytes_since_entry = 0
        self._bytes_since_entry += size_bytes

    def _append_time_entry(self, largest: tuple[int, int]) -> None:
        last = self.time_index.last
        if largest[0] >= 0 and (last is None or largest[0] > last[0]):
            self.time_index.append(largest[0], largest[1] - self.base_offset)

    def write_indexes(self, *, is_durable: bool = False) -> None:
        """Bring index entries that wait in memory to their files."""
        self.offset_index.write(is_durable=is_durable)
        self.time_index.write(is_durable=is_durable)

    @property
    def needs_no_index(self) -> bool:
        """True if the segment is small and has no index on disk so far: most partitions of a topic
        with very many.
        """
        is_in_memory = self.offset_index.is_in_memory and self.time_index.is_in_memory
        return is_in_memory and self.size_bytes <= SMALL_SEGMENT_BYTES

    def _end_by_scan(self) -> int:
        end = self.base_offset
        entry = self.offset_index.last
        for _, header in self._scan(entry[1] if entry else 0):
            end = header.next_offset
        return end

    def _forget_recent(self) -> None:
        for recent in (self._recent_bases, self._recent_ends, self._recent_positions):
            recent.clear()

    def find(self, offset: int) -> BatchPosition | None:
        """The batch that contains `offset`, or the next one above it if `offset` is in a hole; None
        at the segment's end.
        """
        bases = self._recent_bases
        if bases and offset >= bases[0]:
            index = bisect_right(bases, offset) - 1
            # in a hole after the found batch: the next batch is the result
            index += offset >= self._recent_ends[index]
            return BatchPosition(self._recent_positions[index], bases[index]) if index < len(bases) else None
        for position, header in self._scan(self._scan_start(offset - self.base_offset, 0)):
            if header.last_offset >= offset:
                return BatchPosition(position, header.base_offset)
        return None

    def boundary(self, limit: int, start: int) -> BatchPosition | None:
        """The last batch that begins at or before byte `limit` and after `start`; None if the index
        has no such entry.
        """
        positions = self._recent_positions
        if positions and limit >= positions[0]:
            index = bisect_right(positions, limit) - 1
            return BatchPosition(positions[index], self._recent_bases[index]) if positions[index] > start else None
        found = None
        for position, header in self._scan(max(start, self._scan_start(limit, _POSITION_COLUMN))):
            if position > limit:
                break
            if position > start:
                found = BatchPosition(position, header.base_offset)
        return found

    def batch_size(self, position: int) -> tuple[int, int]:
        """Size of the batch at `position` and the offset after it."""
        header = self.header_at(position)
        return header.size_bytes, header.next_offset

    def header_at(self, position: int) -> BatchHeader:
        """Header of the batch at `position`."""
        for _, header in self._scan(position):
            return header
        raise CorruptLog(self.path, position, "no batch begins here")

    def find_timestamp(self, timestamp_ms: int, from_offset: int) -> tuple[int, BatchHeader] | None:
        """The first batch at or above `from_offset` whose largest timestamp is at least
        `timestamp_ms`.
        """
        if self.largest_timestamp()[0] < timestamp_ms:
            return None
        entry = self.time_index.floor(timestamp_ms, column=0)
        relative = max(entry[1] if entry else 0, from_offset - self.base_offset)
        for position, header in self._scan(self._scan_start(relative, 0)):
            # an empty batch (compaction) keeps its producer's timestamp and has no record to be
            # found
            is_late = header.record_count and header.max_timestamp >= timestamp_ms
            if is_late and header.last_offset >= from_offset:
                return position, header
        return None

    def headers(self) -> Iterator[BatchHeader]:
        """All batch headers."""
        for _, header in self._scan(0):
            yield header

    def batches_of_producers(self, from_offset: int) -> Iterator[tuple[BatchHeader, bytes]]:
        """The batches with a producer id, from `from_offset` on: the header of each, and its bytes
        if it is a control batch (else empty).
        """
        found = self.find(from_offset)
        for position, header in self._scan(found.position) if found else ():
            if header.producer_id < 0:
                continue
            yield header, self.read(position, header.size_bytes) if header.is_control else b""

    def read(self, position: int, length: int) -> bytes:
        """Bytes of the log file."""
        descriptor = self.file.acquire()
        try:
            with storage_errors("reading", self.path):
                return self._disk.pread(descriptor, length, position)
        finally:
            self.file.release()

    def _scan(self, start: int) -> Iterator[tuple[int, BatchHeader]]:
        return scan_file(self._disk, self.file, start, self.size_bytes)

    def _scan_start(self, value: int, column: int) -> int:
        """The start of a scan for a relative offset (column 0) or a position (1). A damaged index
        is rebuilt first.
        """
        entry = self.offset_index.floor(value, column=column)
        # position 0 is a batch's start in any index
        if entry is not None and entry[1] and not self._is_sound(entry):
            self.rebuild_indexes()
            entry = self.offset_index.floor(value, column=column)
        return entry[1] if entry else 0

    def _is_sound(self, entry: tuple[int, int]) -> bool:
        """A valid entry names a batch that ends at or before its offset."""
        relative, position = entry
        if not 0 <= position <= self.size_bytes - HEADER_SIZE:
            return False
        try:
            header = self.header_at(position)
        except CorruptLog:
            return False
        return self.base_offset <= header.base_offset and header.last_offset - self.base_offset <= relative

    def rebuild_indexes(self, index_interval_bytes: int = 4096) -> None:
        """Make both indexes anew from the batches."""
        self.reset_indexes()
        for position, header in self._scan(0):
            self.note_batch(position, place(header), index_interval_bytes)
        self.write_indexes()

    def reset_indexes(self) -> None:
        """Empty indexes, to be filled from the first batch on."""
        self.offset_index.clear()
        self.time_index.clear()
        self._forget_recent()
        self._bytes_since_entry = 0
        self._largest = (-1, self.base_offset)

    def largest_timestamp(self) -> tuple[int, int]:
        """The largest record timestamp (-1: none) and the last offset of its batch; read from disk
        the first time.
        """
        if self._largest is None:
            last = self.time_index.last
            largest = (last[0], last[1] + self.base_offset) if last else (-1, self.base_offset)
            entry = self.offset_index.last
            for _, header in self._scan(entry[1] if entry else 0):
                if header.record_count and header.max_timestamp > largest[0]:
                    largest = (header.max_timestamp, header.last_offset)
            self._largest = largest
        return self._largest

    def first_timestamp_ms(self) -> int:
        """The largest timestamp of the first batch, -1 when there is none; read from disk the first
        time.
        """
        if self._first_timestamp_ms is None and self.size_bytes:
            self._first_timestamp_ms = self.header_at(0).max_timestamp
        return self._first_timestamp_ms if self._first_timestamp_ms is not None else -1
