"""Reading the transaction marker out of a control batch: the one record that the log itself must open.

A control batch holds a single uncompressed record whose key is (version, type) and whose value is (version, coordinator
epoch). Types other than abort (0) and commit (1) are left alone: they belong to Raft logs.

Callers: broker/log/partition_log.py and broker/log/loading.py.
"""

from __future__ import annotations

from typing import Final

from broker.core.producer_state import Marker
from wire.record_batch import HEADER_SIZE, BatchHeader, Buffer

_ABORT: Final = 0
_COMMIT: Final = 1


def read_marker(buffer: Buffer, position: int, header: BatchHeader) -> Marker | None:
    """The marker in the control batch at `position`; None when it holds something else."""
    record = bytes(memoryview(buffer)[position + HEADER_SIZE : position + header.size_bytes])
    try:
        key, value = _key_and_value(record)
        kind = int.from_bytes(key[2:4], "big")
        if header.compression or len(key) < 4 or kind not in (_ABORT, _COMMIT):
            return None
        coordinator_epoch = int.from_bytes(value[2:6], "big", signed=True) if len(value) >= 6 else -1
    except IndexError:
        return None
    return Marker(is_commit=kind == _COMMIT, coordinator_epoch=coordinator_epoch)


def _key_and_value(record: bytes) -> tuple[bytes, bytes]:
    _, at = _varint(record, 0)
    at += 1
    _, at = _varint(record, at)
    _, at = _varint(record, at)
    length, at = _varint(record, at)
    key = record[at : at + max(length, 0)]
    length, at = _varint(record, at + max(length, 0))
    return key, record[at : at + max(length, 0)]


def _varint(record: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = record[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return (value >> 1) ^ -(value & 1), at
        shift += 7
