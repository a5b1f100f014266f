"""Surveys the fetched bytes of a partition by batch headers.

`survey` reads only batch headers: it finds the end of the last whole batch, the offsets and epochs
of the batches, and the number of their records. It never decompresses a batch and never computes a
checksum (the target does, on every append).
"""

from __future__ import annotations

import struct
from collections.abc import Collection

from msgspec import Struct

HEADER_SIZE = 61
_LOG_OVERHEAD = 12
_MAGIC = 2
# base offset, batch length, leader epoch, magic, crc, attributes, last offset delta, base
# timestamp, max timestamp, producer id, producer epoch, base sequence, record count: the fixed head
# of a version 2 batch.
_HEADER = struct.Struct(">qiibIhiqqqhii")
assert _HEADER.size == HEADER_SIZE


class MalformedBatches(ValueError):
    """Fetched bytes are not a row of version 2 batches with growing offsets."""


class BatchRun(Struct, frozen=True, kw_only=True):
    """The whole batches at the front of some fetched bytes; `record_count` is of those that are
    carried, `size_bytes` of all.
    """

    first_offset: int
    next_offset: int
    size_bytes: int
    record_count: int
    first_epoch: int
    last_epoch: int
    max_timestamp_ms: int
    skipped_bytes: int = 0
    skipped_records: int = 0
    repeated_bytes: int = 0
    # Base offset of the first batch that is no repetition, -1 when the run has no repetitions.
    new_offset: int = -1

    @property
    def carried_bytes(self) -> int:
        """The bytes of the carried batches without repetitions."""
        return self.size_bytes - self.skipped_bytes - self.repeated_bytes

    @property
    def is_repetition(self) -> bool:
        """True if the copy has all of these batches."""
        return self.repeated_bytes == self.size_bytes

    @property
    def first_new_offset(self) -> int:
        """The first offset that the copy does not have; `next_offset` when it has all of them."""
        return self.new_offset if self.repeated_bytes else self.first_offset


def survey(records: bytes | memoryview, *, skipped: Collection[int] = (), copied_below: int = 0) -> BatchRun | None:
    """The run of whole batches in `records`, None when there is not one; an incomplete last batch
    is left out.

    Batches whose base offset is in `skipped` are not carried, and batches that end at or below
    `copied_below` are repetitions: both are counted apart, and repetitions have no timestamp.
    MalformedBatches when a length, magic, offset or epoch cannot be part of a log.
    """
    position, available = 0, len(records)
    run_first_offset = run_first_epoch = last_epoch = max_timestamp_ms = -1
    next_offset, record_count = -1, 0
    skipped_bytes = skipped_records = repeated_bytes = 0
    new_offset = -1
    unpack_from = _HEADER.unpack_from
    while available - position >= HEADER_SIZE:
        (base_offset, length, epoch, magic, _, _, last_delta, _, batch_max_timestamp, _, _, _, count) = unpack_from(
            records, position
        )
        size = length + _LOG_OVERHEAD
        if magic != _MAGIC or size < HEADER_SIZE or last_delta < 0 or base_offset < next_offset or base_offset < 0:
            raise MalformedBatches(
                f"at byte {position}: offset {base_offset} after {next_offset}, length {length}, magic {magic}, "
                f"last offset delta {last_delta}"
            )
        if epoch < last_epoch:
            raise MalformedBatches(f"at offset {base_offset}: leader epoch goes back from {last_epoch} to {epoch}")
        if position + size > available:
            break
        if run_first_offset < 0:
            run_first_offset, run_first_epoch = base_offset, epoch
        next_offset, last_epoch = base_offset + last_delta + 1, epoch
        position += size
        if next_offset <= copied_below:
            repeated_bytes += size
            continue
        if new_offset < 0:
            new_offset = base_offset
        if not skipped or base_offset not in skipped:
            record_count += count
        else:
            skipped_bytes += size
            skipped_records += count
        if batch_max_timestamp > max_timestamp_ms:
            max_timestamp_ms = batch_max_timestamp
    if not position:
        return None
    return BatchRun(
        first_offset=run_first_offset,
        next_offset=next_offset,
        size_bytes=position,
        record_count=record_count,
        first_epoch=run_first_epoch,
        last_epoch=last_epoch,
        max_timestamp_ms=max_timestamp_ms,
        skipped_bytes=skipped_bytes,
        skipped_records=skipped_records,
        repeated_bytes=repeated_bytes,
        new_offset=-1 if not repeated_bytes else next_offset if new_offset < 0 else new_offset,
    )


def joined(first: BatchRun, second: BatchRun) -> BatchRun | None:
    """The run of two that follow each other; None if one of them has repetitions or they do not
    follow each other.
    """
    if first.repeated_bytes or second.repeated_bytes or first.next_offset > second.first_offset:
        return None
    return BatchRun(
        first_offset=first.first_offset,
        next_offset=second.next_offset,
        size_bytes=first.size_bytes + second.size_bytes,
        record_count=first.record_count + second.record_count,
        first_epoch=first.first_epoch,
        last_epoch=second.last_epoch,
        max_timestamp_ms=max(first.max_timestamp_ms, second.max_timestamp_ms),
        skipped_bytes=first.skipped_bytes + second.skipped_bytes,
        skipped_records=first.skipped_records + second.skipped_records,
        new_offset=first.new_offset,
    )
