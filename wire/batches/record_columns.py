"""Records of opened batches as columns: offsets, times, and where keys and values lie.

For jobs that read many records of few kinds: nothing is made for a record but its entries in the
columns, and keys and values are not moved. `make setup` compiles this module
(`runtime/compiled.py`); the rules of `records.py` apply here. Caller: the data source for Spark.
"""

from typing import Final

from librt.strings import BytesWriter, write_i32_le, write_i64_le
from mypy_extensions import i32, i64, u8

from wire.batches.record_batch import BatchHeader, InvalidBatch
from wire.batches.varints import INT32_SHIFT_MAX, INT64_SHIFT_MAX, read_varint

SOURCE_BYTES_MAX: Final = 2**31 - 1
"""Arrow's offsets into a column of bytes have 32 bits."""

_MICROSECONDS_PER_MS: Final = 1000


class RecordColumns:
    """Columns that grow by whole batches of one source: bytes in which the opened bodies lie. Of
    keys and values a column has the start and the end of each entry in the source (little-endian 32
    bits), and one byte for each entry, which is 0 for null; offsets and times (Unix microseconds)
    are little-endian 64 bits.
    """

    def __init__(self) -> None:
        self.count: i64 = 0
        self.offsets = BytesWriter()
        self.times_us = BytesWriter()
        self.key_places = BytesWriter()
        self.has_key = BytesWriter()
        self.value_places = BytesWriter()
        self.has_value = BytesWriter()

    def clear(self) -> None:
        """Remove all records. The memory of the columns is kept for the next ones: columns that
        grow anew are moved several times, into pages that the system has to map.
        """
        self.count = 0
        self.offsets.truncate(0)
        self.times_us.truncate(0)
        self.key_places.truncate(0)
        self.has_key.truncate(0)
        self.value_places.truncate(0)
        self.has_value.truncate(0)

    def append(self, body: bytes, position: i64, header: BatchHeader, first_offset: i64, until_offset: i64) -> None:
        """Append the records of an opened batch, whose body is at `position` in the source, that
        lie from `first_offset` up to `until_offset`, not included. Raises InvalidBatch if the
        records do not fill the body; the columns are then useless.
        """
        at: i64 = 0
        end: i64 = len(body)
        if position + end > SOURCE_BYTES_MAX:
            raise ValueError(f"more than {SOURCE_BYTES_MAX} bytes of records at a time")
        base_offset: i64 = header.base_offset
        base_time: i64 = header.base_timestamp
        has_append_time: bool = header.is_log_append_time
        append_time: i64 = header.max_timestamp
        count: i64 = header.record_count
        index: i64 = 0
        try:
            while index < count:
                length, at = read_varint(body, at, INT32_SHIFT_MAX)
                record_end: i64 = at + length
                if length < 0 or record_end > end:
                    raise ValueError(f"{length} bytes claimed, {end - at} left")  # noqa: TRY301
                time_delta, at = read_varint(body, at + 1, INT64_SHIFT_MAX)
                offset_delta, at = read_varint(body, at, INT32_SHIFT_MAX)
                key_length, key_at = read_varint(body, at, INT32_SHIFT_MAX)
                at = key_at + key_length if key_length >= 0 else key_at
                if key_length < -1 or at >= record_end:
                    raise ValueError("a record does not have its declared size")  # noqa: TRY301
                value_length, value_at = read_varint(body, at, INT32_SHIFT_MAX)
                at = value_at + value_length if value_length >= 0 else value_at
                if value_length < -1 or at >= record_end:
                    raise ValueError("a record does not have its declared size")  # noqa: TRY301
                # headers are not read, but a record without headers ends with their count
                if (body[at] == 0) != (record_end - at == 1):
                    raise ValueError("a record does not have as many headers as declared")  # noqa: TRY301
                offset: i64 = base_offset + offset_delta
                if first_offset <= offset < until_offset:
                    write_i64_le(self.offsets, offset)
                    write_i64_le(
                        self.times_us,
                        (append_time if has_append_time else base_time + time_delta) * _MICROSECONDS_PER_MS,
                    )
                    key_end: i64 = key_at + key_length if key_length > 0 else key_at
                    write_i32_le(self.key_places, i32(position + key_at))
                    write_i32_le(self.key_places, i32(position + key_end))
                    self.has_key.append(u8(key_length >= 0))
                    write_i32_le(self.value_places, i32(position + value_at))
                    write_i32_le(self.value_places, i32(position + at))
                    self.has_value.append(u8(value_length >= 0))
                    self.count += 1
                at = record_end
                index += 1
        except (IndexError, ValueError) as error:
            raise InvalidBatch(f"record {index} of {count} is damaged: {error}", 0) from error
        if at != end:
            raise InvalidBatch(f"{end - at} bytes after the last of {count} records", 0)
