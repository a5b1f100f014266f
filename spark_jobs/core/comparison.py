"""Comparing two sites' batches: totals and digests by partition and offset range, and the runs that differ.

DataFrames of `BATCH_SCHEMA` in, small DataFrames out. On an exact link a batch is the same on both sites when offsets,
epoch, count, size and CRC are; a digest is the sum of the batches' hashes, so it does not depend on the order in which
executors deliver them and a batch that appears twice changes it.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses

IDENTITY = ("last_offset", "record_count", "size_bytes", "leader_epoch", "crc")
"""What must agree for two batches at one base offset to be the same one."""

KEY = ("topic", "partition", "base_offset")


def _digest() -> Column:
    hashed = F.xxhash64(F.col("base_offset"), *(F.col(name) for name in IDENTITY))
    return F.sha2(F.sum(hashed.cast("decimal(38,0)")).cast("string"), 256).substr(1, 16)


def range_digests(batches: DataFrame, *, range_offsets: int) -> DataFrame:
    """By site, topic, partition and range of `range_offsets` offsets: records, bytes and digest."""
    range_start = F.floor(F.col("base_offset") / F.lit(range_offsets)) * F.lit(range_offsets)
    return (
        batches.withColumn("range_start", range_start.cast("bigint"))
        .groupBy("site", "topic", "partition", "range_start")
        .agg(
            F.sum("record_count").cast("bigint").alias("records"),
            F.sum("size_bytes").cast("bigint").alias("bytes"),
            F.count("*").alias("batches"),
            _digest().alias("digest"),
        )
    )


def partition_totals(batches: DataFrame) -> DataFrame:
    """By site, topic and partition: first and last offset held, records, bytes, batches and digest."""
    return batches.groupBy("site", "topic", "partition").agg(
        F.min("base_offset").alias("first_offset"),
        F.max("last_offset").alias("last_offset"),
        F.sum("record_count").cast("bigint").alias("records"),
        F.sum("size_bytes").cast("bigint").alias("bytes"),
        F.count("*").alias("batches"),
        F.max("max_timestamp_ms").alias("max_timestamp_ms"),
        _digest().alias("digest"),
    )


def differing_runs(source: DataFrame, target: DataFrame) -> DataFrame:
    """Runs of neighbouring batches of one kind (`only_source`, `only_target`, `disagree`), by `DIFFERENCE_SCHEMA`.

    Neighbours are joined when one batch begins where the one before ended, so a million differing batches in a row are
    one line.
    """
    columns = [*KEY, *IDENTITY]
    left, right = source.select(*columns).alias("s"), target.select(*columns).alias("t")
    same_place = [F.col(f"s.{name}") == F.col(f"t.{name}") for name in KEY]
    joined = left.join(right, same_place, "full_outer")
    disagree = F.lit(False)
    for name in IDENTITY:
        disagree = disagree | (F.col(f"s.{name}") != F.col(f"t.{name}"))
    kind = (
        F.when(F.col("t.base_offset").isNull(), "only_source")
        .when(F.col("s.base_offset").isNull(), "only_target")
        .when(disagree, "disagree")
    )
    differing = joined.select(
        *(F.coalesce(F.col(f"s.{name}"), F.col(f"t.{name}")).alias(name) for name in KEY),
        F.greatest(F.col("s.last_offset"), F.col("t.last_offset")).alias("last_offset"),
        F.greatest(F.col("s.record_count"), F.col("t.record_count")).alias("record_count"),
        kind.alias("kind"),
    ).where(F.col("kind").isNotNull())
    return _runs(differing)


def _runs(differing: DataFrame) -> DataFrame:
    by_kind = Window.partitionBy("topic", "partition", "kind").orderBy("base_offset")
    previous_last = F.max("last_offset").over(by_kind.rowsBetween(Window.unboundedPreceding, -1))
    begins = F.when(previous_last.isNull() | (F.col("base_offset") > previous_last + 1), 1).otherwise(0)
    numbered = differing.withColumn("begins", begins).withColumn("run", F.sum("begins").over(by_kind))
    return (
        numbered.groupBy("topic", "partition", "kind", "run")
        .agg(
            F.min("base_offset").alias("first_offset"),
            F.max("last_offset").alias("last_offset"),
            F.sum("record_count").cast("bigint").alias("records"),
        )
        .drop("run")
    )


def corrupt_batches(batches: DataFrame) -> DataFrame:
    """Batches whose checksum does not fit their bytes, by site."""
    return batches.where(~F.col("is_crc_valid")).select("site", *KEY, "last_offset")


def overlapping_batches(batches: DataFrame) -> DataFrame:
    """Batches that begin at or before the end of the one before them in the same log: an offset held twice."""
    in_log = Window.partitionBy("site", "topic", "partition").orderBy("base_offset", "last_offset")
    previous_last = F.max("last_offset").over(in_log.rowsBetween(Window.unboundedPreceding, -1))
    return (
        batches.withColumn("previous_last", previous_last)
        .where(F.col("previous_last") >= F.col("base_offset"))
        .select("site", *KEY, F.least("previous_last", "last_offset").alias("last_offset"))
    )


def repeated_sequences(batches: DataFrame) -> DataFrame:
    """Batches of an idempotent producer whose sequence is in the same log already: appended twice.

    Control batches and batches without a producer id carry no sequence and are left out.
    """
    producer = Window.partitionBy("site", "topic", "partition", "producer_id", "producer_epoch", "base_sequence")
    control = F.col("attributes").bitwiseAND(32) != 0
    numbered = batches.where((F.col("producer_id") >= 0) & (F.col("base_sequence") >= 0) & ~control).withColumn(
        "first_seen", F.min("base_offset").over(producer)
    )
    # A sequence wraps after 2^31 records, so the same number far away is legitimate: only equal batches are a repeat.
    same = Window.partitionBy(
        "site", "topic", "partition", "producer_id", "producer_epoch", "base_sequence", "crc", "record_count"
    )
    return (
        numbered.withColumn("copies", F.count("*").over(same))
        .where((F.col("copies") > 1) & (F.col("base_offset") > F.col("first_seen")))
        .select("site", *KEY, "last_offset", "first_seen")
    )
