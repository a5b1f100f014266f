"""Compares one wave of partitions in Spark: digests of ranges first, the batches of ranges that
differ, and (deep, or of compacted topics) their records.

Only ranges whose digests differ are looked at batch by batch; the driver gets digests and runs of
differences, never batches. Findings are bounded by `FINDINGS_MAX` a kind of question; the report
says when there are more.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from spark_jobs.connector.core.options import Mode
from spark_jobs.logs.survey import compacted_topics, log_ends, topic_filter
from spark_jobs.reconciling.core import comparison
from spark_jobs.reconciling.core.extents import Extent, expired, splits
from spark_jobs.reconciling.core.judged_waves import JudgedWave
from spark_jobs.reconciling.core.judging import Judgement, Run, narrowed
from spark_jobs.reconciling.core.ranges import Comparison, RangeKey, RangeSum
from spark_jobs.reconciling.core.verdict import PartitionReport
from spark_jobs.reconciling.request import Request
from spark_jobs.reconciling.split_frames import frame_of_splits
from spark_jobs.session import Progress, result_of
from wire.protocol.ids import PartitionKey

FINDINGS_MAX = 10_000


@dataclass(slots=True)
class WaveComparison:
    """One wave: `run` once. OperationalFailure when a site cannot be read."""

    spark: SparkSession
    request: Request
    wave: Sequence[Extent]
    range_offsets: int
    progress: Progress
    _problems: list[str] = field(default_factory=list)
    _judgement: Judgement = field(init=False)

    def __post_init__(self) -> None:
        self._judgement = Judgement(source_site=self.request.source_site, target_site=self.request.target_site)

    def run(self) -> JudgedWave:
        """Read, compare, judge."""
        started, request = time.monotonic(), self.request
        self._judgement.explanations += expired(
            self.wave, source_site=request.source_site, target_site=request.target_site
        )
        offsets = sum(extent.offsets for extent in self.wave)
        self.progress(f"reading {len(self.wave)} partitions, {offsets:,} offsets at each site")
        compared = self._compare()
        self._explain_expiry()
        elapsed_ms = (time.monotonic() - started) * 1000
        partitions = [
            self._report(compared, one, round(elapsed_ms * one.offsets / max(offsets, 1))) for one in self.wave
        ]
        return JudgedWave(
            partitions=tuple(partitions),
            findings=tuple(self._judgement.findings),
            explanations=tuple(self._judgement.explanations),
            problems=tuple(self._problems),
        )

    def _report(self, compared: Comparison, extent: Extent, elapsed_ms: int) -> PartitionReport:
        is_equal = not self._judgement.is_faulty(extent.topic, extent.partition)
        return replace(compared.report(extent, is_equal=is_equal), elapsed_ms=elapsed_ms)

    def _compare(self) -> Comparison:
        request = self.request
        batches = self._read(self.wave, Mode.HEADERS).persist()
        try:
            rows = _collected(comparison.range_digests(batches, range_offsets=self.range_offsets))
            compared = Comparison.of(
                (RangeSum(**row.asDict()) for row in rows),
                source_site=request.source_site,
                target_site=request.target_site,
            )
            self.progress("looking for corrupt and repeated batches")
            self._judgement.judge_defects(self._bounded(comparison.defects(batches), "defects"))
            differing = compared.differing()
            if differing:
                self.progress(f"naming what differs in {len(differing)} ranges")
                self._name_differences(batches, differing)
        finally:
            batches.unpersist()
        return compared

    def _read(self, plan: Sequence[Extent], mode: Mode) -> DataFrame:
        request = self.request
        pieces = splits(
            plan,
            source_site=request.source_site,
            target_site=request.target_site,
            cores=self.spark.sparkContext.defaultParallelism,
        )
        return frame_of_splits(self.spark, pieces, request.bootstraps, mode)

    def _bounded(self, frame: DataFrame, what: str) -> list[Run]:
        rows = _collected(frame.limit(FINDINGS_MAX + 1))
        if len(rows) > FINDINGS_MAX:
            self._problems.append(f"there are more than {FINDINGS_MAX:,} {what}: the others are not listed")
        return _runs(rows[:FINDINGS_MAX])

    def _explain_expiry(self) -> None:
        """Retention goes on during a run: offsets that a site has expired since the survey are no
        difference.
        """
        request = self.request
        is_wanted = topic_filter(request.topic_whitelist, request.topic_blacklist)
        for site, kind in self._judgement.suspects().items():
            now = log_ends(request.bootstraps[site], is_wanted)
            starts = {key: ends.start_offset for key, ends in now.items()}
            self._judgement.explain_expiry(kind, site=site, starts=starts)

    def _name_differences(self, batches: DataFrame, differing: Sequence[RangeKey]) -> None:
        topics = sorted({key.topic for key in differing})
        compacted = compacted_topics(self.request.source_bootstrap, topics)
        plain = [key for key in differing if key.topic not in compacted]
        if plain:
            self._name_plain(batches, plain)
        if len(plain) < len(differing):
            self._name_compacted({(key.topic, key.partition) for key in differing if key.topic in compacted})

    def _name_plain(self, batches: DataFrame, differing: Sequence[RangeKey]) -> None:
        wanted = self.spark.createDataFrame(list(differing), "topic string, partition int, range_start bigint")
        starts = F.floor(F.col("base_offset") / F.lit(self.range_offsets)) * F.lit(self.range_offsets)
        suspect = batches.withColumn("range_start", starts.cast("bigint")).join(
            F.broadcast(wanted), ["topic", "partition", "range_start"], "left_semi"
        )
        request = self.request
        runs = self._bounded(
            comparison.differing_batches(suspect, source=request.source_site, target=request.target_site), "differences"
        )
        if request.is_deep:
            self._name_deep(runs)
        else:
            self._judgement.judge_differences(runs)

    def _name_deep(self, runs: Sequence[Run]) -> None:
        """Open the batches of these runs alone, and name the records that differ."""
        opened = narrowed(self.wave, runs)
        records = self._read(opened, Mode.STORED)
        request = self.request
        exact = self._bounded(
            comparison.differing_records(records, source=request.source_site, target=request.target_site),
            "differences",
        )
        self._judgement.judge_opened(opened, exact)

    def _name_compacted(self, partitions: set[PartitionKey]) -> None:
        self.progress(f"opening {len(partitions)} compacted partitions")
        request = self.request
        chosen = [extent for extent in self.wave if (extent.topic, extent.partition) in partitions]
        records = self._read(chosen, Mode.STORED).persist()
        try:
            runs, explained = comparison.compacted_differences(
                records, source=request.source_site, target=request.target_site
            )
            self._judgement.judge_differences(self._bounded(runs, "differences"))
            self._judgement.explain_compaction(_runs(_collected(explained)))
        finally:
            records.unpersist()


def _collected(frame: DataFrame) -> list[Row]:
    return result_of(frame.collect)


def _runs(rows: Iterable[Row]) -> list[Run]:
    return [Run(**{name: value for name, value in row.asDict().items() if name in Run._fields}) for row in rows]
