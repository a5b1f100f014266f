"""Walks over the records of an opened batch that make nothing, or little, for a record: the check
of everything that a client produces, the two readers of compaction, and the writer of merged
batches.

`make setup` compiles this module (`runtime/compiled.py`): 64-bit integers (`i64`) and `bytes` are
what mypyc makes fast. Layout: the Kafka protocol's "Record" (KIP-98).
"""

from typing import Final, NamedTuple

from librt.strings import BytesWriter
from mypy_extensions import i64, u8

from wire.batches.record_batch import InvalidBatch
from wire.batches.varints import (
    CONTINUES,
    INT32_SHIFT_MAX,
    INT64_MAX,
    INT64_SHIFT_MAX,
    NULL_LENGTH,
    longer_varint,
    read_varint,
    varint_size,
    write_varint,
)

TIME_SHIFT_MAX: Final = 2**62
"""Timestamps that are further apart, in milliseconds, are not moved between batches: the sum of two
deltas must fit in 64 bits.
"""


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
            if number >= CONTINUES:
                number, at = longer_varint(body, at - 1, INT32_SHIFT_MAX)
            record_end: i64 = at + (number >> 1)
            if number & 1 or record_end > end:
                raise ValueError(f"a length that does not fit the {end - at} bytes that are left")  # noqa: TRY301
            # the byte of attributes is unused and passed over
            number = body[at + 1]
            at += 2
            if number >= CONTINUES:
                number, at = longer_varint(body, at - 1, INT64_SHIFT_MAX)
            delta: i64 = number >> 1
            if number < 0:
                # zigzag's shift is that of an unsigned number
                delta &= INT64_MAX  # the number fills all 64 bits, and the shift is a logical one
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
            if number >= CONTINUES:
                number, at = longer_varint(body, at - 1, INT32_SHIFT_MAX)
            if number != 2 * index and misplaced < 0:
                misplaced = index
            number = body[at]
            at += 1
            if number == NULL_LENGTH:
                keyless += 1
            else:
                if number >= CONTINUES:
                    number, at = longer_varint(body, at - 1, INT32_SHIFT_MAX)
                at = _after_content(at, number, record_end)
            number = body[at]
            at += 1
            if number != NULL_LENGTH:
                if number >= CONTINUES:
                    number, at = longer_varint(body, at - 1, INT32_SHIFT_MAX)
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
    return tuple.__new__(RecordSummary, (delta_min, delta_max, keyless, misplaced))


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
        if length != NULL_LENGTH:
            at = _after_content(at, length, end)
        count -= 2
    return at


def _varint_at(body: bytes, at: i64) -> tuple[i64, i64]:
    """Read a number of any size, like `longer_varint`."""
    number: i64 = body[at]
    return (number, at + 1) if number < CONTINUES else longer_varint(body, at, INT32_SHIFT_MAX)


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
            if number >= CONTINUES:
                number, at = longer_varint(buffer, at - 1, INT32_SHIFT_MAX)
            record_end: i64 = at + (number >> 1)
            if number & 1 or record_end > stop:
                raise ValueError(f"a length that does not fit the {stop - at} bytes that are left")  # noqa: TRY301
            at += 2
            if buffer[at - 1] >= CONTINUES:
                _, at = longer_varint(buffer, at - 1, INT64_SHIFT_MAX)
            delta: i64 = buffer[at]
            at += 1
            if delta >= CONTINUES:
                delta, at = longer_varint(buffer, at - 1, INT32_SHIFT_MAX)
            number = buffer[at]
            at += 1
            if number >= CONTINUES:
                number, at = longer_varint(buffer, at - 1, INT32_SHIFT_MAX)
            value_at: i64 = at + (number >> 1)
            if value_at >= record_end or (number & 1 and number > 1):
                raise ValueError("a record does not have its declared size")  # noqa: TRY301
            if buffer[value_at] == NULL_LENGTH:
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
    length, at = read_varint(body, start, INT32_SHIFT_MAX)
    end: i64 = at + length
    if length < 0 or end > len(body):
        raise ValueError(f"{length} bytes claimed, {len(body) - at} left")
    timestamp_delta, after_time = read_varint(body, at + 1, INT64_SHIFT_MAX)
    offset_delta, at = read_varint(body, after_time, INT32_SHIFT_MAX)
    key_length, key_at = read_varint(body, at, INT32_SHIFT_MAX)
    at = key_at + key_length if key_length >= 0 else key_at
    if at >= end or key_length < -1:
        raise ValueError("a record does not have its declared size")
    key = body[key_at:at] if key_length >= 0 else None
    is_tombstone = body[at] == NULL_LENGTH
    return tuple.__new__(RecordSpan, (start, after_time, end, timestamp_delta, offset_delta, key, is_tombstone))


def write_shifted(
    writer: BytesWriter, body: bytes, record_count: int, *, offset_shift: int, timestamp_shift: int
) -> None:
    """Write the records of an opened body as records of a longer batch: `offset_shift` records and
    `timestamp_shift` ms are added to their deltas, and nothing else changes.

    Raises InvalidBatch when the records do not fill the body, when their offset deltas do not count
    from 0, and for timestamps further apart than `TIME_SHIFT_MAX`.
    """
    at: i64 = 0
    stop: i64 = len(body)
    count: i64 = record_count
    shift: i64 = offset_shift
    index: i64 = 0
    try:
        if not -TIME_SHIFT_MAX < timestamp_shift < TIME_SHIFT_MAX:
            raise ValueError(f"its timestamps are {timestamp_shift} ms away")  # noqa: TRY301
        time_shift: i64 = timestamp_shift
        while index < count:
            length, at = read_varint(body, at, INT32_SHIFT_MAX)
            record_end: i64 = at + length
            if length < 0 or record_end > stop:
                raise ValueError(f"{length} bytes claimed, {stop - at} left")  # noqa: TRY301
            attributes: i64 = body[at]
            time_delta, at = read_varint(body, at + 1, INT64_SHIFT_MAX)
            offset_delta, at = read_varint(body, at, INT32_SHIFT_MAX)
            if offset_delta != index or at > record_end or not -TIME_SHIFT_MAX < time_delta < TIME_SHIFT_MAX:
                raise ValueError(f"offset delta {offset_delta}, timestamp delta {time_delta}")  # noqa: TRY301
            time_delta += time_shift
            offset_delta += shift
            write_varint(writer, 1 + varint_size(time_delta) + varint_size(offset_delta) + record_end - at)
            writer.append(u8(attributes))
            write_varint(writer, time_delta)
            write_varint(writer, offset_delta)
            writer.write(body[at:record_end])
            at = record_end
            index += 1
    except (IndexError, ValueError) as error:
        raise InvalidBatch(f"record {index} of {count} cannot be moved: {error}", 0) from error
    if at != stop:
        raise InvalidBatch(f"{stop - at} bytes after the last record", 0)
