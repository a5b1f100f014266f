"""Small batches of one partition that wait together are merged into one batch.

A Produce request takes one batch for each partition, and a request costs a broker and the mirror
more than a small batch itself. A source that is written to steadily has many small batches: sent
one by one they need as many requests, and a target that cannot keep up never catches up.

Only uncompressed batches are merged: their records are copied with other deltas for offset and
timestamp, and keep their bytes otherwise. Sequences count records, so they are the same for merged
batches as for single ones, and a merged batch ends where a batch of the source ends.

  a. A batch that is larger than `SMALL_BYTES` is never merged, and a merged one is at most
     `MERGED_BYTES_MAX` long.
  b. The records of a merged batch are those of the source's batches, in their order, under one
     producer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from librt.strings import BytesWriter

from mirror.translate.core.renumbering import Piece, Stamp, stamped_header
from mirror.translate.core.translation import Planned
from wire.batches.record_batch import (
    HEADER_SIZE,
    BatchHeader,
    Buffer,
    InvalidBatch,
    PatchedBatch,
    encode_header,
    verify_crc,
)
from wire.batches.record_walks import write_shifted
from wire.batches.records import decode_batch, encode_record, open_body

SMALL_BYTES = 64 * 1024
"""Batches up to this size are merged."""

MERGED_BYTES_MAX = 512 * 1024
"""The largest merged batch: half of what a broker accepts by default."""

_DIGEST_BYTES: Final = 8
DIGEST_MASK: Final = (1 << 8 * _DIGEST_BYTES) - 1

_RECORD_GROWTH_BYTES_MAX = 12
"""What a record may grow by: 9 bytes of its timestamp delta, 2 of its offset delta, 1 of its
length.
"""


class ToSend(NamedTuple):
    """A planned batch of the source, and where it is in the fetched bytes."""

    position: int
    header: BatchHeader
    plan: Planned
    stamp: Stamp


def is_mergeable(header: BatchHeader) -> bool:
    """True if the records of the batch may become a part of a longer batch as they are."""
    return (
        not header.compression
        and header.size_bytes <= SMALL_BYTES
        and header.record_count == header.last_offset_delta + 1
        and not header.is_log_append_time
        and not header.has_delete_horizon
    )


def may_be_merged(header: BatchHeader) -> bool:
    """True if the batch may be a merged one or a part of one: its bytes are then those of no other
    batch, and its records are compared instead.
    """
    is_whole = 0 < header.record_count == header.last_offset_delta + 1
    return is_whole and not header.compression and header.size_bytes <= MERGED_BYTES_MAX


def record_digests(buffer: Buffer, position: int, header: BatchHeader) -> list[int]:
    """Digests of the records of the batch at `position`, which merging does not change. The sum of
    a merged batch's digests, in `DIGEST_MASK`, is the sum of its parts'. Raises InvalidBatch.
    """
    return [
        int.from_bytes(blake2b(encode_record(record, 0, 0), digest_size=_DIGEST_BYTES).digest())
        for record in decode_batch(buffer, position, header)
    ]


def grouped(batches: Sequence[ToSend], *, is_merging: bool) -> Iterator[Sequence[ToSend]]:
    """The batches in their order, those together that are to be merged."""
    group: list[ToSend] = []
    size_bytes = HEADER_SIZE
    for one in batches:
        grown_bytes = one.header.size_bytes + _RECORD_GROWTH_BYTES_MAX * one.header.record_count
        is_joining = (
            is_merging
            and bool(group)
            and is_mergeable(one.header)
            and is_mergeable(group[-1].header)
            and one.stamp[:2] == group[-1].stamp[:2]
            and size_bytes + grown_bytes <= MERGED_BYTES_MAX
        )
        if group and not is_joining:
            yield group
            group, size_bytes = [], HEADER_SIZE
        group.append(one)
        size_bytes += grown_bytes
    if group:
        yield group


def merged(buffer: Buffer, group: Sequence[ToSend], *, is_transactional: bool = False) -> PatchedBatch:
    """One batch with the records of the group, whose plans get their pieces. Raises InvalidBatch if
    a checksum is wrong, or if records contradict their batch.
    """
    first = group[0].header
    writer = BytesWriter()
    count = 0
    for position, header, plan, _ in group:
        if not verify_crc(buffer, position, header):
            raise InvalidBatch(f"the batch at offset {header.base_offset} fails its checksum", position)
        write_shifted(
            writer,
            open_body(buffer, position, header),
            header.record_count,
            offset_shift=count,
            timestamp_shift=header.base_timestamp - first.base_timestamp,
        )
        plan.pieces = (Piece(header.base_offset, 0, header.record_count),)
        count += header.record_count
    records = writer.getvalue()
    header = first._replace(
        batch_length=first.batch_length - first.size_bytes + HEADER_SIZE + len(records),
        last_offset_delta=count - 1,
        max_timestamp=max(one.header.max_timestamp for one in group),
        record_count=count,
    )
    stamped = stamped_header(header, group[0].stamp, is_transactional=is_transactional)
    return PatchedBatch(encode_header(stamped, records), records)
