"""A piece of a segment for a reader: a descriptor, a position and a length, for `os.sendfile`. The
repair of a damaged batch overwrites its slice.

The slice keeps the segment's file open until `release`, even if the segment is deleted in between.
The owner of a slice releases it exactly once, also after an error of the reader. Made by
broker/log/partition_log.py for fetches and mirrors.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Self

from broker.log.errors import storage_errors
from broker.log.segments.batch_scan import BatchScan
from broker.log.segments.descriptors import SharedFile
from runtime.disk import Disk, write_all
from wire.batches.record_batch import BatchHeader


class LogSlice:
    """Whole batches, or nothing. `base_offset` is the first batch's, `next_offset` follows the last
    batch.
    """

    __slots__ = (
        "_disk",
        "_file",
        "base_offset",
        "fd",
        "length",
        "next_offset",
        "position",
        "segment_base_offset",
    )

    def __init__(
        self,
        disk: Disk,
        file: SharedFile | None,
        *,
        position: int,
        length: int,
        base_offset: int,
        next_offset: int,
        segment_base_offset: int,
    ) -> None:
        self._disk = disk
        self._file = file if length else None
        self.fd = self._file.acquire() if self._file else -1
        self.position = position
        self.length = length
        self.base_offset = base_offset
        self.next_offset = next_offset
        self.segment_base_offset = segment_base_offset

    def __len__(self) -> int:
        return self.length

    def read_bytes(self) -> bytes:
        """The batches as bytes."""
        if self._file is None:
            return b""
        with storage_errors("reading", self._file.path):
            return self._disk.pread(self.fd, self.length, self.position)

    def overwrite(self, content: bytes) -> None:
        """Overwrite the first bytes of the slice; they are durable after `sync`."""
        if self._file is not None:
            with storage_errors("writing", self._file.path):
                write_all(self._disk, self.fd, [content], self.position)

    def sync(self) -> None:
        """Bring to the disk what was written over; may run in a thread."""
        if self._file is not None:
            with storage_errors("flushing", self._file.path):
                self._disk.fdatasync(self.fd)

    def headers(self) -> Iterator[BatchHeader]:
        """The headers of the batches, in log order; may run in a thread. CorruptLog."""
        if self._file is not None:
            end = self.position + self.length
            for _, header in BatchScan(self._disk, self.fd, self._file.path, self.position, end):
                yield header

    def release(self) -> None:
        """Release the segment's file; a second call does nothing."""
        if self._file is not None:
            file, self._file = self._file, None
            self.fd = -1
            file.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()
