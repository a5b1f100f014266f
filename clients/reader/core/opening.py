"""Opens the records of raw batches: records below the position, markers and aborted records are
skipped. Pure.

All other code moves batches as bytes; callers that need records use this. Each batch's checksum is
verified before it is opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from clients.reader.core.committed import skipped_batches
from clients.reader.core.positions import Position
from wire.batches.record_batch import Buffer, InvalidBatch, iterate_headers, verify_crc
from wire.batches.records import Record, decode_batch


class Split(NamedTuple):
    """The place where a sequence of batches is split: the first part ends at byte `end`, the second
    part begins at byte `left_from`. `next` is the position at which the second part begins; a batch
    that contains this position is in both parts. `record_count` belongs to the first part.
    """

    end: int
    left_from: int
    next: Position
    record_count: int


def split_records(records: Buffer, position: Position, records_max: int) -> Split | None:
    """Split after this many records from the position on; None if the partition has at most that
    many records.

    Counts offsets, not records: the first part of a compacted batch may hold fewer records.
    """
    count, at_next = 0, position
    for at, header in iterate_headers(records):
        if header.next_offset <= position.offset:
            continue
        first_offset = max(header.base_offset, position.offset)
        batch_count = min(header.record_count, header.next_offset - first_offset)
        if count + batch_count <= records_max:
            count += batch_count
            at_next = Position(header.next_offset, header.partition_leader_epoch)
        elif count == records_max:
            return Split(at, at, at_next, count)
        else:
            split_at = Position(first_offset + records_max - count, header.partition_leader_epoch)
            return Split(at + header.size_bytes, at, split_at, records_max)
    return None


def records_in(
    records: Buffer,
    *,
    first_offset: int,
    end_offset: int | None = None,
    aborted: Iterable[tuple[int, int]] = (),
    is_committed_only: bool = False,
) -> Iterator[Record]:
    """The records from `first_offset` on, below `end_offset`. Raises InvalidBatch for a damaged
    batch, when it is reached.
    """
    skipped = skipped_batches(records, aborted=aborted) if is_committed_only else frozenset()
    for position, header in iterate_headers(records):
        if header.is_control or header.base_offset in skipped or header.next_offset <= first_offset:
            continue
        if not verify_crc(records, position, header):
            raise InvalidBatch(f"the checksum of the batch at offset {header.base_offset} does not match", position)
        for record in decode_batch(records, position, header):
            if end_offset is not None and record.offset >= end_offset:
                return
            if record.offset >= first_offset:
                yield record
