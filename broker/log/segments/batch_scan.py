"""Iterates over the batches of a segment file with few reads: their headers, and the bytes of
requested ones.

For lookups inside a segment that was checked when it was written or recovered, and for compaction:
no checksums. An impossible size raises `CorruptLog` and is never used. Recovery has its own
iteration with checks (broker/log/recovery.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.log.errors import CorruptLog, storage_errors
from broker.log.segments.descriptors import SharedFile
from runtime.disk import Disk
from wire.batches.record_batch import HEADER_SIZE, MAGIC, BatchHeader, InvalidBatch, read_header

_HEADERS_READ_BYTES: Final = 8192  # two index intervals: most lookups take one read
_CONTENT_READ_BYTES: Final = 128 * 1024


class BatchScan:
    """Positions and headers of the batches from `start`, which must be a batch's first byte, up to
    `end`, one after another.
    """

    def __init__(self, disk: Disk, descriptor: int, path: str, start: int, end: int) -> None:
        self._disk = disk
        self._descriptor = descriptor
        self._path = path
        self._position = start
        self._size = 0
        self._end = end
        self._chunk = b""
        self._chunk_start = start

    def __iter__(self) -> Iterator[tuple[int, BatchHeader]]:
        position, end = self._position, self._end
        while position < end:
            at = position - self._chunk_start
            if at + HEADER_SIZE > len(self._chunk):
                self._read(position, _HEADERS_READ_BYTES)
                at = 0
                if len(self._chunk) < HEADER_SIZE:
                    left = len(self._chunk)
                    raise CorruptLog(self._path, position, f"{left} bytes left, a batch header has {HEADER_SIZE}")
            header = read_header(self._chunk, at)
            size = header.batch_length + 12  # 12 bytes come before what batch_length counts
            if header.magic != MAGIC or size < HEADER_SIZE or position + size > end:
                raise CorruptLog(self._path, position, f"magic {header.magic} and size {size} are not those of a batch")
            self._position, self._size = position, size
            yield position, header
            position += size

    def content(self) -> tuple[bytes, int]:
        """Bytes that hold the whole batch whose header was given last, and where in them it begins.
        Raises InvalidBatch.
        """
        at = self._position - self._chunk_start
        if at + self._size > len(self._chunk):
            # with the next header: large batches then cost one read each
            self._read(self._position, max(self._size + HEADER_SIZE, _CONTENT_READ_BYTES))
            at = 0
            if len(self._chunk) < self._size:
                raise InvalidBatch(f"cut off: {len(self._chunk)} bytes left of {self._size}", self._position)
        return self._chunk, at

    def _read(self, position: int, size_bytes: int) -> None:
        with storage_errors("reading", self._path):
            self._chunk = self._disk.pread(self._descriptor, min(size_bytes, self._end - position), position)
        self._chunk_start = position


def scan_file(disk: Disk, file: SharedFile, start: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """The same of a file whose descriptor is held until the reader stops, at the end or earlier.

    This module is not compiled: a compiled generator would not release the descriptor of a reader
    that stops early.
    """
    descriptor = file.acquire()
    try:
        yield from BatchScan(disk, descriptor, file.path, start, end)
    finally:
        file.release()
