"""A batch that compaction keeps: unchanged, empty, or rewritten with fewer records."""

from __future__ import annotations

from typing import NamedTuple

from wire.batches.codecs import compress
from wire.batches.record_batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    BatchHeader,
    Compression,
    InvalidBatch,
    encode_header,
    verify_crc,
)
from wire.batches.record_walks import RecordSpan
from wire.batches.records import open_body, with_timestamp_delta

_COMPRESSION_MASK = 0x07


_DELETE_HORIZON_BIT = 0x40


def opened(header: BatchHeader, content: bytes, at: int) -> tuple[bytes, int, int]:
    """The decompressed records of the batch at `at`: bytes, and the range of the records in them.
    Uncompressed records are not copied.
    """
    if header.compression == Compression.NONE:
        return content, at + HEADER_SIZE, at + header.size_bytes
    body = open_body(content, at, header)
    return body, 0, len(body)


def check_crc(header: BatchHeader, content: bytes, at: int) -> None:
    """Check the old checksum before a batch gets a new one."""
    if not verify_crc(content, at, header):
        raise InvalidBatch(f"the checksum of batch {header.base_offset} is wrong, it cannot be written anew", 0)


def empty_batch(header: BatchHeader) -> KeptBatch:
    """The batch without its records: its offsets and its producer's fields."""
    emptied = header._replace(
        batch_length=HEADER_SIZE - LOG_OVERHEAD,
        attributes=header.attributes & ~(_DELETE_HORIZON_BIT | _COMPRESSION_MASK),
        # deltas of an empty batch refer to nothing; Kafka writes the largest timestamp here too
        base_timestamp=header.max_timestamp,
        record_count=0,
    )
    return KeptBatch(emptied, encode_header(emptied, b""), 0)


def rewritten(header: BatchHeader, body: bytes, kept: list[RecordSpan], new_horizon_ms: int | None) -> KeptBatch:
    """The batch with fewer records. A new delete horizon takes the place of the base timestamp, and
    deltas refer to it.
    """
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if new_horizon_ms is None:
        pieces = [body[span.start : span.end] for span in kept]
    else:
        shift_ms = base_timestamp - new_horizon_ms
        pieces = [with_timestamp_delta(body, span, span.timestamp_delta + shift_ms) for span in kept]
        attributes, base_timestamp = attributes | _DELETE_HORIZON_BIT, new_horizon_ms
    packed = compress(b"".join(pieces), Compression(header.compression))
    largest = header.base_timestamp + max(span.timestamp_delta for span in kept)
    rewritten = header._replace(
        batch_length=HEADER_SIZE - LOG_OVERHEAD + len(packed),
        attributes=attributes,
        base_timestamp=base_timestamp,
        # under LogAppendTime the header's time is the record's time: records do not have their own
        max_timestamp=header.max_timestamp if header.is_log_append_time else largest,
        record_count=len(kept),
    )
    return KeptBatch(rewritten, encode_header(rewritten, packed) + packed, 0)


class KeptBatch(NamedTuple):
    """A batch that is kept: its header, and the bytes that contain it from `at` on."""

    header: BatchHeader
    content: bytes
    at: int
