"""Records as columns: on every body, sound or damaged, as the reader that makes records."""

from __future__ import annotations

import datetime as dt
from array import array
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from librt.strings import BytesWriter

from spark_jobs.connector import record_rows as rows_module
from spark_jobs.connector.core.filters import EVERYTHING
from spark_jobs.connector.core.offsets import Bound, BoundKind
from spark_jobs.connector.core.options import ReadOptions, Subscription
from spark_jobs.connector.core.planning import OffsetRange
from spark_jobs.connector.fetching import Chunk
from spark_jobs.connector.record_rows import record_rows
from spark_jobs.connector.tally import Tally
from spark_jobs.logs.core.cluster_options import ClusterOptions
from wire.batches.record_batch import Compression, InvalidBatch, iterate_headers, read_header
from wire.batches.record_columns import RecordColumns
from wire.batches.records import Record, decode_batch, encode_batch, open_body

CONTENTS = st.none() | st.binary(max_size=200)
RECORDS = st.lists(
    st.builds(
        Record,
        key=CONTENTS,
        value=CONTENTS,
        timestamp_ms=st.integers(-1, 2**41),
        headers=st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=5), CONTENTS), max_size=3),
    ),
    min_size=1,
    max_size=20,
)


EMPTY = Record(key=None, value=None, timestamp_ms=0)
FULL = Record(key=b"k", value=b"value", timestamp_ms=3)
TIMELESS = Record(key=None, value=b"v", timestamp_ms=-1)


def rows(batches: list[bytes], first: int, until: int, *, has_headers: bool = False) -> list[dict[str, Any]]:
    """The source's rows of these batches, of which the first two are one answer to a fetch."""
    options = ReadOptions(
        cluster=ClusterOptions(bootstrap="none:1"),
        subscription=Subscription(),
        starting=Bound(kind=BoundKind.EARLIEST),
        ending=Bound(kind=BoundKind.LATEST),
        has_headers=has_headers,
    )
    wanted = OffsetRange(topic="t", partition=7, first_offset=first, until_offset=until)
    answers = [memoryview(b"".join(some)) for some in (batches[:2], batches[2:])]
    chunks = [Chunk(answer, list(iterate_headers(answer)), ()) for answer in answers]
    found = list(record_rows(wanted, chunks, options, EVERYTHING, Tally()))
    return pa.Table.from_batches(found).to_pylist() if found else []


@given(
    st.lists(st.tuples(RECORDS, st.sampled_from([Compression.NONE, Compression.LZ4])), max_size=5),
    st.integers(0, 30),
    st.integers(0, 60),
    st.sampled_from([True, False]),
    st.sampled_from([1, 300, rows_module.COLUMN_BYTES]),
)
@example([([EMPTY, EMPTY], Compression.NONE)], 1, 0, True, 1)
@example([([TIMELESS], Compression.NONE)], 0, 1, False, 1)
@example([([FULL], Compression.LZ4), ([FULL, EMPTY], Compression.NONE)], 0, 3, False, 300)
@example([([EMPTY], Compression.LZ4), ([FULL, EMPTY], Compression.LZ4)], 1, 2, False, 300)
def test_rows_are_the_records_of_the_wanted_offsets(
    groups: list[tuple[list[Record], Compression]], first: int, length: int, has_headers: bool, column_bytes: int
) -> None:
    batches, offset = [], 0
    for group, compression in groups:
        batches.append(encode_batch(group, base_offset=offset, compression=compression))
        offset += len(group)
    records = [record for batch in batches for record in decode_batch(batch, 0, read_header(batch))]
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    expected = [
        {
            "key": record.key,
            "value": record.value,
            "topic": "t",
            "partition": 7,
            "offset": record.offset,
            "timestamp": epoch + dt.timedelta(milliseconds=record.timestamp_ms),
            "timestampType": 0,
        }
        | (
            {"headers": [{"key": name, "value": value} for name, value in record.headers] or None}
            if has_headers
            else {}
        )
        for record in records
        if first <= record.offset < first + length
    ]
    with patch.object(rows_module, "COLUMN_BYTES", column_bytes):
        assert rows(batches, first, first + length, has_headers=has_headers) == expected


@given(RECORDS, st.data())
def test_a_body_that_the_reader_refuses_is_refused(records: list[Record], data: st.DataObject) -> None:
    batch = encode_batch(records)
    header, body = read_header(batch), bytearray(open_body(batch, 0, read_header(batch)))
    body[data.draw(st.integers(0, len(body) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    body = body[: data.draw(st.integers(0, len(body)))]
    damaged = encode_header_over(header, bytes(body))
    columns = RecordColumns()
    try:
        expected = list(decode_batch(damaged, 0, read_header(damaged)))
    except InvalidBatch:
        # Columns skip over headers, which only the other reader looks into.
        if not any(record.headers for record in records):
            with pytest.raises(InvalidBatch):
                columns.append(bytes(body), 0, header, 0, 2**62)
        return
    columns.append(bytes(body), 7, header, -(2**62), 2**62)
    assert columns.count == len(expected)
    source = bytes(7) + body
    assert entries(source, columns.key_places) == [record.key or b"" for record in expected]
    assert entries(source, columns.value_places) == [record.value or b"" for record in expected]


def entries(source: bytes, places: BytesWriter) -> list[bytes]:
    """The bytes of the source at these places."""
    numbers = array("i", places.getvalue())
    return [source[start:end] for start, end in zip(numbers[::2], numbers[1::2], strict=True)]


def encode_header_over(header: Any, body: bytes) -> bytes:
    """The batch around another body."""
    from wire.batches.record_batch import HEADER_SIZE, LOG_OVERHEAD, encode_header

    header = header._replace(batch_length=HEADER_SIZE - LOG_OVERHEAD + len(body))
    return encode_header(header, body) + body
