"""Chunks of raw batches as Arrow batches with the Kafka connector's columns.

Without headers the compiled machine finds the keys and values
(`wire/batches/record_columns.py`), and Arrow copies them out of the answer to the fetch at once;
with headers each record is made, since a list of names and values has no cheaper form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow._compute import call_function  # pyarrow.compute, which has it too, takes 50 ms to import

from clients.reader.core.committed import skipped_batches
from spark_jobs.connector.arrow_columns import number_column, repeated_number, repeated_text
from spark_jobs.connector.core.filters import Narrowing
from spark_jobs.connector.core.options import READ_COMMITTED, ReadOptions
from spark_jobs.connector.core.planning import OffsetRange
from spark_jobs.connector.fetching import Chunk
from spark_jobs.connector.tally import Tally
from wire.batches.record_batch import HEADER_SIZE, BatchHeader, InvalidBatch, verify_crc
from wire.batches.record_columns import RecordColumns
from wire.batches.records import decode_body, open_body, printable_name

COLUMN_BYTES: Final = 4 * 1024 * 1024
"""An Arrow batch is complete when its opened batches take so many bytes. Larger columns leave the
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


class _Opened(NamedTuple):
    """A batch that may have wanted rows: its body, and the answer to the fetch with the position of
    the body there. `answer` is None for a body that was compressed.
    """

    body: bytes
    header: BatchHeader
    answer: memoryview | None
    position: int


def record_rows(
    wanted: OffsetRange, chunks: Iterable[Chunk], options: ReadOptions, narrowing: Narrowing, tally: Tally
) -> Iterator[pa.RecordBatch]:
    """The records of one range. Raises InvalidBatch for a damaged batch, as a consumer does."""
    build = _with_headers if options.has_headers else _without_headers
    return build(wanted, (_opened(wanted, chunk, options, narrowing, tally) for chunk in chunks))


def _opened(
    wanted: OffsetRange, chunk: Chunk, options: ReadOptions, narrowing: Narrowing, tally: Tally
) -> Iterator[_Opened]:
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
        answer = None if header.compression else chunk.records
        body = open_body(chunk.records, position, header)
        yield tuple.__new__(_Opened, (body, header, answer, position + HEADER_SIZE))


class _Rows:
    """Rows of one Arrow batch, whose keys and values lie in one source: the answer to a fetch, or
    opened bodies one after the other. All have one type of timestamp.
    """

    def __init__(self, wanted: OffsetRange) -> None:
        self._wanted = wanted
        self._columns = RecordColumns()
        self._answer: memoryview | None = None
        self._bodies: list[bytes] = []
        self._size_bytes = 0
        self._time_type = 0

    def __bool__(self) -> bool:
        return self._columns.count > 0

    def has_room(self, opened: _Opened) -> bool:
        """True if the records of the batch may be in the same Arrow batch."""
        return (
            self._size_bytes + len(opened.body) <= COLUMN_BYTES
            and opened.answer is self._answer
            and int(opened.header.is_log_append_time) == self._time_type
        )

    def add(self, opened: _Opened) -> None:
        """Add the batch's records of wanted offsets; there is room for them, or no row yet."""
        body, header, answer, position = opened
        if not self._columns.count:
            self._answer, self._size_bytes, self._time_type = answer, 0, int(header.is_log_append_time)
            self._bodies.clear()
        if answer is None:
            self._bodies.append(body)
            position = self._size_bytes
        self._columns.append(body, position, header, self._wanted.first_offset, self._wanted.until_offset)
        self._size_bytes += len(body)

    def taken(self) -> pa.RecordBatch:
        """The rows, which leave this object."""
        columns, count = self._columns, self._columns.count
        source = pa.py_buffer(b"".join(self._bodies) if self._answer is None else self._answer)
        arrays = [
            _entries(count, columns.has_key.getvalue(), columns.key_places.getvalue(), source),
            _entries(count, columns.has_value.getvalue(), columns.value_places.getvalue(), source),
            repeated_text(self._wanted.topic, count),
            repeated_number(self._wanted.partition, count),
            pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(columns.offsets.getvalue())]),
            pa.Array.from_buffers(_TIME, count, [None, pa.py_buffer(columns.times_us.getvalue())]),
            repeated_number(self._time_type, count),
        ]
        columns.clear()
        self._answer = None  # its buffer receives a later answer when no view of it is left
        return pa.RecordBatch.from_arrays(arrays, schema=_SCHEMA)


def _without_headers(wanted: OffsetRange, chunks: Iterable[Iterable[_Opened]]) -> Iterator[pa.RecordBatch]:
    rows = _Rows(wanted)
    for chunk in chunks:
        for opened in chunk:
            if rows and not rows.has_room(opened):
                yield rows.taken()
            rows.add(opened)
        # before the next answer comes, which would push these bytes out of the processor's caches
        if rows:
            yield rows.taken()


def _entries(count: int, has_entry: bytes, places: bytes, source: pa.Buffer) -> pa.Array:
    """A column of the bytes at these places of the source."""
    if 1 not in has_entry:
        nothing = pa.py_buffer(bytes(4 * count + 4))
        return pa.Array.from_buffers(pa.binary(), count, [_bits(has_entry), nothing, pa.py_buffer(b"")])
    # to Arrow the source is an array of entries and of the bytes between them, in turns
    in_turns = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(places), source])
    every_other = number_column(np.arange(0, 2 * count, 2), np.int32)
    found = call_function("array_take", [in_turns, every_other])
    if 0 not in has_entry:
        return found
    _, ends, data = found.buffers()
    return pa.Array.from_buffers(pa.binary(), count, [_bits(has_entry), ends, data])


def _bits(has_entry: bytes) -> pa.Buffer:
    return pa.py_buffer(np.packbits(np.frombuffer(has_entry, dtype=np.uint8), bitorder="little").tobytes())


def _with_headers(wanted: OffsetRange, chunks: Iterable[Iterable[_Opened]]) -> Iterator[pa.RecordBatch]:
    rows: list[tuple[Any, ...]] = []
    size_bytes = 0
    for body, header, _, _ in chain.from_iterable(chunks):
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
