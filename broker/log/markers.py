"""Reading the transaction marker out of a control batch: the one record that the log itself must open.

A control batch holds a single uncompressed record whose key is (version, type) and whose value is (version, coordinator
epoch). Types other than abort (0) and commit (1) are left alone: they belong to Raft logs.

Callers: broker/log/partition_log.py and broker/log/loading.py.
"""

from __future__ import annotations

from typing import Final

from broker.core.producer_state import Marker
from wire.record_batch import BatchHeader, Buffer, InvalidBatch
from wire.records import decode_batch

_ABORT: Final = 0
_COMMIT: Final = 1


def read_marker(buffer: Buffer, position: int, header: BatchHeader) -> Marker | None:
    """The marker in the control batch at `position`; None when it holds something else."""
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
