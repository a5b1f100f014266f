"""Single records inside of batches: building and opening them, with all codecs.

For compaction, lookups by time, tests, the drills' load and deep reconciliation only. Nothing on the data path calls this: brokers
and mirrors move batches as bytes. Pure Python, some hundred thousand records a second. Layout: the Kafka protocol's "Record" (KIP-98).
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import lz4.frame
import snappy
import zstandard

from wire.record_batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    Buffer,
    Compression,
    InvalidBatch,
    encode_header,
    iterate_headers,
)

DECOMPRESSED_BYTES_MAX: Final = 512 * 1024 * 1024
"""A batch that opens to more than this is refused: bounds what a few bytes can make of memory."""

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE: Final = 16
_CHUNK_BYTES: Final = 1 << 20
_NULL_LENGTH: Final = 1
"""How a length of -1 is written."""
_TWO_BYTES_MAX: Final = 0x3FFF
_NAME_ERRORS: Final = "surrogateescape"
_INT32: Final = struct.Struct(">i")


class Record(NamedTuple):
    """A record with its place in the log. Decoding fills all fields; encoding numbers the offsets itself.

    The protocol wants names of headers in UTF-8 and brokers do not check it: other bytes are kept as surrogate escapes (PEP 383), which
    `printable_name` shows.
    """

    key: bytes | None
    value: bytes | None
    timestamp_ms: int = 0
    headers: Sequence[tuple[str, bytes | None]] = ()
    offset: int = -1


class RecordSpan(NamedTuple):
    """Where a record lies in the opened body of its batch, from `start` to `end`, and what decides whether it is kept.

    `after_time` is where its timestamp ends; deltas refer to the batch's base offset and base timestamp.
    """

    start: int
    after_time: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    is_tombstone: bool


def printable_name(name: str) -> str:
    """The name of a header as text that every encoder takes: bytes that are no UTF-8 as `\\xNN`."""
    return name.encode(errors=_NAME_ERRORS).decode(errors="backslashreplace")


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    compression: Compression = Compression.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
) -> bytes:
    """A batch with these records at consecutive offsets from `base_offset`. `attributes` adds bits to the codec's."""
    if not records:
        raise ValueError("a batch has at least one record")
    base_timestamp = records[0].timestamp_ms
    body = b"".join(encode_record(record, delta, base_timestamp) for delta, record in enumerate(records))
    return seal_batch(
        body,
        record_count=len(records),
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp_ms for record in records),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        compression=compression,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        attributes=attributes,
    )


def seal_batch(
    body: bytes,
    *,
    record_count: int,
    base_timestamp: int,
    max_timestamp: int,
    base_offset: int = 0,
    leader_epoch: int = -1,
    compression: Compression = Compression.NONE,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    attributes: int = 0,
) -> bytes:
    """A batch around records that are encoded already (`encode_record`, deltas from 0 on)."""
    compressed = compress(body, compression)
    header = BatchHeader(
        base_offset=base_offset,
        batch_length=HEADER_SIZE - LOG_OVERHEAD + len(compressed),
        partition_leader_epoch=leader_epoch,
        magic=MAGIC,
        crc=0,
        attributes=attributes | compression,
        last_offset_delta=record_count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=record_count,
    )
    return encode_header(header, compressed) + compressed


def decode_records(buffer: Buffer) -> Iterator[Record]:
    """All records of the batches in `buffer`, control batches left out. Raises InvalidBatch; does not check CRCs."""
    for position, header in iterate_headers(buffer):
        if not header.is_control:
            yield from decode_batch(buffer, position, header)


def decode_batch(buffer: Buffer, position: int, header: BatchHeader) -> Iterator[Record]:
    """The records of the batch at `position`. Raises InvalidBatch when they are not what the header says."""
    body = open_body(buffer, position, header)
    at = 0
    for _ in range(header.record_count):
        try:
            record, at = _read_record(body, at, header)
        except (IndexError, ValueError) as error:
            raise InvalidBatch(f"record at byte {at} of its body: {error}", position) from error
        yield record
    if at != len(body):
        raise InvalidBatch(f"{len(body) - at} bytes after the last record", position)


def open_body(buffer: Buffer, position: int, header: BatchHeader) -> bytes:
    """The records section of the batch at `position` without its codec. Raises InvalidBatch."""
    with memoryview(buffer) as view:
        compressed = bytes(view[position + HEADER_SIZE : position + header.size_bytes])
    try:
        return decompress(compressed, header.compression)
    except Exception as error:
        # Each codec has its own errors, some of them plain Exception or RuntimeError.
        raise InvalidBatch(f"cannot be decompressed: {error}", position) from error


def read_keys(
    buffer: bytes, start: int, end: int, record_count: int, base_offset: int, offsets: dict[bytes | None, int]
) -> int:
    """Note the offset of each key's last record in an opened body, `buffer` from `start` to `end`; how many records are tombstones.

    Raises InvalidBatch when the records do not fill the body. What compaction spends its time on, half a microsecond a record: numbers
    of one or two bytes, as most are, are read in place, and nothing is made but the key.
    """
    at, tombstone_count = start, 0
    try:
        for _ in range(record_count):
            number = buffer[at]
            if number > 127:
                at += 1
                number += (buffer[at] << 7) - 128
                if number > _TWO_BYTES_MAX:
                    number, at = _read_last_byte(buffer, at - 1)
            record_end = at + 1 + (number >> 1)
            if number & 1 or record_end > end:
                raise ValueError(f"a length that does not fit the {end - at} bytes that are left")  # noqa: TRY301
            at += 2
            if buffer[at] > 127:
                _, at = _read_last_byte(buffer, at)
            at += 1
            delta = buffer[at]
            if delta > 127:
                at += 1
                delta += (buffer[at] << 7) - 128
                if delta > _TWO_BYTES_MAX:
                    delta, at = _read_last_byte(buffer, at - 1)
            at += 1
            number = buffer[at]
            if number > 127:
                number, at = _read_last_byte(buffer, at)
            at += 1
            value_at = at + (number >> 1)
            if value_at >= record_end or (number & 1 and number > 1):
                raise ValueError("a record does not have its declared size")  # noqa: TRY301
            tombstone_count += buffer[value_at] == _NULL_LENGTH
            offsets[None if number & 1 else buffer[at:value_at]] = base_offset + (delta >> 1)
            at = record_end
    except (IndexError, ValueError) as error:
        raise InvalidBatch(f"record at byte {at - start} of its body: {error}", 0) from error
    if at != end:
        raise InvalidBatch(f"{end - at} bytes after the last record", 0)
    return tombstone_count


def record_spans(body: bytes, record_count: int) -> list[RecordSpan]:
    """The records of an opened body, whose values and headers are not looked at. Raises InvalidBatch when they do not fill it."""
    spans = []
    at = 0
    try:
        for _ in range(record_count):
            span = _read_span(body, at)
            spans.append(span)
            at = span[2]
    except (IndexError, ValueError) as error:
        raise InvalidBatch(f"record at byte {at} of its body: {error}", 0) from error
    if at != len(body):
        raise InvalidBatch(f"{len(body) - at} bytes after the last record", 0)
    return spans


def _read_span(body: bytes, start: int) -> RecordSpan:
    length, at = _read_varint(body, start)
    end = at + length
    if length < 0 or end > len(body):
        raise ValueError(f"{length} bytes claimed, {len(body) - at} left")
    byte, after_time = body[at + 1], at + 2
    timestamp_delta = (byte >> 1) ^ -(byte & 1)
    if byte > 127:
        timestamp_delta, after_time = _read_varint(body, at + 1)
    byte, at = body[after_time], after_time + 1
    offset_delta = byte >> 1
    if byte > 127:
        offset_delta, at = _read_varint(body, after_time)
    byte, key_at = body[at], at + 1
    key_length = (byte >> 1) ^ -(byte & 1)
    if byte > 127:
        key_length, key_at = _read_varint(body, at)
    at = key_at + key_length if key_length >= 0 else key_at
    if at >= end or key_length < -1:
        raise ValueError("a record does not have its declared size")
    key = body[key_at:at] if key_length >= 0 else None
    return RecordSpan(start, after_time, end, timestamp_delta, offset_delta, key, body[at] == _NULL_LENGTH)


def with_timestamp_delta(body: bytes, span: RecordSpan, timestamp_delta: int) -> bytes:
    """The record at `span` as it stands in a batch of another base timestamp."""
    _, at = _read_varint(body, span.start)
    content = b"".join((body[at : at + 1], _varint(timestamp_delta), body[span.after_time : span.end]))
    return _varint(len(content)) + content


def encode_record(record: Record, offset_delta: int, base_timestamp: int) -> bytes:
    """One record as it stands in a batch of this base timestamp, its length in front."""
    parts = [b"\0", _varint(record.timestamp_ms - base_timestamp), _varint(offset_delta)]
    parts += (_sized(record.key), _sized(record.value), _varint(len(record.headers)))
    for name, value in record.headers:
        parts += (_sized(name.encode(errors=_NAME_ERRORS)), _sized(value))
    body = b"".join(parts)
    return _varint(len(body)) + body


def _sized(value: bytes | None) -> bytes:
    return b"\x01" if value is None else _varint(len(value)) + value


def _varint(value: int) -> bytes:
    """A zigzag varint of up to 64 bits."""
    zigzag = (value << 1) ^ (value >> 63)
    if zigzag < 128:
        return bytes((zigzag,))
    parts = bytearray()
    while zigzag > 127:
        parts.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    parts.append(zigzag)
    return bytes(parts)


def _read_varint(body: bytes, at: int) -> tuple[int, int]:
    byte = body[at]
    if byte < 128:
        return (byte >> 1) ^ -(byte & 1), at + 1
    value, shift = byte & 0x7F, 7
    while True:
        at += 1
        byte = body[at]
        value |= (byte & 0x7F) << shift
        if byte < 128:
            return (value >> 1) ^ -(value & 1), at + 1
        shift += 7
        if shift > 63:
            raise ValueError("a varint has more than ten bytes")


def _read_last_byte(body: bytes, at: int) -> tuple[int, int]:
    """A varint as it stands, twice the number or odd when that is negative; and where its last byte is."""
    value, after = _read_varint(body, at)
    return (value << 1) ^ (value >> 63), after - 1


def _read_sized(body: bytes, at: int) -> tuple[bytes | None, int]:
    length, at = _read_varint(body, at)
    if length == -1:
        return None, at
    if length < 0 or at + length > len(body):
        raise ValueError(f"{length} bytes claimed, {len(body) - at} left")
    return body[at : at + length], at + length


def _read_record(body: bytes, at: int, header: BatchHeader) -> tuple[Record, int]:
    length, at = _read_varint(body, at)
    end = at + length
    if length < 0 or end > len(body):
        raise ValueError(f"{length} bytes claimed, {len(body) - at} left")
    timestamp_delta, at = _read_varint(body, at + 1)
    offset_delta, at = _read_varint(body, at)
    key, at = _read_sized(body, at)
    value, at = _read_sized(body, at)
    headers, at = _read_headers(body, at)
    if at != end:
        raise ValueError("a record does not have its declared size")
    time_ms = header.max_timestamp if header.is_log_append_time else header.base_timestamp + timestamp_delta
    return Record(key, value, time_ms, headers, header.base_offset + offset_delta), at


def _read_headers(body: bytes, at: int) -> tuple[Sequence[tuple[str, bytes | None]], int]:
    count, at = _read_varint(body, at)
    if count == 0:
        return (), at
    if not 0 < count <= len(body) - at:
        raise ValueError(f"{count} headers claimed, {len(body) - at} bytes left")
    headers = []
    for _ in range(count):
        name, at = _read_sized(body, at)
        value, at = _read_sized(body, at)
        if name is None:
            raise ValueError("a header has no name")
        headers.append((name.decode(errors=_NAME_ERRORS), value))
    return headers, at


def compress(body: bytes, compression: Compression) -> bytes:
    """The records of a batch under its codec."""
    match compression:
        case Compression.NONE:
            return body
        case Compression.GZIP:
            packer = zlib.compressobj(wbits=31)
            return packer.compress(body) + packer.flush()
        case Compression.SNAPPY:
            return bytes(snappy.compress(body))
        case Compression.LZ4:
            # Java's reader wants independent blocks.
            return bytes(lz4.frame.compress(body, block_linked=False))
        case Compression.ZSTD:
            return zstandard.compress(body)


def decompress(body: bytes, codec: int) -> bytes:
    """The records of a batch without its codec; raises that codec's own errors."""
    match Compression(codec):
        case Compression.NONE:
            return body
        case Compression.GZIP:
            return _bounded(zlib.decompressobj(wbits=31), body)
        case Compression.SNAPPY:
            return _decompress_snappy(body)
        case Compression.LZ4:
            return _bounded(lz4.frame.LZ4FrameDecompressor(), body)
        case Compression.ZSTD:
            return _decompress_zstd(body)


def _bounded(opener: Any, body: bytes) -> bytes:
    opened: bytes = opener.decompress(body, DECOMPRESSED_BYTES_MAX)
    if not opener.eof:
        raise ValueError(f"cut off, or more than {DECOMPRESSED_BYTES_MAX} bytes")
    return opened


def _decompress_zstd(body: bytes) -> bytes:
    # Frames from Kafka's clients often do not state their size: read as a stream.
    parts = []
    total = 0
    with zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=True) as stream:
        while part := stream.read(_CHUNK_BYTES):
            parts.append(part)
            total += len(part)
            _check_size(total)
    return b"".join(parts)


def _decompress_snappy(body: bytes) -> bytes:
    """Plain snappy, or the chunked form of Java's snappy library: a header of 16 bytes, then sized blocks."""
    if not body.startswith(_XERIAL_MAGIC):
        return _decompress_snappy_block(body)
    parts = []
    at, total = _XERIAL_HEADER_SIZE, 0
    while at < len(body):
        if at + 4 > len(body):
            raise ValueError("a snappy block is cut off")
        (size,) = _INT32.unpack_from(body, at)
        at += 4
        if size < 0 or at + size > len(body):
            raise ValueError("a snappy block is cut off")
        parts.append(_decompress_snappy_block(body[at : at + size]))
        total += len(parts[-1])
        _check_size(total)
        at += size
    return b"".join(parts)


def _decompress_snappy_block(block: bytes) -> bytes:
    claimed = shift = 0
    for byte in block[:5]:
        claimed |= (byte & 0x7F) << shift
        shift += 7
        if byte < 128:
            break
    _check_size(claimed)
    return bytes(snappy.decompress(block))


def _check_size(size: int) -> None:
    if size > DECOMPRESSED_BYTES_MAX:
        raise ValueError(f"more than {DECOMPRESSED_BYTES_MAX} bytes")
