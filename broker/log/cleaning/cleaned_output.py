"""One new segment of a compaction while it is written: log, both indexes, aborted transactions.

Caller: broker/log/cleaning/cleaner.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from broker.log.cleaning.kept_batches import KeptBatch
from broker.log.cleaning.swapping import CLEANED_SUFFIX
from broker.log.errors import storage_errors
from broker.log.segments.indexed_batches import place
from broker.log.segments.segment_names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from broker.log.segments.sparse_index import OFFSET_ENTRY, TIME_ENTRY, SparseIndex
from broker.log.segments.transaction_index import AbortedTransaction, TransactionIndex
from runtime.disk import Disk, write_all

_WRITE_BYTES = 256 * 1024  # bytes that wait for one gathered write


_WRITE_PIECES_MAX = 64
"""Each piece may keep the whole buffer of one read in memory."""


_NO_RUN = (b"", 0, 0)


class CleanedOutput:
    """One new segment being written: log, both indexes, aborted transactions."""

    def __init__(self, disk: Disk, directory: str, base_offset: int, *, index_interval_bytes: int) -> None:
        self.size_bytes = 0
        self.next_offset = base_offset
        self._disk = disk
        self._base_offset = base_offset
        self._interval = index_interval_bytes
        stem = f"{directory}/{base_offset:020d}"
        self._path = stem + LOG_SUFFIX + CLEANED_SUFFIX
        self.offset_index = SparseIndex(stem + INDEX_SUFFIX + CLEANED_SUFFIX, OFFSET_ENTRY, disk)
        self.time_index = SparseIndex(stem + TIME_INDEX_SUFFIX + CLEANED_SUFFIX, TIME_ENTRY, disk)
        self._transactions = TransactionIndex(stem + TRANSACTION_INDEX_SUFFIX + CLEANED_SUFFIX, disk)
        self._largest = (-1, base_offset)
        self._since_entry = 0
        self._descriptor = -1
        self._written_bytes = 0
        self._pieces: list[memoryview] = []
        self._run = _NO_RUN

    def __enter__(self) -> None:
        with storage_errors("creating", self._path):
            self._descriptor = self._disk.open(self._path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC)
        self.offset_index.clear()
        self.time_index.clear()
        self._transactions.clear()

    def __exit__(self, *_: object) -> None:
        self._disk.close(self._descriptor)

    def add(self, kept: KeptBatch) -> None:
        """Append a batch, which reaches the file together with others."""
        placed = place(kept.header)
        if placed.max_timestamp > self._largest[0]:
            self._largest = (placed.max_timestamp, placed.last_offset)
        if self._since_entry > self._interval:
            self.offset_index.append(placed.last_offset - self._base_offset, self.size_bytes)
            self._add_time_entry()
            self._since_entry = 0
        end = kept.at + placed.size_bytes
        content, first, last = self._run
        # neighbours in one read are one piece: a log with few removals is copied in long runs
        if kept.content is content and kept.at == last:
            self._run = (content, first, end)
        else:
            self._end_run()
            self._run = (kept.content, kept.at, end)
        self.size_bytes += placed.size_bytes
        self.next_offset = placed.last_offset + 1
        self._since_entry += placed.size_bytes
        if self.size_bytes - self._written_bytes >= _WRITE_BYTES or len(self._pieces) >= _WRITE_PIECES_MAX:
            self._write()

    def _end_run(self) -> None:
        content, first, last = self._run
        if last > first:
            self._pieces.append(memoryview(content)[first:last])
        self._run = _NO_RUN

    def _write(self) -> None:
        self._end_run()
        with storage_errors("writing", self._path):
            self._written_bytes += write_all(self._disk, self._descriptor, self._pieces, self._written_bytes)
        self._pieces = []

    def _add_time_entry(self) -> None:
        last = self.time_index.last
        if self._largest[0] >= 0 and (last is None or self._largest[0] > last[0]):
            self.time_index.append(self._largest[0], self._largest[1] - self._base_offset)

    def finish(self, aborted: Iterator[AbortedTransaction]) -> None:
        """Complete the files and make everything durable."""
        self._write()
        self._add_time_entry()
        # durable before the names: `_announce` promises complete files
        self.offset_index.write(is_durable=True)
        self.time_index.write(is_durable=True)
        for entry in aborted:
            self._transactions.append(entry)
        self._transactions.flush()
        with storage_errors("flushing", self._path):
            self._disk.fdatasync(self._descriptor)
