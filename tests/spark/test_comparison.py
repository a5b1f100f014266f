"""The comparisons on hand-made rows: what two healthy brokers would never store is found all the
same.
"""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.core import comparison
from spark_jobs.core.schemas import BATCH_SCHEMA, RECORD_SCHEMA

pytestmark = pytest.mark.timeout(360)


def batches(spark: SparkSession, *rows: dict[str, Any]) -> DataFrame:
    """Rows of BATCH_SCHEMA: one batch of ten records each unless it says otherwise."""
    columns = [column.split(" ")[0] for column in BATCH_SCHEMA.split(", ")]
    complete: list[tuple[Any, ...]] = []
    for row in rows:
        base = row["base_offset"]
        defaults = dict.fromkeys(columns, 0) | {
            "topic": "t",
            "last_offset": base + 9,
            "record_count": 10,
            "size_bytes": 500,
            "is_crc_valid": True,
            "producer_id": -1,
            "base_sequence": -1,
        }
        complete.append(tuple((defaults | row)[column] for column in columns))
    return spark.createDataFrame(complete, BATCH_SCHEMA)


def records(spark: SparkSession, *rows: tuple[str, int, bytes, bytes | None]) -> DataFrame:
    """Rows of RECORD_SCHEMA from site, offset, key and value."""
    complete: list[tuple[Any, ...]] = [
        (site, "t", 0, offset, 0, 0, False, key, value, []) for site, offset, key, value in rows
    ]
    return spark.createDataFrame(complete, RECORD_SCHEMA)


def test_a_digest_does_not_depend_on_order_and_changes_with_a_batch_that_is_there_twice(spark: SparkSession) -> None:
    first, second = {"site": "a", "base_offset": 0, "crc": 7}, {"site": "a", "base_offset": 10, "crc": 9}
    digests = [
        comparison.range_digests(batches(spark, *rows), range_offsets=100).collect()[0].digest
        for rows in ((first, second), (second, first), (first, second, second))
    ]
    assert digests[0] == digests[1] != digests[2]


def test_an_offset_held_twice_and_a_sequence_appended_twice_are_defects(spark: SparkSession) -> None:
    produced = {"site": "a", "producer_id": 4, "base_sequence": 0, "crc": 7}
    rows = comparison.defects(
        batches(
            spark,
            {**produced, "base_offset": 0},
            {**produced, "base_offset": 10},
            {"site": "a", "base_offset": 15, "last_offset": 24},
            {"site": "b", "base_offset": 0, "is_crc_valid": False},
            {"site": "b", "base_offset": 10, "producer_id": 4, "base_sequence": 0, "attributes": 32},
            {"site": "b", "base_offset": 20, "producer_id": 4, "base_sequence": 0, "attributes": 32},
        )
    ).collect()
    assert {(row.site, row.kind, row.first_offset, row.last_offset) for row in rows} == {
        ("a", "repeated", 10, 19),
        ("a", "overlapping", 15, 19),
        ("b", "corrupt", 0, 9),
    }


def test_a_batch_that_one_site_has_twice_does_not_hide_behind_its_twin(spark: SparkSession) -> None:
    same = {"base_offset": 0, "crc": 7}
    rows = comparison.differing_batches(
        batches(spark, {"site": "a", **same}, {"site": "b", **same}, {"site": "b", **same}), source="a", target="b"
    ).collect()
    assert [(row.kind, row.first_offset, row.last_offset) for row in rows] == [("only_target", 0, 9)]


def test_a_million_neighbours_that_differ_are_one_run(spark: SparkSession) -> None:
    lone = [{"site": "a", "base_offset": 10 * number} for number in range(50)]
    apart = {"site": "a", "base_offset": 700}
    (first, second) = sorted(
        comparison.differing_batches(batches(spark, *lone, apart), source="a", target="b").collect(),
        key=lambda row: row.first_offset,
    )
    assert (first.first_offset, first.last_offset) == (0, 499)
    assert (second.first_offset, second.last_offset) == (700, 709)


def test_what_a_site_has_compacted_away_is_explained_and_what_it_lost_is_not(spark: SparkSession) -> None:
    runs, explained = comparison.compacted_differences(
        records(
            spark,
            ("a", 0, b"k", b"old"),  # b compacted it: it has a newer one
            ("a", 1, b"gone", None),  # a tombstone that expired at b
            ("a", 2, b"lost", b"value"),  # b has nothing of this key
            ("a", 3, b"k", b"new"),
            ("b", 3, b"k", b"new"),
        ),
        source="a",
        target="b",
    )
    assert [(row.kind, row.first_offset, row.last_offset) for row in runs.collect()] == [("only_source", 2, 2)]
    assert [(row.first_offset, row.last_offset, row.records) for row in explained.collect()] == [(0, 1, 2)]


def test_a_key_that_one_site_deleted_for_good_is_explained_at_the_other_which_keeps_it_all(spark: SparkSession) -> None:
    """R2: the source has compacted the key away, and its tombstone after that; a standby does
    neither.
    """
    runs, explained = comparison.compacted_differences(
        records(spark, ("b", 0, b"k", b"old"), ("b", 1, b"k", None), ("b", 2, b"x", b"1"), ("a", 2, b"x", b"1")),
        source="a",
        target="b",
    )
    assert not runs.collect()
    assert [(row.kind, row.first_offset, row.last_offset, row.records) for row in explained.collect()] == [
        ("only_target", 0, 1, 2)
    ]


def test_a_tombstone_that_a_site_lost_while_the_key_lives_there_is_a_finding(spark: SparkSession) -> None:
    """R1."""
    runs, explained = comparison.compacted_differences(
        records(spark, ("a", 0, b"k", b"old"), ("a", 1, b"k", None), ("b", 0, b"k", b"old")), source="a", target="b"
    )
    assert [(row.kind, row.first_offset, row.last_offset) for row in runs.collect()] == [("only_source", 1, 1)]
    assert not explained.collect()


def test_a_deleted_key_that_lives_again_is_a_finding(spark: SparkSession) -> None:
    """Its tombstone expired before the mirror came for it: the old value at the target, nothing at
    the source.
    """
    runs, _ = comparison.compacted_differences(
        records(spark, ("b", 0, b"k", b"old"), ("b", 5, b"k", b"older tombstone is below this"), ("b", 1, b"k", None)),
        source="a",
        target="b",
    )
    assert [(row.kind, row.first_offset, row.last_offset) for row in runs.collect()] == [("only_target", 5, 5)]
