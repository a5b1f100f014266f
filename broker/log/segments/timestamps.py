"""Finds the record for a timestamp: the last step of a lookup by time, inside the batch that the
index and headers gave.

This is the only code on a client's path that opens a batch. For a batch that cannot be decoded, the
result is its first offset.

Caller: broker/log/partition_log.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from broker.log.segments.segment import Segment
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


def largest_timestamp_from(segments: Iterable[Segment], from_offset: int) -> int:
    """The largest timestamp of the records at or above `from_offset`, -1 when there is none; reads
    all headers of the segment that contains this offset.
    """
    largest = -1
    for segment in segments:
        if segment.base_offset >= from_offset:
            largest = max(largest, segment.largest_timestamp()[0])
        elif segment.next_offset > from_offset:
            largest = max(largest, _largest_within(segment, from_offset))
    return largest


def _largest_within(segment: Segment, from_offset: int) -> int:
    remaining = [header for header in segment.headers() if header.last_offset >= from_offset and header.record_count]
    if not remaining:
        return -1
    largest = max((header.max_timestamp for header in remaining[1:]), default=-1)
    return max(largest, _largest_in_batch(segment, remaining[0], from_offset))


def _largest_in_batch(segment: Segment, header: BatchHeader, from_offset: int) -> int:
    """The same of one batch, whose first records may lie below `from_offset`."""
    found = segment.find(header.base_offset)
    if header.base_offset >= from_offset or header.is_log_append_time or header.is_control or found is None:
        return header.max_timestamp
    try:
        records = decode_batch(segment.read(found.position, header.size_bytes), 0, header)
        return max((record.timestamp_ms for record in records if record.offset >= from_offset), default=-1)
    except InvalidBatch:
        return header.max_timestamp
