"""Single records inside of batches: building and opening them, with all codecs.

A leader walks over the records of each batch that a client produces (`summarize_records`);
compaction, lookups by time, drills and deep reconciliation open them. Followers and mirrors move
batches as bytes. `make setup` compiles this module (`runtime/compiled.py`): 64-bit integers (`i64`)
and `bytes` are what mypyc makes fast. Layout: the Kafka protocol's "Record" (KIP-98).
"""

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import lz4.frame
import snappy
import zstandard
from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from wire.batches.record_batch import (
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

# the framing of Java's snappy library, which Kafka's clients write
_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER_SIZE: Final = 16
_CHUNK_BYTES: Final = 1 << 20
_NULL_LENGTH: Final = 1
"""The encoded length -1."""
_ZSTD_LEVEL: Final = 3
_NAME_ERRORS: Final = "surrogateescape"
_INT32: Final = struct.Struct(">i")
_CONTINUES: Final = 0x80
"""A byte from this value on is not the last one of its number."""
_INT32_SHIFT_MAX: Final = 28
"""The shift of the last byte of a varint of 32 bits."""
_INT64_SHIFT_MAX: Final = 63
_INT64_MAX: Final = 2**63 - 1
_AFTER_SHIFT: Final = 2**57 - 1
"""The bits of an unsigned number of 64 bits that a shift by seven leaves."""


class Record(NamedTuple):
    """A record with its offset and times. Decoding fills all fields; encoding numbers the offsets
    itself.

    The protocol wants names of headers in UTF-8 and brokers do not check it: other bytes are kept
    as surrogate escapes (PEP 383), which `printable_name` shows.
    """

    key: bytes | None
    value: bytes | None
    timestamp_ms: int = 0
    headers: Sequence[tuple[str, bytes | None]] = ()
    offset: int = -1


class RecordSpan(NamedTuple):
    """The position of a record in the opened body of its batch, from `start` to `end`, and the
    fields that decide whether it is kept.

    `after_time` is where its timestamp ends; deltas refer to the batch's base offset and base
    timestamp.
    """

    start: int
    after_time: int
    end: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    is_tombstone: bool


class RecordSummary(NamedTuple):
    """Facts about all records of a batch. Timestamps are deltas to the batch's base timestamp, in
    milliseconds.

    `misplaced_index` is the first record whose offset delta is not its index, -1 when there is
    none.
    """

    timestamp_delta_min: int
    timestamp_delta_max: int
    keyless_count: int
    misplaced_index: int


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
    """A batch with these records at consecutive offsets from `base_offset`. `attributes` adds bits
    to the codec's.
    """
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
    """All records of the batches in `buffer`, control batches left out. Raises InvalidBatch; does
    not check CRCs.
    """
    for position, header in iterate_headers(buffer):
        if not header.is_control:
            # control batches hold markers: they are no records of any client
            yield from decode_batch(buffer, position, header)


def decode_batch(buffer: Buffer, position: int, header: BatchHeader) -> Iterator[Record]:
    """The records of the batch at `position`. Raises InvalidBatch when they contradict
    the header.
    """
    yield from decode_body(open_body(buffer, position, header), header, position)


def decode_body(body: bytes, header: BatchHeader, position: int = 0) -> Iterator[Record]:
    """The records of a body that `open_body` opened, from a batch at `position`. Raises
    InvalidBatch.
    """
    at: i64 = 0
    base_offset: i64 = header.base_offset
    base_timestamp = header.base_timestamp
    append_time = header.max_timestamp if header.is_log_append_time else None
    for _ in range(header.record_count):
        try:
            record, at = _read_record(body, at, base_offset, base_timestamp, append_time)
        except (IndexError, ValueError) as error:
            raise InvalidBatch(f"record at byte {at} of its body: {error}", position) from error
        yield record
    # bytes behind the last record are damage that a count alone would hide
    if at != len(body):
        raise InvalidBatch(f"{len(body) - at} bytes after the last record", position)


class TooLarge(ValueError):
    """Compressed bytes that open to more than the reader allows."""


def open_body(
    buffer: Buffer, position: int, header: BatchHeader, *, size_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> bytes:
    """The records section of the batch at `position` without its codec. Raises InvalidBatch, or
    TooLarge past `size_bytes_max`.
    """
    with memoryview(buffer) as view:
        # copied once: the codecs take bytes
        compressed = bytes(view[position + HEADER_SIZE : position + header.size_bytes])
    # a member of the enumeration takes longer to make than a small batch to check
    if not header.compression:
        return compressed
    try:
        return decompress(compressed, header.compression, size_bytes_max)
    except TooLarge:
        raise
    except Exception as error:
        # Each codec has its own errors, some of them plain Exception or RuntimeError.
        raise InvalidBatch(f"cannot be decompressed: {error}", position) from error


def summarize_records(body: bytes, record_count: int) -> RecordSummary:  # noqa: C901  numbers of one byte are read in place
    """Walk over the records of an opened body and check every length in them: of record, key,
    value, headers and their parts.

    Raises InvalidBatch with the index of the first damaged record, or when the records do not fill
    the body. This is the check of everything that a client produces, so nothing is made for a
    record. A length below -1 counts as damage here, though Apache Kafka reads it as null: other
    readers do not.
    """
    at: i64 = 0
    end: i64 = len(body)
    count: i64 = record_count
    index: i64 = 0
    keyless: i64 = 0
    misplaced: i64 = -1
    delta_min: i64 = 0
    delta_max: i64 = 0
    try:
        # no tuple and no call for a number of one byte, because nearly all numbers have one byte
        while index < count:
            number: i64 = body[at]
            at += 1
            if number >= _CONTINUES:
                number, at = _longer_varint(body, at - 1, _INT32_SHIFT_MAX)
            record_end: i64 = at + (number >> 1)
            if number & 1 or record_end > end:
                raise ValueError(f"a length that does not fit the {end - at} bytes that are left")  # noqa: TRY301
            # the byte of attributes is unused and passed over
            number = body[at + 1]
            at += 2
            if number >= _CONTINUES:
                number, at = _longer_varint(body, at - 1, _INT64_SHIFT_MAX)
            delta: i64 = number >> 1
            if number < 0:
                # zigzag's shift is that of an unsigned number
                delta &= _INT64_MAX  # the number fills all 64 bits, and the shift is a logical one
            delta ^= -(number & 1)
            if index == 0:
                delta_min = delta
                delta_max = delta
            elif delta > delta_max:
                delta_max = delta
            elif delta < delta_min:
                delta_min = delta
            number = body[at]
            at += 1
            if number >= _CONTINUES:
                number, at = _longer_varint(body, at - 1, _INT32_SHIFT_MAX)
            if number != 2 * index and misplaced < 0:
                misplaced = index
            number = body[at]
            at += 1
            if number == _NULL_LENGTH:
                keyless += 1
            else:
                if number >= _CONTINUES:
                    number, at = _longer_varint(body, at - 1, _INT32_SHIFT_MAX)
                at = _after_content(at, number, record_end)
            number = body[at]
            at += 1
            if number != _NULL_LENGTH:
                if number >= _CONTINUES:
                    number, at = _longer_varint(body, at - 1, _INT32_SHIFT_MAX)
                at = _after_content(at, number, record_end)
            number = body[at]
            at += 1
            if number:
                at = _after_headers(body, at - 1, record_end)
            if at != record_end:
                raise ValueError(f"its parts end {at - record_end} bytes behind its length")  # noqa: TRY301
            index += 1
    except (IndexError, ValueError) as error:
        raise InvalidBatch(f"record {index} of {count} is damaged: {error}", 0) from error
    if at != end:
        raise InvalidBatch(f"{end - at} bytes after the last of {count} records", 0)
    return RecordSummary(delta_min, delta_max, keyless, misplaced)


def _longer_varint(body: bytes, at: i64, shift_max: i64) -> tuple[i64, i64]:
    """The number at `at`, two bytes or more, before its zigzag is undone: twice the value, or odd
    where that is negative; and its end.
    """
    number: i64 = body[at] & 0x7F
    at += 1
    byte: i64 = body[at]
    if byte < _CONTINUES:
        return number | byte << 7, at + 1
    return _after_two_bytes(body, at, shift_max, number)


def _after_two_bytes(body: bytes, at: i64, shift_max: i64, number: i64) -> tuple[i64, i64]:
    """The same for numbers of more than two bytes: the second byte is at `at`, and `number` is the
    value of the first one.
    """
    shift: i64 = 7
    while True:
        byte: i64 = body[at]
        if shift >= shift_max and (byte >= _CONTINUES or (shift == _INT64_SHIFT_MAX and byte > 1)):
            raise ValueError("a number has too many bytes")
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < _CONTINUES:
            return number, at
        shift += 7


def _after_content(at: i64, number: i64, end: i64) -> i64:
    """Return the end of a key, value or name that begins at `at`; `number` is its length before the
    zigzag is undone.
    """
    length: i64 = number >> 1
    if number & 1 or length > end - at:
        raise ValueError(f"a length that does not fit the {end - at} bytes that are left")
    return at + length


def _after_headers(body: bytes, at: i64, end: i64) -> i64:
    """Return the end of the headers whose count is at `at`."""
    count, at = _varint_at(body, at)
    if count & 1 or count >> 1 > end - at:
        raise ValueError(f"a number of headers that does not fit the {end - at} bytes that are left")
    while count:
        length, at = _varint_at(body, at)
        at = _after_content(at, length, end)
        length, at = _varint_at(body, at)
        if length != _NULL_LENGTH:
            at = _after_content(at, length, end)
        count -= 2
    return at


def _varint_at(body: bytes, at: i64) -> tuple[i64, i64]:
    """Read a number of any size, like `_longer_varint`."""
    number: i64 = body[at]
    return (number, at + 1) if number < _CONTINUES else _longer_varint(body, at, _INT32_SHIFT_MAX)


def read_keys(
    buffer: bytes, start: int, end: int, record_count: int, base_offset: int, offsets: dict[bytes | None, int]
) -> int:
    """Note the offset of each key's last record in an opened body, `buffer` from `start` to `end`;
    how many records are tombstones.

    Raises InvalidBatch when the records do not fill the body. Compaction spends most of its time
    here, half a microsecond a record. Numbers of one or two bytes are read in place, and only the
    key becomes an object.
    """
    at: i64 = start
    stop: i64 = end
    tombstones: i64 = 0
    try:
        for _ in range(record_count):
            number: i64 = buffer[at]
            at += 1
            if number >= _CONTINUES:
                number, at = _longer_varint(buffer, at - 1, _INT32_SHIFT_MAX)
            record_end: i64 = at + (number >> 1)
            if number & 1 or record_end > stop:
                raise ValueError(f"a length that does not fit the {stop - at} bytes that are left")  # noqa: TRY301
            at += 2
            if buffer[at - 1] >= _CONTINUES:
                _, at = _longer_varint(buffer, at - 1, _INT64_SHIFT_MAX)
            delta: i64 = buffer[at]
            at += 1
            if delta >= _CONTINUES:
                delta, at = _longer_varint(buffer, at - 1, _INT32_SHIFT_MAX)
            number = buffer[at]
            at += 1
            if number >= _CONTINUES:
                number, at = _longer_varint(buffer, at - 1, _INT32_SHIFT_MAX)
            value_at: i64 = at + (number >> 1)
            if value_at >= record_end or (number & 1 and number > 1):
                raise ValueError("a record does not have its declared size")  # noqa: TRY301
            if buffer[value_at] == _NULL_LENGTH:
                tombstones += 1
            offsets[None if number & 1 else buffer[at:value_at]] = base_offset + (delta >> 1)
            at = record_end
    except (IndexError, ValueError) as error:
        raise InvalidBatch(f"record at byte {at - start} of its body: {error}", 0) from error
    if at != stop:
        raise InvalidBatch(f"{stop - at} bytes after the last record", 0)
    return tombstones


def record_spans(body: bytes, record_count: int) -> list[RecordSpan]:
    """The records of an opened body, whose values and headers are not looked at. Raises
    InvalidBatch when they do not fill it.
    """
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


def _read_span(body: bytes, start: i64) -> RecordSpan:
    length, at = _read_varint(body, start, _INT32_SHIFT_MAX)
    end: i64 = at + length
    if length < 0 or end > len(body):
        raise ValueError(f"{length} bytes claimed, {len(body) - at} left")
    timestamp_delta, after_time = _read_varint(body, at + 1, _INT64_SHIFT_MAX)
    offset_delta, at = _read_varint(body, after_time, _INT32_SHIFT_MAX)
    key_length, key_at = _read_varint(body, at, _INT32_SHIFT_MAX)
    at = key_at + key_length if key_length >= 0 else key_at
    if at >= end or key_length < -1:
        raise ValueError("a record does not have its declared size")
    key = body[key_at:at] if key_length >= 0 else None
    is_tombstone = body[at] == _NULL_LENGTH
    return tuple.__new__(RecordSpan, (start, after_time, end, timestamp_delta, offset_delta, key, is_tombstone))


def with_timestamp_delta(body: bytes, span: RecordSpan, timestamp_delta: int) -> bytes:
    """The bytes of the record at `span`, for a batch with another base timestamp."""
    _, at = _read_varint(body, span.start, _INT32_SHIFT_MAX)
    content = BytesWriter()
    content.append(body[at])
    _write_varint(content, _wrapped(timestamp_delta))
    content.write(body[span.after_time : span.end])
    return _with_length(content)


def encode_record(record: Record, offset_delta: int, base_timestamp: int) -> bytes:
    """Encode one record for a batch with this base timestamp, its length in front."""
    key, value, timestamp_ms, headers, _ = record
    content = BytesWriter()
    content.append(0)
    _write_varint(content, _wrapped(timestamp_ms - base_timestamp))
    _write_varint(content, offset_delta)
    _write_sized(content, key)
    _write_sized(content, value)
    _write_varint(content, len(headers))
    for name, header_value in headers:
        _write_sized(content, name.encode(errors=_NAME_ERRORS))
        _write_sized(content, header_value)
    return _with_length(content)


def _wrapped(delta_ms: int) -> int:
    """A difference of two timestamps in 64 bits, as Java has it: readers add it in 64 bits too."""
    return delta_ms if -_INT64_MAX <= delta_ms <= _INT64_MAX else (delta_ms + 2**63) % 2**64 - 2**63


def _with_length(content: BytesWriter) -> bytes:
    whole = BytesWriter()
    _write_varint(whole, len(content))
    whole.write(content.getvalue())
    return whole.getvalue()


def _write_sized(writer: BytesWriter, value: bytes | None) -> None:
    if value is None:
        writer.append(_NULL_LENGTH)
    else:
        _write_varint(writer, len(value))
        writer.write(value)


def _write_varint(writer: BytesWriter, value: i64) -> None:
    """A zigzag varint of up to 64 bits."""
    number: i64 = (value << 1) ^ (value >> 63)
    while number & ~0x7F:
        writer.append(u8(number & 0x7F | _CONTINUES))
        # the mask makes the shift a logical one, as the number may fill all 64 bits
        number = (number >> 7) & _AFTER_SHIFT
    writer.append(u8(number))


def _read_varint(body: bytes, at: i64, shift_max: i64) -> tuple[i64, i64]:
    """The signed number at `at`, and its end."""
    number: i64 = body[at]
    at += 1
    if number >= _CONTINUES:
        number, at = _longer_varint(body, at - 1, shift_max)
    return ((number >> 1) & _INT64_MAX) ^ -(number & 1), at


def _read_sized(body: bytes, at: i64) -> tuple[bytes | None, i64]:
    length, at = _read_varint(body, at, _INT32_SHIFT_MAX)
    if length == -1:
        return None, at
    if length < 0 or at + length > len(body):
        raise ValueError(f"{length} bytes claimed, {len(body) - at} left")
    return body[at : at + length], at + length


def _read_record(
    body: bytes, at: i64, base_offset: i64, base_timestamp: int, append_time_ms: int | None
) -> tuple[Record, i64]:
    length, at = _read_varint(body, at, _INT32_SHIFT_MAX)
    end: i64 = at + length
    if length < 0 or end > len(body):
        raise ValueError(f"{length} bytes claimed, {len(body) - at} left")
    timestamp_delta, at = _read_varint(body, at + 1, _INT64_SHIFT_MAX)
    offset_delta, at = _read_varint(body, at, _INT32_SHIFT_MAX)
    key, at = _read_sized(body, at)
    value, at = _read_sized(body, at)
    headers, at = _read_headers(body, at)
    if at != end:
        raise ValueError("a record does not have its declared size")
    time_ms = base_timestamp + int(timestamp_delta) if append_time_ms is None else append_time_ms
    return tuple.__new__(Record, (key, value, time_ms, headers, base_offset + offset_delta)), at


def _read_headers(body: bytes, at: i64) -> tuple[Sequence[tuple[str, bytes | None]], i64]:
    count, at = _read_varint(body, at, _INT32_SHIFT_MAX)
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


def compress(body: bytes, compression: Compression, level: int | None = None) -> bytes:
    """The records of a batch under its codec, at a level of that codec or at its default."""
    match compression:
        case Compression.NONE:
            return body
        case Compression.GZIP:
            packer = zlib.compressobj(-1 if level is None else level, wbits=31)
            return packer.compress(body) + packer.flush()
        case Compression.SNAPPY:
            return bytes(snappy.compress(body))
        case Compression.LZ4:
            # Java's reader wants independent blocks.
            return bytes(lz4.frame.compress(body, compression_level=level or 0, block_linked=False))
        case Compression.ZSTD:
            return zstandard.compress(body, _ZSTD_LEVEL if level is None else level)


def decompress(body: bytes, codec: int, size_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """The records of a batch without its codec; raises TooLarge, or that codec's own errors.

    The function uses at most `size_bytes_max` and one chunk of memory, whatever size the compressed
    bytes claim.
    """
    match Compression(codec):
        case Compression.NONE:
            return body
        case Compression.GZIP:
            return _bounded(zlib.decompressobj(wbits=31), body, size_bytes_max)
        case Compression.SNAPPY:
            return _decompress_snappy(body, size_bytes_max)
        case Compression.LZ4:
            return _bounded(lz4.frame.LZ4FrameDecompressor(), body, size_bytes_max)
        case Compression.ZSTD:
            return _decompress_zstd(body, size_bytes_max)


def _bounded(opener: Any, body: bytes, size_bytes_max: int) -> bytes:
    opened: bytes = opener.decompress(body, size_bytes_max + 1)
    _check_size(len(opened), size_bytes_max)
    if not opener.eof:
        raise ValueError("the compressed bytes end too early")
    if opener.unused_data:
        raise ValueError(f"{len(opener.unused_data)} bytes after the compressed ones")
    return opened


def _decompress_zstd(body: bytes, size_bytes_max: int) -> bytes:
    # Frames from Kafka's clients often do not state their size: read as a stream.
    parts = []
    total = 0
    with zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=True) as stream:
        while part := stream.read(_CHUNK_BYTES):
            parts.append(part)
            total += len(part)
            _check_size(total, size_bytes_max)
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _decompress_snappy(body: bytes, size_bytes_max: int) -> bytes:
    """Plain snappy, or the chunked form of Java's snappy library: a header of 16 bytes, then sized
    blocks.
    """
    if not body.startswith(_XERIAL_MAGIC):
        return _decompress_snappy_block(body, size_bytes_max)
    parts = []
    at, total = _XERIAL_HEADER_SIZE, 0
    while at < len(body):
        if at + 4 > len(body):
            raise ValueError("a snappy block ends too early")
        (size,) = _INT32.unpack_from(body, at)
        at += 4
        if size < 0 or at + size > len(body):
            raise ValueError("a snappy block ends too early")
        parts.append(_decompress_snappy_block(body[at : at + size], size_bytes_max - total))
        total += len(parts[-1])
        at += size
    return b"".join(parts)


def _decompress_snappy_block(block: bytes, size_bytes_max: int) -> bytes:
    claimed = shift = 0
    for byte in block[:5]:
        claimed |= (byte & 0x7F) << shift
        shift += 7
        if byte < _CONTINUES:
            break
    _check_size(claimed, size_bytes_max)
    return bytes(snappy.decompress(block))


def _check_size(size: int, size_bytes_max: int) -> None:
    if size > size_bytes_max:
        raise TooLarge(f"more than {size_bytes_max} bytes without compression")
