"""Finds the record of a timestamp: the last step of a lookup by time, inside the batch that the
index and headers led to.

The only place on a client's path where a batch is opened. A batch that does not decode counts as
its first offset: the lookup is then exact to the batch.

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
    """The first record at or above `from_offset` that is of `timestamp_ms` or later; None when the
    batch has none.
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
