"""Chunks of raw batches as Arrow batches with the Kafka connector's columns.

Without headers the compiled machine fills the columns (`wire/batches/record_columns.py`); with
headers each record is made, since a list of names and values has no cheaper form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa

from clients.reader.core.committed import skipped_batches
from spark_jobs.connector.arrow_columns import repeated_number, repeated_text
from spark_jobs.connector.core.filters import Narrowing
from spark_jobs.connector.core.options import READ_COMMITTED, ReadOptions
from spark_jobs.connector.core.planning import OffsetRange
from spark_jobs.connector.fetching import Chunk
from spark_jobs.connector.tally import Tally
from wire.batches.record_batch import BatchHeader, InvalidBatch, verify_crc
from wire.batches.record_columns import RecordColumns
from wire.batches.records import decode_body, open_body, printable_name

COLUMN_BYTES: Final = 4 * 1024 * 1024
"""An Arrow batch is complete when its keys and values take so many bytes. Larger columns leave the
processor's caches, and the system maps fresh pages for each: the worker then takes twice the time.
"""

_TIME: Final = pa.timestamp("us", tz="UTC")
_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", _TIME),
        ("timestampType", pa.int32()),
    ]
)
_SCHEMA_WITH_HEADERS: Final = _SCHEMA.append(pa.field("headers", _HEADERS))


def record_rows(
    wanted: OffsetRange, chunks: Iterable[Chunk], options: ReadOptions, narrowing: Narrowing, tally: Tally
) -> Iterator[pa.RecordBatch]:
    """The records of one range. Raises InvalidBatch for a damaged batch, as a consumer does."""
    build = _with_headers if options.has_headers else _without_headers
    return build(wanted, _wanted_batches(wanted, chunks, options, narrowing, tally))


def _wanted_batches(
    wanted: OffsetRange, chunks: Iterable[Chunk], options: ReadOptions, narrowing: Narrowing, tally: Tally
) -> Iterator[tuple[bytes, BatchHeader]]:
    """The opened bodies of the batches that may have wanted rows."""
    for chunk in chunks:
        skipped = (
            skipped_batches(chunk.records, aborted=chunk.aborted)
            if options.isolation_level == READ_COMMITTED
            else frozenset()
        )
        for position, header in chunk.batches:
            tally.batches += 1
            if (
                header.is_control
                or header.base_offset in skipped
                or header.next_offset <= wanted.first_offset
                or header.base_offset >= wanted.until_offset
                or header.max_timestamp < narrowing.since_ms
                or (header.is_log_append_time and header.max_timestamp >= narrowing.until_ms)
            ):
                continue
            if not verify_crc(chunk.records, position, header):
                where = f"{wanted.topic}-{wanted.partition} at offset {header.base_offset}"
                raise InvalidBatch(f"the checksum of {where} does not match", position)
            tally.opened += 1
            yield open_body(chunk.records, position, header), header


def _without_headers(wanted: OffsetRange, batches: Iterable[tuple[bytes, BatchHeader]]) -> Iterator[pa.RecordBatch]:
    columns, time_type = RecordColumns(), 0
    for body, header in batches:
        is_full = columns.size_bytes + len(body) > COLUMN_BYTES
        if columns.count and (is_full or time_type != int(header.is_log_append_time)):
            yield _arrow(wanted, columns, time_type)
            columns.clear()
        time_type = int(header.is_log_append_time)
        columns.append(body, header, wanted.first_offset, wanted.until_offset)
    if columns.count:
        yield _arrow(wanted, columns, time_type)


def _arrow(wanted: OffsetRange, columns: RecordColumns, time_type: int) -> pa.RecordBatch:
    count = columns.count
    arrays = [
        _binary(count, columns.has_key.getvalue(), columns.key_ends.getvalue(), columns.keys.getvalue()),
        _binary(count, columns.has_value.getvalue(), columns.value_ends.getvalue(), columns.values.getvalue()),
        repeated_text(wanted.topic, count),
        repeated_number(wanted.partition, count),
        pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(columns.offsets.getvalue())]),
        pa.Array.from_buffers(_TIME, count, [None, pa.py_buffer(columns.times_us.getvalue())]),
        repeated_number(time_type, count),
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _binary(count: int, has_entry: bytes, ends: bytes, data: bytes) -> pa.Array:
    present = None
    if 0 in has_entry:
        bits = np.packbits(np.frombuffer(has_entry, dtype=np.uint8), bitorder="little")
        present = pa.py_buffer(bits.tobytes())
    return pa.Array.from_buffers(pa.binary(), count, [present, pa.py_buffer(ends), pa.py_buffer(data)])


def _with_headers(wanted: OffsetRange, batches: Iterable[tuple[bytes, BatchHeader]]) -> Iterator[pa.RecordBatch]:
    rows: list[tuple[Any, ...]] = []
    size_bytes = 0
    for body, header in batches:
        time_type = int(header.is_log_append_time)
        for record in decode_body(body, header):
            if wanted.first_offset <= record.offset < wanted.until_offset:
                # without headers a null, as in the Kafka connector
                headers = [{"key": printable_name(name), "value": value} for name, value in record.headers] or None
                time_us = record.timestamp_ms * 1000
                place = (wanted.topic, wanted.partition, record.offset)
                rows.append((record.key, record.value, *place, time_us, time_type, headers))
        size_bytes += len(body)
        if rows and size_bytes > COLUMN_BYTES:
            yield _arrow_of_rows(rows)
            rows, size_bytes = [], 0
    if rows:
        yield _arrow_of_rows(rows)


def _arrow_of_rows(rows: list[tuple[Any, ...]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(column, type=field.type) for column, field in zip(columns, _SCHEMA_WITH_HEADERS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA_WITH_HEADERS)
