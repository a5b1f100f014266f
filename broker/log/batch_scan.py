"""Walking the batch headers of a segment file with few reads.

For lookups inside a segment that was checked when it was written or recovered: headers only, no checksums. A size that
cannot be right raises `CorruptLog`, it is never followed. Recovery has its own, suspicious walk (broker/log/recovery.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from broker.log.errors import CorruptLog, storage_errors
from runtime.disk import Disk
from wire.record_batch import HEADER_SIZE, MAGIC, BatchHeader, read_header

_READ_BYTES: Final = 8192


def scan_headers(disk: Disk, descriptor: int, path: str, start: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """Positions and headers of the batches from `start`, which must be a batch's first byte, up to `end`."""
    position, chunk, chunk_start = start, b"", start
    while position < end:
        at = position - chunk_start
        if at + HEADER_SIZE > len(chunk):
            with storage_errors("reading", path):
                chunk = disk.pread(descriptor, min(_READ_BYTES, end - position), position)
            chunk_start, at = position, 0
            if len(chunk) < HEADER_SIZE:
                raise CorruptLog(path, position, f"{len(chunk)} bytes left, a batch header has {HEADER_SIZE}")
        header = read_header(chunk, at)
        size = header.batch_length + 12
        if header.magic != MAGIC or size < HEADER_SIZE or position + size > end:
            raise CorruptLog(path, position, f"magic {header.magic} and size {size} are not those of a batch")
        yield position, header
        position += size
