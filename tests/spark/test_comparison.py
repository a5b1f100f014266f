"""The comparisons on hand-made rows: what two healthy brokers would never store is found all the
same. Each case is a topic of one frame, so that a comparison runs once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.logs.core.schemas import BATCH_SCHEMA, RECORD_SCHEMA
from spark_jobs.reconciling.core import comparison

pytestmark = pytest.mark.timeout(360)


def batches(spark: SparkSession, **topics: Iterable[dict[str, Any]]) -> DataFrame:
    """Rows of BATCH_SCHEMA by topic: one batch of ten records each unless it says otherwise."""
    columns = [column.split(" ")[0] for column in BATCH_SCHEMA.split(", ")]
    complete: list[tuple[Any, ...]] = []
    for topic, rows in topics.items():
        for row in rows:
            base = row["base_offset"]
            defaults = dict.fromkeys(columns, 0) | {
                "topic": topic,
                "last_offset": base + 9,
                "record_count": 10,
                "size_bytes": 500,
                "is_crc_valid": True,
                "producer_id": -1,
                "base_sequence": -1,
            }
            complete.append(tuple((defaults | row)[column] for column in columns))
    return spark.createDataFrame(complete, BATCH_SCHEMA)


def records(spark: SparkSession, **topics: Iterable[tuple[str, int, bytes, bytes | None]]) -> DataFrame:
    """Rows of RECORD_SCHEMA by topic, from site, offset, key and value."""
    complete: list[tuple[Any, ...]] = [
        (site, topic, 0, offset, 0, 0, False, key, value, [])
        for topic, rows in topics.items()
        for site, offset, key, value in rows
    ]
    return spark.createDataFrame(complete, RECORD_SCHEMA)


def found(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """The rows with topic, kind, offsets and these columns, sorted."""
    return sorted(
        tuple(row) for row in frame.select("topic", "kind", "first_offset", "last_offset", *columns).collect()
    )


def test_a_digest_does_not_depend_on_order_and_changes_with_a_batch_that_is_there_twice(spark: SparkSession) -> None:
    first, second = {"site": "a", "base_offset": 0, "crc": 7}, {"site": "a", "base_offset": 10, "crc": 9}
    rows = batches(spark, forward=(first, second), backward=(second, first), twice=(first, second, second))
    digests = {row.topic: row.digest for row in comparison.range_digests(rows, range_offsets=100).collect()}
    assert digests["forward"] == digests["backward"] != digests["twice"]


def test_an_offset_held_twice_and_a_sequence_appended_twice_are_defects(spark: SparkSession) -> None:
    produced = {"site": "a", "producer_id": 4, "base_sequence": 0, "crc": 7}
    rows = batches(
        spark,
        t=(
            {**produced, "base_offset": 0},
            {**produced, "base_offset": 10},
            {"site": "a", "base_offset": 15, "last_offset": 24},
            {"site": "b", "base_offset": 0, "is_crc_valid": False},
            {"site": "b", "base_offset": 10, "producer_id": 4, "base_sequence": 0, "attributes": 32},
            {"site": "b", "base_offset": 20, "producer_id": 4, "base_sequence": 0, "attributes": 32},
        ),
    )
    assert found(comparison.defects(rows), "site") == [
        ("t", "corrupt", 0, 9, "b"),
        ("t", "overlapping", 15, 19, "a"),
        ("t", "repeated", 10, 19, "a"),
    ]


@pytest.mark.long
def test_a_batch_that_is_there_twice_differs_and_neighbours_that_differ_are_one_run(spark: SparkSession) -> None:
    same = {"base_offset": 0, "crc": 7}
    rows = batches(
        spark,
        twins=({"site": "a", **same}, {"site": "b", **same}, {"site": "b", **same}),
        neighbours=({"site": "a", "base_offset": offset} for offset in (*range(0, 500, 10), 700)),
    )
    assert found(comparison.differing_batches(rows, source="a", target="b")) == [
        ("neighbours", "only_source", 0, 499),
        ("neighbours", "only_source", 700, 709),
        ("twins", "only_target", 0, 9),
    ]


def test_what_a_site_has_compacted_away_is_explained_and_what_it_lost_is_not(spark: SparkSession) -> None:
    """R1, R2."""
    rows = records(
        spark,
        compacted=(
            ("a", 0, b"k", b"old"),  # b compacted it: it has a newer one
            ("a", 1, b"gone", None),  # a tombstone that expired at b
            ("a", 2, b"lost", b"value"),  # b has nothing of this key
            ("a", 3, b"k", b"new"),
            ("b", 3, b"k", b"new"),
        ),
        # The source compacted the key away, then its tombstone; a standby does neither.
        deleted=(("b", 0, b"k", b"old"), ("b", 1, b"k", None), ("b", 2, b"x", b"1"), ("a", 2, b"x", b"1")),
        # A tombstone that a site lost while the key lives there.
        undeleted=(("a", 0, b"k", b"old"), ("a", 1, b"k", None), ("b", 0, b"k", b"old")),
        # The tombstone expired before the mirror copied it: the target has the old value.
        revived=(("b", 0, b"k", b"old"), ("b", 5, b"k", b"above its tombstone"), ("b", 1, b"k", None)),
    )
    runs, explained = comparison.compacted_differences(rows, source="a", target="b")
    assert found(runs) == [
        ("compacted", "only_source", 2, 2),
        ("revived", "only_target", 5, 5),
        ("undeleted", "only_source", 1, 1),
    ]
    assert found(explained, "records") == [
        ("compacted", "only_source", 0, 1, 2),
        ("deleted", "only_target", 0, 1, 2),
        ("revived", "only_target", 0, 1, 2),
    ]
