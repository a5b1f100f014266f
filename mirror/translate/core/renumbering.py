"""Prepares a source's batch for a target that assigns its own offsets: new producer, new sequence,
new checksum, same records.

The records are neither opened nor read. Only the 61 bytes before them change, and the CRC-32C
changes with these bytes alone (`wire/batches/checksums.py`). A batch that was damaged at the source
or on the way therefore keeps a wrong checksum, and the target refuses it. Only two kinds of batches
are rewritten, since no broker takes them from a producer as they are: those with holes, which
compaction leaves behind, and those stamped by their broker (LogAppendTime), whose records would get
other times.

The reader decides what is skipped (`record_filter.py`), the writer stamps the batch (`renumber`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from wire.batches.record_batch import (
    TRANSACTIONAL_BIT,
    BatchHeader,
    Buffer,
    Compression,
    InvalidBatch,
    PatchedBatch,
    patch_header,
    verify_crc,
)
from wire.batches.records import Record, decode_batch, encode_batch

SEQUENCE_MASK = 0x7FFFFFFF
"""Sequences wrap after 2^31 - 1."""

_CODEC_BITS = 0x07


class Piece(NamedTuple):
    """`record_count` records of a batch that lie at consecutive source offsets, from its record
    number `first_record` on.
    """

    source_offset: int
    first_record: int
    record_count: int


class Stamp(NamedTuple):
    """The producer of a batch, and the number of its earlier records."""

    producer_id: int
    producer_epoch: int
    sequence: int


class Renumbered(Struct, frozen=True):
    """A batch for the target's log in two pieces, and the source offsets of its records."""

    batch: PatchedBatch
    pieces: tuple[Piece, ...]


def renumber(
    buffer: Buffer, position: int, header: BatchHeader, stamp: Stamp, *, is_transactional: bool = False
) -> Renumbered:
    """The batch at `position` under another producer; a wrong checksum stays wrong. Raises
    InvalidBatch if a batch whose records are written anew has a wrong one.
    """
    if header.is_log_append_time or header.record_count != header.last_offset_delta + 1:
        if not verify_crc(buffer, position, header):
            raise InvalidBatch(f"the batch at offset {header.base_offset} fails its checksum", position)
        return _written_anew(buffer, position, header, stamp, TRANSACTIONAL_BIT if is_transactional else 0)
    stamped = stamped_header(header, stamp, is_transactional=is_transactional)
    batch = patch_header(buffer, position, header, stamped)
    return Renumbered(batch, (Piece(header.base_offset, 0, header.record_count),))


def stamped_header(header: BatchHeader, stamp: Stamp, *, is_transactional: bool) -> BatchHeader:
    """The header with the same counts, times and codec, as a producer sends it."""
    return header._replace(
        base_offset=0,
        partition_leader_epoch=-1,
        attributes=header.attributes & _CODEC_BITS | (TRANSACTIONAL_BIT if is_transactional else 0),
        producer_id=stamp.producer_id,
        producer_epoch=stamp.producer_epoch,
        base_sequence=stamp.sequence,
    )


def _written_anew(buffer: Buffer, position: int, header: BatchHeader, stamp: Stamp, added_bits: int) -> Renumbered:
    records = list(decode_batch(buffer, position, header))
    batch = encode_batch(
        records,
        compression=Compression(header.compression),
        producer_id=stamp.producer_id,
        producer_epoch=stamp.producer_epoch,
        base_sequence=stamp.sequence,
        attributes=added_bits,
    )
    return Renumbered(PatchedBatch(b"", batch), _pieces_of(records))


def _pieces_of(records: Sequence[Record]) -> tuple[Piece, ...]:
    pieces: list[Piece] = []
    for index, record in enumerate(records):
        last = pieces[-1] if pieces else None
        if last is not None and record.offset == last.source_offset + last.record_count:
            pieces[-1] = last._replace(record_count=last.record_count + 1)
        else:
            pieces.append(Piece(record.offset, index, 1))
    return tuple(pieces)


def next_sequence(sequence: int, count: int) -> int:
    """The sequence `count` records further on."""
    return (sequence + count) & SEQUENCE_MASK
