"""Files beside the partitions' folders that keep batches which a log loses.

A file is a sequence of unchanged batches, as in a segment. The functions block.
Callers: broker/log/dropped/dropped_batches.py and broker/replication/truncated_records.py.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from itertools import chain
from typing import Final

from broker.log.dropped.sound_batches import sound_batches
from broker.log.errors import CorruptLog
from broker.log.segments.batch_scan import BatchScan
from runtime.disk import Disk, write_all
from runtime.logs import get_logger
from wire.batches.record_batch import BatchHeader

log = get_logger(__name__)

_PIECE_BYTES: Final = 1 << 20


def whole_end(disk: Disk, path: str) -> int:
    """The end of the last whole batch in a file of truncated records, in bytes, after repair:
    readers of the file do not find what lies behind other bytes. An interrupted copy may have left
    a part of a batch, which is removed. Damaged bytes in front of sound batches are removed too.
    Blocks. OSError, StorageError.
    """
    descriptor = disk.open(path, os.O_RDWR | os.O_CREAT)
    try:
        size = disk.size(descriptor)
        end = 0
        with contextlib.suppress(CorruptLog):
            for position, header in BatchScan(disk, descriptor, path, 0, size):
                end = position + header.size_bytes
        if end == size:
            return end
        behind = sound_batches(disk, descriptor, path, end, size)
        first = next(behind, None)
        if first is None:
            disk.truncate(descriptor, end)
            return end
        return _without_damage(disk, descriptor, path, end, chain([first], behind))
    finally:
        disk.close(descriptor)


def _without_damage(disk: Disk, damaged: int, path: str, end: int, behind: Iterable[tuple[BatchHeader, bytes]]) -> int:
    """Replace the file by one of its content up to `end` and the batches behind; its new size."""
    temporary = f"{path}.tmp"
    descriptor = disk.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        written = 0
        while written < end:
            written += write_all(
                disk, descriptor, [disk.pread(damaged, min(_PIECE_BYTES, end - written), written)], written
            )
        for _, content in behind:
            written += write_all(disk, descriptor, [content], written)
        disk.fdatasync(descriptor)
    finally:
        disk.close(descriptor)
    log.warning(
        "damaged bytes removed from a file of truncated records",
        path=path,
        position=end,
        removed_bytes=disk.size(damaged) - written,
        kept_bytes_behind=written - end,
    )
    disk.rename(temporary, path)
    disk.fsync_directory(os.path.dirname(path))
    return written


def keep_batches(disk: Disk, path: str, batches: Iterable[tuple[BatchHeader, bytes]], bytes_max: int) -> int:
    """Append the batches to the file, and return when it is on disk: how many bytes. Ends where the
    file would become larger than `bytes_max`. OSError, StorageError.
    """
    kept_bytes, descriptor = 0, -1
    try:
        for _, content in batches:
            if descriptor < 0:
                begin = whole_end(disk, path)
                descriptor = disk.open(path, os.O_RDWR | os.O_CREAT)
            if begin + kept_bytes + len(content) > bytes_max:
                break
            kept_bytes += write_all(disk, descriptor, [content], begin + kept_bytes)
        if kept_bytes:
            disk.fdatasync(descriptor)
            disk.fsync_directory(os.path.dirname(path))
    finally:
        if descriptor >= 0:
            disk.close(descriptor)
    return kept_bytes
