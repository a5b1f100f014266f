"""Finds the record for a timestamp: the last step of a lookup by time, inside the batch that the
index and headers gave.

This is the only code on a client's path that opens a batch. For a batch that cannot be decoded, the
result is its first offset.

Caller: broker/log/partition_log.py.
"""

from __future__ import annotations

from typing import NamedTuple

from wire.batches.record_batch import BatchHeader, InvalidBatch
from wire.batches.records import decode_batch


class TimestampOffset(NamedTuple):
    """A record found by its time; `leader_epoch` -1 when unknown."""

    offset: int
    timestamp_ms: int
    leader_epoch: int = -1


def first_record_at(batch: bytes, header: BatchHeader, timestamp_ms: int, from_offset: int) -> TimestampOffset | None:
    """The first record at or above `from_offset` with `timestamp_ms` or later; None if the batch
    has none.
    """
    first = max(header.base_offset, from_offset)
    if header.is_log_append_time or header.is_control:
        return TimestampOffset(first, header.max_timestamp)
    try:
        for record in decode_batch(batch, 0, header):
            if record.timestamp_ms >= timestamp_ms and record.offset >= from_offset:
                return TimestampOffset(record.offset, record.timestamp_ms)
    except InvalidBatch:
        return TimestampOffset(first, header.max_timestamp)
    return None
