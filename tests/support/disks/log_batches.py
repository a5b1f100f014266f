"""Record batches for tests of the log: built from keys and values, uncompressed unless a codec is
named.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import lz4.frame
import snappy
import zstandard

from wire.batches.record_batch import BatchHeader, encode_header

TRANSACTIONAL = 0x10
CONTROL = 0x20

Record = tuple[bytes | None, bytes | None]


def batch(
    values: Sequence[bytes | Record] = (b"value",),
    *,
    base_offset: int = 0,
    leader_epoch: int = 0,
    timestamp_ms: int = 1_000,
    timestamps_ms: Sequence[int] | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    sequence: int = -1,
    attributes: int = 0,
    codec: int = 0,
) -> bytes:
    """A batch of these values, or (key, value) pairs, one offset each."""
    times = list(timestamps_ms or [timestamp_ms] * len(values))
    body = b"".join(
        _record(delta, times[delta] - times[0], value if isinstance(value, tuple) else (None, value))
        for delta, value in enumerate(values)
    )
    body = compress(codec, body)
    header = BatchHeader(
        base_offset,
        49 + len(body),
        leader_epoch,
        2,
        0,
        attributes | codec,
        len(values) - 1,
        times[0],
        max(times),
        producer_id,
        producer_epoch if producer_id < 0 else max(producer_epoch, 0),
        sequence,
        len(values),
    )
    return encode_header(header, body) + body


def marker(
    *, producer_id: int, producer_epoch: int = 0, is_commit: bool, base_offset: int = 0, leader_epoch: int = 0
) -> bytes:
    """A control batch that ends a transaction."""
    key = (0).to_bytes(2, "big") + int(is_commit).to_bytes(2, "big")
    value = (0).to_bytes(2, "big") + (7).to_bytes(4, "big")
    return batch(
        [(key, value)],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        attributes=TRANSACTIONAL | CONTROL,
    )


def compress(codec: int, body: bytes) -> bytes:
    """The records section under a codec."""
    match codec:
        case 1:
            deflater = zlib.compressobj(wbits=31)
            return deflater.compress(body) + deflater.flush()
        case 2:
            return bytes(snappy.compress(body))
        case 3:
            return bytes(lz4.frame.compress(body))
        case 4:
            return zstandard.compress(body)
        case _:
            return body


def _record(offset_delta: int, timestamp_delta: int, record: Record) -> bytes:
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta) + _bytes(record[0]) + _bytes(record[1]) + varint(0)
    return varint(len(body)) + body


def _bytes(content: bytes | None) -> bytes:
    return varint(-1) if content is None else varint(len(content)) + content


def varint(value: int) -> bytes:
    """A zigzag variable-length number."""
    number = (value << 1) ^ (value >> 63)
    encoded = bytearray()
    while number > 0x7F:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
