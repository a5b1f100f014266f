"""Single records inside of batches: building and opening them.

Compaction, lookups by time, drills and deep reconciliation open them. Followers and mirrors move
batches as bytes; a leader walks over the records that a client produces (`record_walks.py`).
`make setup` compiles this module (`runtime/compiled.py`): 64-bit integers (`i64`) and `bytes` are
what mypyc makes fast. Layout: the Kafka protocol's "Record" (KIP-98).
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from librt.strings import BytesWriter
from mypy_extensions import i64

from wire.batches.codecs import DECOMPRESSED_BYTES_MAX, TooLarge, compress, decompress
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
from wire.batches.record_walks import RecordSpan
from wire.batches.varints import (
    INT32_SHIFT_MAX,
    INT64_MAX,
    INT64_SHIFT_MAX,
    NULL_LENGTH,
    read_varint,
    write_varint,
)

_NAME_ERRORS: Final = "surrogateescape"


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


def open_body(buffer: Buffer, position: int, header: BatchHeader, *, size_bytes_max: int | None = None) -> bytes:
    """The records section of the batch at `position` without its codec. Raises InvalidBatch, or
    TooLarge past a given `size_bytes_max`.
    """
    with memoryview(buffer) as view:
        # copied once: the codecs take bytes
        compressed = bytes(view[position + HEADER_SIZE : position + header.size_bytes])
    # a member of the enumeration takes longer to make than a small batch to check
    if not header.compression:
        return compressed
    try:
        limit = DECOMPRESSED_BYTES_MAX if size_bytes_max is None else size_bytes_max
        return decompress(compressed, header.compression, limit)
    except Exception as error:
        # to a reader without a limit a batch that claims too much is damaged like any other
        if size_bytes_max is not None and isinstance(error, TooLarge):
            raise
        # Each codec has its own errors, some of them plain Exception or RuntimeError.
        raise InvalidBatch(f"cannot be decompressed: {error}", position) from error


def with_timestamp_delta(body: bytes, span: RecordSpan, timestamp_delta: int) -> bytes:
    """The bytes of the record at `span`, for a batch with another base timestamp."""
    _, at = read_varint(body, span.start, INT32_SHIFT_MAX)
    content = BytesWriter()
    content.append(body[at])
    write_varint(content, _wrapped(timestamp_delta))
    content.write(body[span.after_time : span.end])
    return _with_length(content)


def encode_record(record: Record, offset_delta: int, base_timestamp: int) -> bytes:
    """Encode one record for a batch with this base timestamp, its length in front."""
    key, value, timestamp_ms, headers, _ = record
    content = BytesWriter()
    content.append(0)
    write_varint(content, _wrapped(timestamp_ms - base_timestamp))
    write_varint(content, offset_delta)
    _write_sized(content, key)
    _write_sized(content, value)
    write_varint(content, len(headers))
    for name, header_value in headers:
        _write_sized(content, name.encode(errors=_NAME_ERRORS))
        _write_sized(content, header_value)
    return _with_length(content)


def _wrapped(delta_ms: int) -> int:
    """A difference of two timestamps in 64 bits, as Java has it: readers add it in 64 bits too."""
    return delta_ms if -INT64_MAX <= delta_ms <= INT64_MAX else (delta_ms + 2**63) % 2**64 - 2**63


def _with_length(content: BytesWriter) -> bytes:
    whole = BytesWriter()
    write_varint(whole, len(content))
    whole.write(content.getvalue())
    return whole.getvalue()


def _write_sized(writer: BytesWriter, value: bytes | None) -> None:
    if value is None:
        writer.append(NULL_LENGTH)
    else:
        write_varint(writer, len(value))
        writer.write(value)


def _read_sized(body: bytes, at: i64) -> tuple[bytes | None, i64]:
    length, at = read_varint(body, at, INT32_SHIFT_MAX)
    if length == -1:
        return None, at
    if length < 0 or at + length > len(body):
        raise ValueError(f"{length} bytes claimed, {len(body) - at} left")
    return body[at : at + length], at + length


def _read_record(
    body: bytes, at: i64, base_offset: i64, base_timestamp: int, append_time_ms: int | None
) -> tuple[Record, i64]:
    length, at = read_varint(body, at, INT32_SHIFT_MAX)
    end: i64 = at + length
    if length < 0 or end > len(body):
        raise ValueError(f"{length} bytes claimed, {len(body) - at} left")
    timestamp_delta, at = read_varint(body, at + 1, INT64_SHIFT_MAX)
    offset_delta, at = read_varint(body, at, INT32_SHIFT_MAX)
    key, at = _read_sized(body, at)
    value, at = _read_sized(body, at)
    headers, at = _read_headers(body, at)
    if at != end:
        raise ValueError("a record does not have its declared size")
    time_ms = base_timestamp + int(timestamp_delta) if append_time_ms is None else append_time_ms
    return tuple.__new__(Record, (key, value, time_ms, headers, base_offset + offset_delta)), at


def _read_headers(body: bytes, at: i64) -> tuple[Sequence[tuple[str, bytes | None]], i64]:
    count, at = read_varint(body, at, INT32_SHIFT_MAX)
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
