"""The check of a segment after a crash: every header and checksum is verified, nothing is trusted.

Reads in large pieces into one buffer: memory stays bounded even if lengths are damaged, and a batch
larger than the buffer is checked piece by piece. The buffer is small enough to stay in a core's
cache between the read and the checksum. It ends at the first byte that does not begin a valid
batch: a torn write, zeros, noise, a decreasing offset. The caller drops what follows
(broker/log/loading.py), and reports it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c
from msgspec import Struct
from msgspec.structs import replace

from broker.log.core.batch_checks import lacks_records
from broker.log.core.retention import RELATIVE_OFFSET_MAX
from broker.log.errors import storage_errors
from runtime.disk import Disk
from wire.batches.record_batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader, read_header

_WINDOW_BYTES: Final = 5 * 256 * 1024
"""One batch of the default `max.message.bytes`, and some more."""
_CRC_START: Final = 21  # attributes begin here: the checksum leaves out what brokers patch
_KEEP_GIL: Final = 0
"""Keeps the interpreter's lock for checksums of microseconds: releasing it costs more while other
threads recover other logs.
"""


class DroppedTail(NamedTuple):
    """Bytes that recovery truncated: the first offset, the file, and the reason. `kept_bytes` of
    them are in the partition's file of truncated records.
    """

    path: str
    offset: int
    dropped_bytes: int
    reason: str
    kept_bytes: int = 0


class RecoveryReport(Struct, frozen=True, kw_only=True):
    """The result of checking a log when it was opened: checked and dropped data; `is_clean` when
    nothing had to be checked.
    """

    directory: str
    is_clean: bool
    scanned_segments: int = 0
    scanned_bytes: int = 0
    last_hole: int = -1
    dropped: tuple[DroppedTail, ...] = ()
    notes: tuple[str, ...] = ()

    def with_note(self, note: str) -> RecoveryReport:
        """The same with one sentence more."""
        return replace(self, notes=(*self.notes, note))


class SegmentCheck:
    """Checks one segment file of `size_bytes`; afterwards `valid_bytes`, `next_offset`, `epoch` and
    `fault` describe the valid part. `epoch` is that of the last batch before it.
    """

    def __init__(
        self, disk: Disk, descriptor: int, path: str, *, size_bytes: int, base_offset: int, epoch: int = -1
    ) -> None:
        self._disk = disk
        self._descriptor = descriptor
        self._path = path
        self._size = size_bytes
        self._base_offset = base_offset
        self._buffer = memoryview(bytearray(min(_WINDOW_BYTES, max(size_bytes, HEADER_SIZE))))
        self.epoch = epoch
        self._start = 0
        self._filled = 0
        self.valid_bytes = 0
        self.next_offset = base_offset
        self.fault = ""
        self.last_hole = -1
        """The base offset of the last batch before which, or in which, records are missing."""
        self.has_zeros_left = False
        """After `look_for_zeros`: True if only zeros lie behind the last sound batch, as in a
        preallocated file.
        """

    def look_for_zeros(self) -> None:
        """Find out what lies behind the last sound batch."""
        at = self.valid_bytes
        while at < self._size:
            with storage_errors("reading", self._path):
                piece = self._disk.pread(self._descriptor, min(_WINDOW_BYTES, self._size - at), at)
            if not piece or piece.count(0) < len(piece):
                return
            at += len(piece)
        self.has_zeros_left = True

    def batches(self) -> Iterator[tuple[int, BatchHeader]]:
        """Positions and headers of the sound batches from the beginning of the file."""
        buffer = self._buffer
        while (position := self.valid_bytes) < self._size:
            at = position - self._start
            if self._filled - at < HEADER_SIZE:
                self._fill(position)
                at = 0
                if self._filled < HEADER_SIZE:
                    self.fault = f"{self._size - position} bytes are too few for a batch header"
                    return
            header = read_header(buffer, at)
            self.fault = self._header_fault(header, position)
            if self.fault:
                return
            size = LOG_OVERHEAD + header.batch_length
            # `at` prevents reading again what is already at the buffer's start
            if self._filled - at < size and at and size <= len(buffer):
                self._fill(position)
                at = 0
            if self._filled - at >= size:
                crc = crc32c(buffer[at + _CRC_START : at + size], 0, _KEEP_GIL)
            else:
                crc = self._crc_in_pieces(position, size)
            if crc != header.crc:
                self.fault = f"checksum {crc:08x} of batch {header.base_offset} is not the stored {header.crc:08x}"
                return
            self.valid_bytes = position + size
            if lacks_records(header, self.next_offset):
                self.last_hole = header.base_offset
            self.next_offset = header.base_offset + header.last_offset_delta + 1
            if header.partition_leader_epoch > self.epoch:
                self.epoch = header.partition_leader_epoch
            yield position, header

    def content(self, position: int, header: BatchHeader) -> memoryview:
        """Bytes of the batch that `batches` has just yielded, valid until the next one is
        requested; empty if it is larger than the window.
        """
        at = position - self._start
        whole = at >= 0 and self._filled - at >= header.size_bytes
        return self._buffer[at : at + header.size_bytes] if whole else self._buffer[:0]

    def _header_fault(self, header: BatchHeader, position: int) -> str:
        # the magic first: the other fields have other meanings in older formats
        if header.magic != MAGIC:
            return f"magic {header.magic} instead of {MAGIC}"
        if not HEADER_SIZE - LOG_OVERHEAD <= header.batch_length <= self._size - position - LOG_OVERHEAD:
            return f"batch length {header.batch_length} with {self._size - position} bytes left: a torn write"
        if 0 <= header.partition_leader_epoch < self.epoch:
            # truncated bytes that a crash brought back
            return f"leader epoch {header.partition_leader_epoch} after {self.epoch}"
        if header.base_offset < self.next_offset:
            return f"base offset {header.base_offset} below the expected {self.next_offset}"
        if not header.last_offset_delta >= 0 or not 0 <= header.record_count <= header.last_offset_delta + 1:
            return f"{header.record_count} records for {header.last_offset_delta + 1} offsets"
        if header.last_offset - self._base_offset > RELATIVE_OFFSET_MAX:
            return f"offset {header.last_offset} is out of the segment's reach"
        return ""

    def _fill(self, position: int) -> None:
        """Fill the buffer with the file's content from `position` on."""
        with storage_errors("reading", self._path):
            self._start, self._filled = position, 0
            wanted = min(len(self._buffer), self._size - position)
            while self._filled < wanted:
                got = self._disk.preadv(
                    self._descriptor, [self._buffer[self._filled : wanted]], position + self._filled
                )
                if got == 0:
                    break
                self._filled += got

    def _crc_in_pieces(self, position: int, size: int) -> int:
        crc, at, end = 0, position + _CRC_START, position + size
        while at < end:
            with storage_errors("reading", self._path):
                piece = self._disk.pread(self._descriptor, min(_WINDOW_BYTES, end - at), at)
            if not piece:
                break
            crc = crc32c(piece, crc)
            at += len(piece)
        return crc
