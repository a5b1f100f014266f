"""The batches and records of a wave in Spark. The driver gets digests and runs of differences,
never batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from functools import cached_property
from typing import Final

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.connector.core.options import Mode
from spark_jobs.reconciling.core import comparison
from spark_jobs.reconciling.core.extents import Extent, splits
from spark_jobs.reconciling.core.judging import Run
from spark_jobs.reconciling.core.ranges import RangeKey, RangeSum
from spark_jobs.reconciling.request import Request
from spark_jobs.reconciling.split_frames import frame_of_splits
from spark_jobs.session import interpreted, result_of

INTERPRETED_OFFSETS_MAX: Final = 5_000_000
"""For waves of up to this many offsets, interpreted queries are faster than compiled ones."""


class SparkRows:
    """One wave in a session."""

    def __init__(self, spark: SparkSession, request: Request, wave: Sequence[Extent]) -> None:
        self._spark, self._request, self._wave = spark, request, wave
        self._sites = {"source": request.source_site, "target": request.target_site}
        self._is_small = sum(one.offsets for one in wave) <= INTERPRETED_OFFSETS_MAX

    @cached_property
    def _batches(self) -> DataFrame:
        return self._read(self._wave, Mode.HEADERS).persist()

    def digests(self, range_offsets: int) -> list[RangeSum]:
        """The sums of all ranges of `range_offsets` offsets."""
        rows = self._collected(comparison.range_digests(self._batches, range_offsets=range_offsets))
        return [RangeSum(**row.asDict()) for row in rows]

    def defects(self, limit: int) -> list[Run]:
        """The defects within one log."""
        return _runs(self._collected(comparison.defects(self._batches).limit(limit)))

    def differing_batches(self, ranges: Sequence[RangeKey], range_offsets: int, limit: int) -> list[Run]:
        """The batches of these ranges that one site alone has."""
        wanted = self._spark.createDataFrame(list(ranges), "topic string, partition int, range_start bigint")
        starts = F.floor(F.col("base_offset") / F.lit(range_offsets)) * F.lit(range_offsets)
        suspect = self._batches.withColumn("range_start", starts.cast("bigint")).join(
            F.broadcast(wanted), ["topic", "partition", "range_start"], "left_semi"
        )
        return _runs(self._collected(comparison.differing_batches(suspect, **self._sites).limit(limit)))

    def differing_records(self, plan: Sequence[Extent], limit: int) -> list[Run]:
        """The records in these extents that one site alone has; opens their batches."""
        records = self._read(plan, Mode.STORED)
        return _runs(self._collected(comparison.differing_records(records, **self._sites).limit(limit)))

    def compacted_differences(self, plan: Sequence[Extent], limit: int) -> tuple[list[Run], list[Run]]:
        """The records of these whole partitions that one site alone has."""
        records = self._read(plan, Mode.STORED).persist()
        try:
            runs, explained = comparison.compacted_differences(records, **self._sites)
            return _runs(self._collected(runs.limit(limit))), _runs(self._collected(explained))
        finally:
            records.unpersist()

    def release(self) -> None:
        """Free the batches."""
        self._batches.unpersist()

    def _read(self, plan: Sequence[Extent], mode: Mode) -> DataFrame:
        pieces = splits(
            plan,
            source_site=self._request.source_site,
            target_site=self._request.target_site,
            cores=self._spark.sparkContext.defaultParallelism,
        )
        return frame_of_splits(self._spark, pieces, self._request.bootstraps, mode)

    def _collected(self, frame: DataFrame) -> list[Row]:
        with interpreted(self._spark) if self._is_small else nullcontext():
            return result_of(frame.collect)


def _runs(rows: Iterable[Row]) -> list[Run]:
    return [Run(**{name: value for name, value in row.asDict().items() if name in Run._fields}) for row in rows]
