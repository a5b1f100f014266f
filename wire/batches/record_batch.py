"""The header of a record batch (magic 2) as a view over its bytes.

Everything that moves, stores or checks records works on this: offsets, epochs, producer state,
counts and the CRC-32C are all in the first 61 bytes, so the data path never decompresses a batch or
builds record objects. Layout: the Kafka protocol's "Record Batch" (KIP-98).

Not here: rules that depend on the sender of the batch or on the content of the log (broker/log),
and single records (wire/batches/records.py). Older formats (magic 0 and 1) are refused: this
project never stores or moves them.

Callers: the log, the broker's append path, followers, the mirror, the client, Spark's header
reader.
"""

import struct
from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

from crc32c import crc32c

from wire.batches.checksums import crc_with_beginning
from wire.protocol.ids import NO_SEQUENCE

Buffer = bytes | bytearray | memoryview

LOG_OVERHEAD: Final = 12
"""Bytes before those that `batch_length` counts: base offset and the length itself."""
HEADER_SIZE: Final = 61
MAGIC: Final = 2

_LAYOUT: Final = struct.Struct(">qiibIhiqqqhii")
_BODY_LAYOUT: Final = struct.Struct(">hiqqqhii")
_PREFIX_LAYOUT: Final = struct.Struct(">qii")
_CRC_LAYOUT: Final = struct.Struct(">bI")
_LENGTH_LAYOUT: Final = struct.Struct(">i")

_LENGTH_POSITION: Final = 8
_MAGIC_POSITION: Final = 16
_CRC_START: Final = 21
_LOW_ATTRIBUTES_POSITION: Final = 22
_PREFIX_SIZE: Final = _PREFIX_LAYOUT.size
_BATCH_LENGTH_MIN: Final = HEADER_SIZE - LOG_OVERHEAD

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
_DELETE_HORIZON_BIT: Final = 0x40


class Compression(IntEnum):
    """Codecs by their number in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class InvalidBatch(ValueError):
    """Bytes that are not a well-formed batch; `reason` is the contradiction, `position` where the
    batch begins in the buffer.

    With `is_damage` the bytes have no recognisable batch bounds; else they are a batch whose parts
    contradict each other.
    """

    def __init__(self, reason: str, position: int, *, is_damage: bool = False) -> None:
        super().__init__(f"batch at byte {position}: {reason}")
        self.reason = reason
        self.position = position
        self.is_damage = is_damage


class BatchHeader(NamedTuple):
    """The fields of a batch header, in the order of the wire. Times are Unix milliseconds."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def last_offset(self) -> int:
        """Offset of the batch's last record (the record itself may be compacted away)."""
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        """Offset of the first record after this batch."""
        return self.base_offset + self.last_offset_delta + 1

    @property
    def size_bytes(self) -> int:
        """Size of the whole batch, header included."""
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_sequence(self) -> int:
        """Producer sequence of the last record, which wraps after 2^31 - 1; -1 without an
        idempotent producer.
        """
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        # sequences wrap at 2^31 and stay positive
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def compression(self) -> int:
        """Number of the codec (see `Compression`); 5 to 7 are undefined."""
        return self.attributes & COMPRESSION_MASK

    @property
    def is_log_append_time(self) -> bool:
        """Timestamps were set by the broker, not by the producer."""
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        """Part of a transaction (control batches are too)."""
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        """Carries a transaction marker instead of records."""
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_delete_horizon(self) -> bool:
        """The base timestamp says when the batch's tombstones may go, in Unix ms (KIP-534)."""
        return bool(self.attributes & _DELETE_HORIZON_BIT)


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The header at `position`. Looks at nothing but the presence of 61 bytes: for batches that
    were checked before.
    """
    if position < 0 or len(buffer) - position < HEADER_SIZE:
        raise InvalidBatch(f"{len(buffer) - position} bytes left, a header has {HEADER_SIZE}", position)
    # the constructor of a named tuple checks its arguments, which costs as much as the unpacking
    return tuple.__new__(BatchHeader, _LAYOUT.unpack_from(buffer, position))


def is_transactional(buffer: Buffer) -> bool:
    """True if the bytes begin with a batch of a transaction; they need not be a sound batch."""
    return len(buffer) > _LOW_ATTRIBUTES_POSITION and bool(buffer[_LOW_ATTRIBUTES_POSITION] & TRANSACTIONAL_BIT)


def iterate_headers(
    buffer: Buffer, position: int = 0, *, is_from_producer: bool = False, may_end_in_partial: bool = False
) -> Iterator[tuple[int, BatchHeader]]:
    """Positions and headers of the batches that fill `buffer` from `position` to its end exactly.

    Raises InvalidBatch at the first one whose structure is wrong; the CRC is not checked
    (`verify_crc`). In general a batch may hold fewer records than offsets, even none (compaction).
    With `is_from_producer` both must agree, as Kafka demands of clients. With `may_end_in_partial`
    an incomplete last batch is silently left out, as in Fetch responses.
    """
    end = len(buffer)
    while position < end:
        size_bytes = whole_batch_size(buffer, position)
        if size_bytes is None:
            if may_end_in_partial:
                return
            raise InvalidBatch(f"incomplete: {end - position} bytes left", position)
        header = tuple.__new__(BatchHeader, _LAYOUT.unpack_from(buffer, position))
        _check_header(header, position, is_from_producer=is_from_producer)
        yield position, header
        position += size_bytes


def whole_batch_size(buffer: Buffer, position: int) -> int | None:
    """Size of the batch at `position`, or None when the buffer ends before the batch does.

    Raises InvalidBatch for a length that no batch can have or another magic, as soon as those bytes
    are there.
    """
    left = len(buffer) - position
    if left < LOG_OVERHEAD:
        return None
    (batch_length,) = _LENGTH_LAYOUT.unpack_from(buffer, position + _LENGTH_POSITION)
    # the magic first: an old format has its length elsewhere, and would be called damaged
    if left > _MAGIC_POSITION and buffer[position + _MAGIC_POSITION] != MAGIC:
        magic = buffer[position + _MAGIC_POSITION]
        raise InvalidBatch(f"magic {magic}, only {MAGIC} is supported", position, is_damage=magic > MAGIC)
    if batch_length < _BATCH_LENGTH_MIN:
        raise InvalidBatch(f"length {batch_length}, at least {_BATCH_LENGTH_MIN} is needed", position, is_damage=True)
    size_bytes: int = LOG_OVERHEAD + batch_length
    return size_bytes if size_bytes <= left else None


def _check_header(header: BatchHeader, position: int, *, is_from_producer: bool) -> None:
    if header.base_offset < 0:
        raise InvalidBatch(f"base offset {header.base_offset} is negative", position)
    if header.last_offset_delta < 0:
        raise InvalidBatch(f"last offset delta {header.last_offset_delta} is negative", position)
    if header.record_count < 0:
        raise InvalidBatch(f"record count {header.record_count} is negative", position)
    offsets = header.last_offset_delta + 1
    # compaction leaves holes in stored batches; a producer has no reason for one
    if header.record_count > offsets or (is_from_producer and header.record_count != offsets):
        raise InvalidBatch(f"record count {header.record_count} does not fit {offsets} offsets", position)


def verify_crc(buffer: Buffer, position: int, header: BatchHeader) -> bool:
    """Whether the stored CRC-32C fits the bytes from the attributes to the end of the batch."""
    with memoryview(buffer) as view, view[position + _CRC_START : position + header.size_bytes] as covered:
        return crc32c(covered) == header.crc


class PatchedBatch(NamedTuple):
    """A batch in two pieces for one writev: a fresh prefix, and the untouched rest as a view of the
    original.
    """

    prefix: bytes
    rest: Buffer


def patch_placement(
    buffer: Buffer, position: int, header: BatchHeader, *, base_offset: int, leader_epoch: int
) -> PatchedBatch:
    """The batch as a leader stores it: offset and leader epoch replaced. Both fields are outside
    the CRC, so the CRC stays valid.
    """
    prefix = _PREFIX_LAYOUT.pack(base_offset, header.batch_length, leader_epoch)
    rest = memoryview(buffer)[position + _PREFIX_SIZE : position + header.size_bytes]
    return tuple.__new__(PatchedBatch, (prefix, rest))


def patch_header(buffer: Buffer, position: int, header: BatchHeader, patched: BatchHeader) -> PatchedBatch:
    """The batch under another header; the records stay untouched, and are not read either: the
    checksum changes with the header alone. So the checksum of a damaged batch stays wrong.
    """
    rest = memoryview(buffer)[position + HEADER_SIZE : position + header.size_bytes]
    # the fields from the attributes on, which the checksum covers
    old, new = _BODY_LAYOUT.pack(*header[5:]), _BODY_LAYOUT.pack(*patched[5:])
    crc = crc_with_beginning(header.crc, old, new, len(rest))
    return PatchedBatch(_PREFIX_LAYOUT.pack(*patched[:3]) + _CRC_LAYOUT.pack(patched.magic, crc) + new, rest)


def encode_header(header: BatchHeader, records: Buffer) -> bytes:
    """The 61 bytes of `header` in front of `records`; the CRC is computed, `header.crc` is not
    looked at.
    """
    # the fields from the attributes on, which the checksum covers
    body = _BODY_LAYOUT.pack(*header[5:])
    # one pass over each piece: header and records are never joined for the checksum
    crc = crc32c(records, crc32c(body))
    return _PREFIX_LAYOUT.pack(*header[:3]) + _CRC_LAYOUT.pack(header.magic, crc) + body
