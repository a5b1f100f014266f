"""Reading the transaction marker out of a control batch: the one record that the log itself must
open.

A control batch holds a single uncompressed record whose key is (version, type) and whose value is
(version, coordinator epoch). Types other than abort (0) and commit (1) are ignored: they belong to
Raft logs. A transaction's marker is the same in each of its partitions but for the header, so
decoded small markers are cached by their bytes.

Callers: broker/log/partition_log.py and broker/log/loading.py.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

from broker.log.core.producer_values import Marker
from wire.batches.record_batch import HEADER_SIZE, BatchHeader, Buffer, InvalidBatch, read_header
from wire.batches.records import decode_batch, seal_batch

_ABORT: Final = 0
_COMMIT: Final = 1
_SMALL_BYTES: Final = 64  # a marker's record has 17 bytes
_REMEMBERED_MAX: Final = 256  # kinds times coordinator epochs in use


def read_marker(buffer: Buffer, position: int, header: BatchHeader) -> Marker | None:
    """The marker in the control batch at `position`; None when it holds something else."""
    size_bytes = header.size_bytes
    if header.record_count == 1 and size_bytes <= HEADER_SIZE + _SMALL_BYTES and not header.compression:
        return _marker_in(bytes(buffer[position + HEADER_SIZE : position + size_bytes]))
    return _decoded(buffer, position, header)


@lru_cache(maxsize=_REMEMBERED_MAX)
def _marker_in(record: bytes) -> Marker | None:
    batch = seal_batch(record, record_count=1, base_timestamp=0, max_timestamp=0)
    return _decoded(batch, 0, read_header(batch))


def _decoded(buffer: Buffer, position: int, header: BatchHeader) -> Marker | None:
    try:
        record = next(decode_batch(buffer, position, header), None)
    except InvalidBatch:
        return None
    if record is None or record.key is None or len(record.key) < 4:
        return None
    kind = int.from_bytes(record.key[2:4], "big")
    if kind not in (_ABORT, _COMMIT):
        return None
    value = record.value or b""
    coordinator_epoch = int.from_bytes(value[2:6], "big", signed=True) if len(value) >= 6 else -1
    return Marker(is_commit=kind == _COMMIT, coordinator_epoch=coordinator_epoch)
