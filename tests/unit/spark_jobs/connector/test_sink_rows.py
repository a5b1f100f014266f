"""Rows of the sink as records: the bytes and the partitions are those that the encoders of single
records and Java's partitioner give.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clients.core.partitioners import murmur2
from spark_jobs.connector.core.record_encoding import murmur2_hashes, sizes_of
from spark_jobs.connector.core.sink_rows import (
    BATCH_BYTES_MAX,
    Divider,
    InvalidRows,
    Rows,
    check_columns,
    joined,
    topics_of,
)
from wire.batches.records import Record, encode_record

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
CONTENT = st.none() | st.binary(max_size=12) | st.sampled_from([b"x" * size for size in (63, 64, 256, 257, 8192)])
HEADER = st.tuples(st.text(max_size=3), CONTENT)


def rows_of(*rows: tuple[bytes | None, bytes | None], **columns: Any) -> Rows:
    """Rows from keys and values."""
    keys, values = zip(*rows, strict=True)
    return Rows(keys=pa.array(keys, pa.binary()), values=pa.array(values, pa.binary()), **columns)


@given(rows=st.lists(st.tuples(CONTENT, CONTENT, st.lists(HEADER, max_size=2)), min_size=1, max_size=80))
def test_columns_are_encoded_as_single_records_are(
    rows: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
) -> None:
    headers = pa.array([[{"key": name, "value": value} for name, value in row[2]] for row in rows], HEADERS)
    for chosen in (None, headers):
        encoded = rows_of(*((key, value) for key, value, _ in rows), headers=chosen).encoded()
        assert encoded == b"".join(
            encode_record(Record(key, value, 5, () if chosen is None else named), number, 5)
            for number, (key, value, named) in enumerate(rows)
        )


@given(keys=st.lists(st.binary(max_size=300), max_size=20), skipped=st.integers(0, 5))
def test_hashes_are_those_of_single_keys(keys: list[bytes], skipped: int) -> None:
    assert list(murmur2_hashes(pa.array(keys, pa.binary())[skipped:])) == [murmur2(key) for key in keys[skipped:]]


def test_rows_go_where_they_say_or_by_their_key_and_keep_their_order() -> None:
    rows = rows_of(
        *((b"%d" % (number % 5), b"%d" % number) for number in range(40)),
        (None, b"keyless"),
        (b"k", b"own"),
        partitions=pa.array([None] * 41 + [2], pa.int32()),
    )
    batches = dict(Divider(1, "t").batches(rows, {"t": 3}))
    values = {partition: batch.values.to_pylist() for (_, partition), batch in batches.items()}
    expected: dict[int, list[bytes]] = {}
    for number in range(40):
        chosen = (murmur2(b"%d" % (number % 5)) & 0x7FFFFFFF) % 3
        expected.setdefault(chosen, []).append(b"%d" % number)
    expected.setdefault(1, []).append(b"keyless")
    expected.setdefault(2, []).append(b"own")
    assert values == expected
    wrong = rows_of((b"k", b"v"), partitions=pa.array([3], pa.int32()))
    with pytest.raises(InvalidRows, match="column partition is 3; accepted: 0 to 2"):
        list(Divider(0, "t").batches(wrong, {"t": 3}))


def test_topics_are_those_of_rows_and_the_option_goes_before_them() -> None:
    rows = rows_of((b"1", b"a"), (b"2", b"b"), (b"3", b"c"), topics=pa.array(["x", "y", "x"], pa.string()))
    assert topics_of(rows, "") == ["x", "y"]
    batches = dict(Divider(0, "").batches(rows, {"x": 1, "y": 1}))
    assert {place: batch.values.to_pylist() for place, batch in batches.items()} == {
        ("x", 0): [b"a", b"c"],
        ("y", 0): [b"b"],
    }
    # a query that copies a topic keeps the column of its source
    assert topics_of(rows, "copy") == ["copy"]
    assert [place for place, _ in Divider(0, "copy").batches(rows, {"copy": 1})] == [("copy", 0)]


@pytest.mark.parametrize("topics", [["x", None], ["x", ""]])
def test_a_row_without_a_topic_is_refused_unless_the_option_names_one(topics: list[str | None]) -> None:
    rows = rows_of((b"1", b"a"), (b"2", b"b"), topics=pa.array(topics, pa.string()))
    with pytest.raises(InvalidRows, match="column topic is null"):
        topics_of(rows, "")
    assert topics_of(rows, "copy") == ["copy"]


def test_batches_are_bounded_and_records_without_a_key_change_the_partition_with_each() -> None:
    size = BATCH_BYTES_MAX // 4
    pieces = [rows_of((None, bytes(size)), (None, bytes(size))) for _ in range(6)]
    (rows,) = joined(pieces)
    batches = list(Divider(0, "t").batches(rows, {"t": 4}))
    assert sum(len(batch) for _, batch in batches) == 12
    assert max(len(batch) for _, batch in batches) <= 4
    assert {partition for (_, partition), _ in batches} == {0, 1, 2, 3}


@given(rows=st.lists(st.tuples(CONTENT, CONTENT, st.lists(HEADER, max_size=2)), min_size=1, max_size=20))
def test_no_record_is_larger_than_its_estimate(
    rows: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
) -> None:
    headers = pa.array([[{"key": name, "value": value} for name, value in row[2]] for row in rows], HEADERS)
    keys, values = (pa.array([row[place] for row in rows], pa.binary()) for place in (0, 1))
    estimates = sizes_of(keys[1:], values[1:], headers[1:])
    for estimate, (key, value, named) in zip(estimates, rows[1:], strict=True):
        assert len(encode_record(Record(key, value, 0, named), 1_000_000, 0)) <= estimate


def test_batches_of_small_records_are_bounded_by_the_bytes_of_the_records() -> None:
    tombstones = rows_of(*((b"%08d" % number, None) for number in range(80_000)))
    batches = [batch for _, batch in Divider(0, "t").batches(tombstones, {"t": 1})]
    assert max(len(batch.encoded()) for batch in batches) <= BATCH_BYTES_MAX
    assert sum(map(len, batches)) == 80_000


@pytest.mark.parametrize(
    ("types", "message"),
    [
        ({"key": "string"}, "no column value"),
        ({"value": "bigint", "topic": "string"}, "column value is bigint; accepted: string or binary"),
        ({"value": "string"}, "no column topic"),
        ({"value": "string", "topic": "string", "headers": "string"}, "column headers is string"),
    ],
)
def test_columns_that_cannot_be_written_are_refused(types: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRows, match=message):
        check_columns(types, has_topic_option=False)
