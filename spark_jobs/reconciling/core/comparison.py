"""Comparing two sites' batches: digests by partition and offset range, the runs that differ, and
the problems within one log.

DataFrames of `BATCH_SCHEMA` (or, deep, `RECORD_SCHEMA`) in, small DataFrames out. On an exact link
a batch is the same on both sites when offsets, epoch, count, size and CRC are. A digest is the sum
of the batches' hashes, so it does not depend on the order in which executors deliver them, and a
batch that appears twice changes it.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - the name that every Spark program uses

from spark_jobs.reconciling.core.judging import ABORT_KEY, CORRUPT, ONLY_SOURCE, ONLY_TARGET, OVERLAPPING, REPEATED

IDENTITY = ("last_offset", "record_count", "size_bytes", "leader_epoch", "crc")
"""The columns in which two batches at one base offset must agree to be the same one."""

LOG = ("site", "topic", "partition")
CONTROL_BIT = 32


def range_digests(batches: DataFrame, *, range_offsets: int) -> DataFrame:
    """Records, bytes, batches and digest by site, topic, partition and range of `range_offsets`
    offsets.
    """
    range_start = F.floor(F.col("base_offset") / F.lit(range_offsets)) * F.lit(range_offsets)
    hashed = F.xxhash64(F.col("base_offset"), *(F.col(name) for name in IDENTITY))
    digest = F.sha2(F.sum(hashed.cast("decimal(38,0)")).cast("string"), 256).substr(1, 16)
    return (
        batches.withColumn("range_start", range_start.cast("bigint"))
        .groupBy(*LOG, "range_start")
        .agg(
            F.sum("record_count").cast("bigint").alias("records"),
            F.sum("size_bytes").cast("bigint").alias("bytes"),
            F.count("*").alias("batches"),
            digest.alias("digest"),
        )
    )


def differing_batches(batches: DataFrame, *, source: str, target: str) -> DataFrame:
    """Runs of neighbouring batches of one kind, by `DIFFERENCE_SCHEMA`."""
    return _differing(batches, key="base_offset", identity=IDENTITY, source=source, target=target)


def differing_records(records: DataFrame, *, source: str, target: str) -> DataFrame:
    """The same by single records, so that the runs are exact even if both sites batch the records
    differently.
    """
    content = _content("key", "value").alias("content")
    hashed = records.select(*LOG, "offset", F.col("offset").alias("last_offset"), "leader_epoch", content)
    return _differing(
        hashed, key="offset", identity=("last_offset", "leader_epoch", "content"), source=source, target=target
    )


def _content(*names: str) -> Column:
    """A hash of these columns and of all that is not a column of its own. Spark's hash passes over
    nulls: without the marks for them, a key without a value would be a value without a key.
    """
    parts = [part for name in names for part in (F.col(name).isNull(), F.col(name))]
    headers = F.transform("headers", lambda one: F.struct(one["name"], one["value"].isNull(), one["value"]))
    marks = ("is_control", "is_log_append_time", "is_transactional", "producer_id")
    return F.xxhash64("timestamp_ms", *marks, *parts, headers)


def _differing(rows: DataFrame, *, key: str, identity: Sequence[str], source: str, target: str) -> DataFrame:
    """A row that both sites have appears once for each site; an identity that only one site has is
    a difference.

    Counting copies instead of joining keeps a row that one site has twice from hiding behind its
    twin.
    """
    held = rows.groupBy("topic", "partition", key, *identity).agg(
        F.sum(F.when(F.col("site") == source, 1).otherwise(0)).alias("at_source"),
        F.sum(F.when(F.col("site") == target, 1).otherwise(0)).alias("at_target"),
    )
    sided = held.where(F.col("at_source") != F.col("at_target")).select(
        "topic",
        "partition",
        F.when(F.col("at_source") > F.col("at_target"), ONLY_SOURCE).otherwise(ONLY_TARGET).alias("kind"),
        F.col(key).alias("first_offset"),
        "last_offset",
    )
    return _runs(sided)


def _runs(ranges: DataFrame) -> DataFrame:
    """Ranges of one kind that touch or overlap become one, so a million differing batches in a row
    are one line.
    """
    by_kind = Window.partitionBy("topic", "partition", "kind").orderBy("first_offset", "last_offset")
    previous_last = F.max("last_offset").over(by_kind.rowsBetween(Window.unboundedPreceding, -1))
    begins = F.when(previous_last.isNull() | (F.col("first_offset") > previous_last + 1), 1).otherwise(0)
    numbered = ranges.withColumn("begins", begins).withColumn("run", F.sum("begins").over(by_kind))
    return (
        numbered.groupBy("topic", "partition", "kind", "run")
        .agg(F.min("first_offset").alias("first_offset"), F.max("last_offset").alias("last_offset"))
        .drop("run")
    )


def defects(batches: DataFrame) -> DataFrame:
    """The defects within one log, independent of the other one: site, topic, partition, kind, first
    and last offset.

    `corrupt`: the checksum does not fit the bytes. `overlapping`: an offset that an earlier batch
    of the log has already. `repeated`: a batch of an idempotent producer with the sequence and
    content of an earlier one.
    """
    return _corrupt(batches).unionByName(_overlapping(batches)).unionByName(_repeated(batches))


def _defect(kind: str) -> list[Column]:
    return [*(F.col(name) for name in LOG), F.lit(kind).alias("kind")]


def _corrupt(batches: DataFrame) -> DataFrame:
    return batches.where(~F.col("is_crc_valid")).select(
        *_defect(CORRUPT), F.col("base_offset").alias("first_offset"), "last_offset"
    )


def _overlapping(batches: DataFrame) -> DataFrame:
    in_log = Window.partitionBy(*LOG).orderBy("base_offset", "last_offset")
    previous_last = F.max("last_offset").over(in_log.rowsBetween(Window.unboundedPreceding, -1))
    return (
        batches.withColumn("previous_last", previous_last)
        .where(F.col("previous_last") >= F.col("base_offset"))
        .select(
            *_defect(OVERLAPPING),
            F.col("base_offset").alias("first_offset"),
            F.least("previous_last", "last_offset").alias("last_offset"),
        )
    )


def _repeated(batches: DataFrame) -> DataFrame:
    # Sequences wrap after 2^31 records, so only a batch with the same content is a repetition.
    same = ("producer_id", "producer_epoch", "base_sequence", "record_count", "base_timestamp_ms", "max_timestamp_ms")
    is_control = F.col("attributes").bitwiseAND(CONTROL_BIT) != 0
    numbered = batches.where((F.col("producer_id") >= 0) & (F.col("base_sequence") >= 0) & ~is_control)
    first = F.min("base_offset").over(Window.partitionBy(*LOG, *same, "size_bytes", "crc"))
    return (
        numbered.withColumn("first_seen", first)
        .where(F.col("base_offset") > F.col("first_seen"))
        .select(*_defect(REPEATED), F.col("base_offset").alias("first_offset"), "last_offset")
    )


def compacted_differences(records: DataFrame, *, source: str, target: str) -> tuple[DataFrame, DataFrame]:
    """The differences of compacted topics: runs that differ without a reason, and the explained
    ones, a line for each partition and kind.

    A site that lacks a record and holds a newer one of the same key has compacted it away. A site
    without any record of the key has removed its tombstone and all earlier records; the other site,
    which compacts later (a standby never), still has that tombstone. Compaction also removes
    records of aborted transactions, which replace none, and the marker of a transaction of which
    the site has no record, but nothing at the end of a log. It changes no record: two sites that
    hold different ones at an offset differ without a reason. All records of the partitions must be
    given. The second frame has the columns of the first and `records`.
    """
    known = _with_transactions(records, source=source, target=target)
    held = (
        known.withColumn("content", _content("value"))
        .groupBy("topic", "partition", "offset", "leader_epoch", "key", "content", "is_control")
        .agg(
            F.sum(F.when(F.col("site") == source, 1).otherwise(0)).alias("at_source"),
            F.sum(F.when(F.col("site") == target, 1).otherwise(0)).alias("at_target"),
            *(F.first(name).alias(name) for name in ("is_aborted", "is_at_source", "is_at_target")),
        )
    )
    is_at_source = F.col("at_source") > F.col("at_target")
    at_offset = Window.partitionBy("topic", "partition", "offset")
    held = held.withColumns(
        {f"{name}_in_all": F.sum(name).over(at_offset) for name in ("at_source", "at_target")},
    )
    sided = held.where(F.col("at_source") != F.col("at_target")).select(
        "topic",
        "partition",
        F.when(is_at_source, ONLY_SOURCE).otherwise(ONLY_TARGET).alias("kind"),
        F.when(is_at_source, target).otherwise(source).alias("site"),
        F.when(is_at_source, source).otherwise(target).alias("holder"),
        "key",
        F.col("offset").alias("first_offset"),
        F.col("offset").alias("last_offset"),
        "is_control",
        "is_aborted",
        F.when(is_at_source, F.col("is_at_target")).otherwise(F.col("is_at_source")).alias("is_transaction_there"),
        (F.when(is_at_source, F.col("at_target_in_all")).otherwise(F.col("at_source_in_all")) > 0).alias(
            "is_held_there"
        ),
    )
    by_key = known.where(F.col("key").isNotNull() & ~F.col("is_control") & ~F.col("is_aborted")).groupBy(*LOG, "key")
    newest = by_key.agg(F.max("offset").alias("newest"))
    tombstones = by_key.agg(F.max(F.when(F.col("value").isNull(), F.col("offset"))).alias("tombstone"))
    last = records.groupBy(*LOG).agg(F.max("offset").alias("last"))
    judged = (
        sided.join(newest, [*LOG, "key"], "left")
        .join(tombstones.withColumnRenamed("site", "holder"), ["holder", "topic", "partition", "key"], "left")
        .join(last, [*LOG], "left")
        .withColumn("is_explained", _is_explained())
    )
    explained = (
        judged.where("is_explained")
        .groupBy("topic", "partition", "kind")
        .agg(
            F.min("first_offset").alias("first_offset"),
            F.max("last_offset").alias("last_offset"),
            F.count("*").alias("records"),
        )
    )
    return _runs(judged.where(~F.col("is_explained"))), explained


def _is_explained() -> Column:
    is_newer_there = F.coalesce(F.col("newest") > F.col("first_offset"), F.lit(False))
    is_deleted_there = F.col("newest").isNull() & (F.col("tombstone") >= F.col("first_offset"))
    is_marker_removable = ~F.col("is_transaction_there") & (F.col("last") > F.col("first_offset"))
    by_key = is_newer_there | F.coalesce(is_deleted_there, F.lit(False)) | F.col("is_aborted")
    is_removed = F.when(F.col("is_control"), F.coalesce(is_marker_removable, F.lit(False))).otherwise(by_key)
    # a record that differs at both sites is none that one of them has removed
    return ~F.col("is_held_there") & is_removed


def _with_transactions(records: DataFrame, *, source: str, target: str) -> DataFrame:
    """The records with `is_aborted`, true for those of aborted transactions, and for markers with
    `is_at_source` and `is_at_target`: true if the site has a record of the transaction.
    """
    by_producer = Window.partitionBy("topic", "partition", "producer_id").orderBy("offset")
    before = by_producer.rangeBetween(Window.unboundedPreceding, -1)
    behind = by_producer.rangeBetween(1, Window.unboundedFollowing)
    marker = F.when(F.col("is_control"), F.col("offset"))
    begin = F.coalesce(F.max(marker).over(before), F.lit(-1))

    def is_at(site: str) -> Column:
        sent = F.when(~F.col("is_control") & (F.col("site") == site), F.col("offset"))
        return F.coalesce(F.max(sent).over(before), F.lit(-1)) > begin

    end = F.first(F.when(F.col("is_control"), F.col("key")), ignorenulls=True).over(behind)
    is_aborted = ~F.col("is_control") & F.coalesce(end == F.lit(ABORT_KEY), F.lit(False))
    found = {"is_aborted": is_aborted, "is_at_source": is_at(source), "is_at_target": is_at(target)}
    of_transactions = F.col("is_transactional") | F.col("is_control")
    others = records.where(~of_transactions).withColumns(dict.fromkeys(found, F.lit(False)))
    return records.where(of_transactions).withColumns(found).unionByName(others)
