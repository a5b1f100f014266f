"""`<offset>.snapshot`: the state of all producers of a partition at an offset, in Kafka's format,
version 1.

Written when a segment is rolled and when the log is closed, so that a start replays only what came
after. A snapshot that does not match its checksum is removed and the one before it used; that costs
time, never correctness.

Callers: broker/log/loading.py, broker/log/partition_log.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final

from crc32c import crc32c

from broker.log.core.producer_values import SnapshotEntry
from broker.log.errors import storage_errors
from runtime.disk import Disk, read_file, write_over

_HEAD: Final = Struct(">hIi")
_BODY_START: Final = 6  # the checksum covers the count and the entries
_ENTRY: Final = Struct(">qhiqiqiq")
_VERSION: Final = 1


def encode_snapshot(entries: Iterable[SnapshotEntry]) -> bytes:
    """The content of a snapshot file."""
    body = b"".join(_ENTRY.pack(*entry) for entry in entries)
    count = len(body) // _ENTRY.size
    crc = crc32c(body, crc32c(count.to_bytes(4, "big")))
    return _HEAD.pack(_VERSION, crc, count) + body


def decode_snapshot(content: bytes) -> list[SnapshotEntry] | None:
    """The entries of a snapshot file, None when it is damaged."""
    if len(content) < _HEAD.size:
        return None
    version, crc, count = _HEAD.unpack_from(content)
    is_sound = version == _VERSION and crc == crc32c(content[_BODY_START:])
    if not is_sound or count < 0 or len(content) != _HEAD.size + count * _ENTRY.size:
        return None
    return [SnapshotEntry(*entry) for entry in _ENTRY.iter_unpack(content[_HEAD.size :])]


def write_snapshot(disk: Disk, path: str, entries: Iterable[SnapshotEntry]) -> None:
    """Write a snapshot file; a flush makes it durable. A crash before that may leave a damaged one,
    which is not used.
    """
    with storage_errors("writing", path):
        write_over(disk, path, encode_snapshot(entries))


def read_snapshot(disk: Disk, path: str) -> list[SnapshotEntry] | None:
    """The entries of a snapshot file, None when it is damaged."""
    with storage_errors("reading", path):
        return decode_snapshot(read_file(disk, path))
