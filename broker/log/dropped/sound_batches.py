"""Finds the sound batches behind damaged bytes.

A reader of a log ends at the first damaged batch: it cannot trust the length there. Later batches
may still be whole, because a disk loses single pages. They are recognised here by their headers and
checksums at any position. A whole batch inside the value of a record cannot be distinguished from
one of the log.

Callers: dropped_batches.py and kept_batches.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from crc32c import crc32c

from broker.log.errors import storage_errors
from runtime.disk import Disk
from wire.batches.record_batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader, read_header

_WINDOW_BYTES: Final = 1 << 20
_MAGIC_AT: Final = 16
_CRC_START: Final = 21
_ATTRIBUTES_MAX: Final = 0x7F
"""Kafka uses the seven lowest bits."""
_RECORD_BYTES_MIN: Final = 7
"""The smallest record that is not compressed."""
_CODEC_MASK: Final = 0x07
_CHECKS_MAX: Final = 8
"""Wrong headers are checked until their batches have this multiple of the searched bytes: values of
a client may contain thousands of headers that claim all the bytes behind them.
"""


def sound_batches(
    disk: Disk, descriptor: int, path: str, start: int, end: int, *, from_offset: int = 0, from_epoch: int = -1
) -> Iterator[tuple[BatchHeader, bytes]]:
    """Headers and bytes of the sound batches between these positions of a file. Their offsets and
    leader epochs go up, and begin at `from_offset` and `from_epoch`: lower ones are truncated bytes
    that a crash brought back. Ends early after too many wrong headers.
    """
    position, window, window_start = start, b"", start
    checks_left_bytes = _CHECKS_MAX * (end - start)
    while position + HEADER_SIZE <= end:
        if position + HEADER_SIZE > window_start + len(window):
            window_start = position
            window = _read(disk, descriptor, path, position, min(_WINDOW_BYTES, end - position))
            if len(window) < HEADER_SIZE:
                return
        found = window.find(MAGIC, position - window_start + _MAGIC_AT)
        if found < 0:
            # a header that begins in the last bytes of this window has its magic in the next one
            position = window_start + len(window) - _MAGIC_AT
            continue
        position = window_start + found - _MAGIC_AT
        if position + HEADER_SIZE > window_start + len(window):
            continue
        at = position - window_start
        header = read_header(window, at)
        if _is_plausible(header, end - position, from_offset, from_epoch):
            size = header.size_bytes
            content = window[at : at + size] if at + size <= len(window) else b""
            crc = crc32c(content[_CRC_START:]) if content else _checksum(disk, descriptor, path, position, size)
            if crc == header.crc:
                yield header, content or _read(disk, descriptor, path, position, size)
                from_offset, from_epoch = header.next_offset, header.partition_leader_epoch
                position += size
                continue
            checks_left_bytes -= size
            if checks_left_bytes < 0:
                return
        position += 1


def _read(disk: Disk, descriptor: int, path: str, position: int, size_bytes: int) -> bytes:
    with storage_errors("reading", path):
        return disk.pread(descriptor, size_bytes, position)


def _checksum(disk: Disk, descriptor: int, path: str, position: int, size_bytes: int) -> int:
    """The checksum of a batch that is larger than a window, if it is one at all."""
    at, end, crc = position + _CRC_START, position + size_bytes, 0
    while at < end and (piece := _read(disk, descriptor, path, at, min(_WINDOW_BYTES, end - at))):
        crc = crc32c(piece, crc)
        at += len(piece)
    return crc


def _is_plausible(header: BatchHeader, room_bytes: int, from_offset: int, from_epoch: int) -> bool:
    """Whether the checksum is worth computing: random bytes look like a header now and then."""
    if not HEADER_SIZE - LOG_OVERHEAD <= header.batch_length <= room_bytes - LOG_OVERHEAD:
        return False
    if header.base_offset < from_offset or header.partition_leader_epoch < from_epoch:
        return False
    if not 0 <= header.attributes <= _ATTRIBUTES_MAX or header.last_offset_delta < 0:
        return False
    if not 0 <= header.record_count <= header.last_offset_delta + 1:
        return False
    is_compressed = bool(header.attributes & _CODEC_MASK)
    return is_compressed or header.record_count * _RECORD_BYTES_MIN <= header.batch_length
