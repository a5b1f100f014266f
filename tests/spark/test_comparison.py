"""The comparisons in Spark on hand-made rows: they find differences that two healthy brokers would
never store, the same ones as the comparison in one process. Each case is a topic of one frame, so
that a comparison runs once for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from spark_jobs.logs.core.schemas import BATCH_SCHEMA, RECORD_SCHEMA
from spark_jobs.reconciling.core import comparison
from spark_jobs.reconciling.core.judging import Run
from tests.support.memory import comparison_cases as cases

pytestmark = pytest.mark.timeout(360)


def batches(spark: SparkSession, topics: Mapping[str, Iterable[cases.Batch]]) -> DataFrame:
    return spark.createDataFrame(cases.batch_rows(topics), BATCH_SCHEMA)


def records(spark: SparkSession, topics: Mapping[str, Iterable[cases.RecordCase]]) -> DataFrame:
    """Rows of RECORD_SCHEMA by topic."""
    complete: list[tuple[Any, ...]] = [
        (one.site, topic, 0, one.offset, 0, 0, one.is_control, one.key, one.value, list(one.headers), *one[6:])
        for topic, rows in topics.items()
        for one in rows
    ]
    return spark.createDataFrame(complete, RECORD_SCHEMA)


def found(frame: DataFrame) -> list[Run]:
    """The rows as runs, sorted."""
    return sorted(Run(**row.asDict()) for row in frame.collect())


def test_a_digest_does_not_depend_on_order_and_changes_with_a_batch_that_is_there_twice(spark: SparkSession) -> None:
    rows = batches(spark, cases.ORDERS)
    digests = {row.topic: row.digest for row in comparison.range_digests(rows, range_offsets=100).collect()}
    assert digests["forward"] == digests["backward"] != digests["twice"]


def test_an_offset_held_twice_and_a_sequence_appended_twice_are_defects(spark: SparkSession) -> None:
    assert found(comparison.defects(batches(spark, cases.DEFECTS))) == cases.DEFECTS_FOUND


@pytest.mark.long
def test_a_batch_that_is_there_twice_differs_and_neighbours_that_differ_are_one_run(spark: SparkSession) -> None:
    rows = batches(spark, cases.TWINS_AND_NEIGHBOURS)
    differing = comparison.differing_batches(rows, source="a", target="b")
    assert found(differing) == cases.TWINS_AND_NEIGHBOURS_FOUND


def test_the_same_bytes_in_another_part_of_a_record_are_another_record(spark: SparkSession) -> None:
    rows = records(spark, cases.RECORDS)
    assert found(comparison.differing_records(rows, source="a", target="b")) == cases.RECORDS_FOUND
    runs, explained = comparison.compacted_differences(rows, source="a", target="b")
    assert found(explained) == []
    assert found(runs) == cases.RECORDS_FOUND


def test_records_that_a_site_compacted_away_are_explained_and_lost_ones_are_not(spark: SparkSession) -> None:
    """R1, R2."""
    runs, explained = comparison.compacted_differences(records(spark, cases.COMPACTED), source="a", target="b")
    assert found(runs) == cases.COMPACTED_FOUND
    assert found(explained) == cases.COMPACTED_EXPLAINED
