"""The reconciliation job: reads both sites' batch headers in Spark, compares them range by range,
and names every difference.

`reconcile` is the library's door; `main` makes it a program for spark-submit:

    spark-submit spark_jobs/reconcile.py --source host:port --target host:port --out DIRECTORY

Only ranges whose digests differ are looked at batch by batch, only those (and with `is_deep`)
record by record; the driver gets digests and runs of differences, never batches. Findings are
bounded by `FINDINGS_MAX` a kind of question; more is said to be more.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from runtime.process import OperationalFailure
from runtime.times import ACCEPTED, unix_ms
from spark_jobs.connector.core.options import Mode
from spark_jobs.core import comparison
from spark_jobs.core.extents import Extent, TopicPartition, bounded, expired, extents, range_size, splits
from spark_jobs.core.judging import Judgement, Run, narrowed
from spark_jobs.core.ranges import Comparison, RangeKey, RangeSum
from spark_jobs.core.verdict import PartitionReport, ReconciliationReport
from spark_jobs.report import write_html, write_json, write_parquet
from spark_jobs.session import Progress, result_of, session
from spark_jobs.source import NAME, AntipodeSource, encode_splits
from spark_jobs.survey import compacted_topics, first_since, log_ends, settled_ends, topic_filter, topic_names

FINDINGS_MAX = 10_000
NAMED_MAX = 20
"""Topics that a message lists."""
SETTLE_TIMEOUT_MS = 10_000
NO_BOUND = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request to compare two sites. `range_offsets` 0 chooses the size of ranges; bootstrap
    addresses are host:port lists.
    """

    source_site: str
    target_site: str
    source_bootstrap: str
    target_bootstrap: str
    topic_whitelist: Sequence[str] = (".*",)
    topic_blacklist: Sequence[str] = ()
    range_offsets: int = 0
    is_deep: bool = False
    settle_timeout_ms: int = SETTLE_TIMEOUT_MS
    until_ms: int = NO_BOUND
    """Compare only what lies before the first record that is stamped so (Unix ms) or later; -1
    compares everything.
    """

    @property
    def bootstraps(self) -> dict[str, str]:
        """Addresses by site."""
        return {self.source_site: self.source_bootstrap, self.target_site: self.target_bootstrap}


def reconcile(spark: SparkSession, request: Request, progress: Progress = lambda _: None) -> ReconciliationReport:
    """Compare; a site that cannot be asked is a problem of the report, not an exception."""
    return Reconciliation(spark, request, progress).run()


@dataclass(slots=True)
class Reconciliation:
    """One run: `run` once."""

    spark: SparkSession
    request: Request
    progress: Progress
    problems: list[str] = field(default_factory=list)
    _plan: list[Extent] = field(default_factory=list)
    _range_offsets: int = 0
    _judgement: Judgement = field(init=False)

    def __post_init__(self) -> None:
        self._judgement = Judgement(source_site=self.request.source_site, target_site=self.request.target_site)

    def run(self) -> ReconciliationReport:
        """Survey, read, compare, judge."""
        started_at_ms, started = round(time.time() * 1000), time.monotonic()
        partitions: list[PartitionReport] = []
        try:
            self._survey()
            partitions = self._compare()
        except OperationalFailure as failure:
            self.problems.append(str(failure))
        return ReconciliationReport(
            source_site=self.request.source_site,
            target_site=self.request.target_site,
            started_at_ms=started_at_ms,
            elapsed_ms=round((time.monotonic() - started) * 1000),
            range_offsets=self._range_offsets or self.request.range_offsets,
            is_deep=self.request.is_deep,
            until_ms=self.request.until_ms,
            partitions=tuple(partitions),
            findings=tuple(
                sorted(self._judgement.findings, key=lambda one: (one.topic, one.partition, one.first_offset))
            ),
            explanations=tuple(self._judgement.explanations),
            problems=tuple(self.problems),
        )

    def _survey(self) -> None:
        """Find the logs of both sites, after the target has had time to reach the source's present
        ends.
        """
        request = self.request
        is_wanted = topic_filter(request.topic_whitelist, request.topic_blacklist)
        self.progress(f"asking {request.source_site} and {request.target_site} for their logs")
        snapshot = log_ends(request.source_bootstrap, is_wanted)
        bounds: dict[TopicPartition, int] = {}
        if request.until_ms != NO_BOUND:
            at_target = first_since(request.target_bootstrap, is_wanted, request.until_ms)
            bounds = {key: offset for key, offset in at_target.items() if key not in snapshot}
            bounds |= first_since(request.source_bootstrap, is_wanted, request.until_ms)
        snapshot = bounded(snapshot, bounds)
        target = settled_ends(request.target_bootstrap, is_wanted, snapshot, timeout_ms=request.settle_timeout_ms)
        newest = log_ends(request.source_bootstrap, is_wanted)
        self._plan = extents(snapshot, bounded(target, bounds), bounded(newest, bounds))
        if not self._plan:
            raise OperationalFailure(self._nothing_matches())
        self._range_offsets = range_size(self._plan, request.range_offsets)
        self._judgement.explanations += expired(
            self._plan, source_site=request.source_site, target_site=request.target_site
        )

    def _nothing_matches(self) -> str:
        """The message that names the filter and the topics that exist."""
        request = self.request
        given = f"whitelist {','.join(request.topic_whitelist)!r}, blacklist {','.join(request.topic_blacklist)!r}"
        there = [
            f"{site} has {_listed(topic_names(bootstrap))}" for site, bootstrap in sorted(request.bootstraps.items())
        ]
        return f"no topic matches ({given}), so that nothing was compared: {'; '.join(there)}"

    def _compare(self) -> list[PartitionReport]:
        request = self.request
        self.spark.dataSource.register(AntipodeSource)
        offsets = sum(extent.offsets for extent in self._plan)
        self.progress(f"reading {len(self._plan)} partitions, {offsets:,} offsets at each site")
        batches = self._read(self._plan, Mode.HEADERS).persist()
        try:
            rows = _collected(comparison.range_digests(batches, range_offsets=self._range_offsets))
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
        self._explain_expiry()
        return [
            compared.report(extent, is_equal=not self._judgement.is_faulty(extent.topic, extent.partition))
            for extent in self._plan
        ]

    def _read(self, plan: Sequence[Extent], mode: Mode) -> DataFrame:
        request = self.request
        pieces = splits(
            plan,
            source_site=request.source_site,
            target_site=request.target_site,
            cores=self.spark.sparkContext.defaultParallelism,
        )
        options = encode_splits(pieces, request.bootstraps, mode)
        return self.spark.read.format(NAME).options(**options).load()

    def _bounded(self, frame: DataFrame, what: str) -> list[Run]:
        rows = _collected(frame.limit(FINDINGS_MAX + 1))
        if len(rows) > FINDINGS_MAX:
            self.problems.append(f"there are more than {FINDINGS_MAX:,} {what}: the others are not listed")
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
        starts = F.floor(F.col("base_offset") / F.lit(self._range_offsets)) * F.lit(self._range_offsets)
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
        opened = narrowed(self._plan, runs)
        records = self._read(opened, Mode.STORED)
        request = self.request
        exact = self._bounded(
            comparison.differing_records(records, source=request.source_site, target=request.target_site),
            "differences",
        )
        self._judgement.judge_opened(opened, exact)

    def _name_compacted(self, partitions: set[TopicPartition]) -> None:
        self.progress(f"opening {len(partitions)} compacted partitions")
        request = self.request
        chosen = [extent for extent in self._plan if (extent.topic, extent.partition) in partitions]
        records = self._read(chosen, Mode.STORED).persist()
        try:
            runs, explained = comparison.compacted_differences(
                records, source=request.source_site, target=request.target_site
            )
            self._judgement.judge_differences(self._bounded(runs, "differences"))
            self._judgement.explain_compaction(_runs(_collected(explained)))
        finally:
            records.unpersist()


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + more if names else "no topic"


def _collected(frame: DataFrame) -> list[Row]:
    return result_of(frame.collect)


def _runs(rows: Iterable[Row]) -> list[Run]:
    return [Run(**{name: value for name, value in row.asDict().items() if name in Run._fields}) for row in rows]


def write_report(found: ReconciliationReport, directory: Path) -> None:
    """`report.json`, `report.html` and the Parquet tables `ranges.parquet` and
    `findings.parquet`.
    """
    write_json(found, directory / "report.json")
    write_html(found, directory / "report.html")
    write_parquet(found, directory)


def main(arguments: Sequence[str] | None = None) -> int:
    """The program for spark-submit; returns the verdict's exit code."""
    parser = argparse.ArgumentParser(
        description="Compare the logs of two sites; exit code 0 equal, 1 different, 2 not compared."
    )
    parser.add_argument(
        "--source", required=True, help="bootstrap servers of the source site, host:port[,host:port...]"
    )
    parser.add_argument("--target", required=True, help="bootstrap servers of the target site")
    parser.add_argument("--source-site", default="source", help="what reports call the source")
    parser.add_argument("--target-site", default="target", help="what reports call the target")
    parser.add_argument("--whitelist", default=".*", help="topics, comma-separated regular expressions on whole names")
    parser.add_argument("--blacklist", default="", help="topics left out; wins over the whitelist")
    parser.add_argument("--range-offsets", type=int, default=0, help="offsets in one digest's range; 0 chooses")
    parser.add_argument("--deep", action="store_true", help="open the batches that differ and name the exact offsets")
    parser.add_argument(
        "--settle-timeout-ms", type=int, default=SETTLE_TIMEOUT_MS, help="time for the target to catch up"
    )
    parser.add_argument(
        "--until", type=unix_ms, default=NO_BOUND, help=f"compare only records before this time: {ACCEPTED}"
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="directory for report.json, report.html and Parquet tables"
    )
    given = parser.parse_args(arguments)
    request = Request(
        source_site=given.source_site,
        target_site=given.target_site,
        source_bootstrap=given.source,
        target_bootstrap=given.target,
        topic_whitelist=tuple(filter(None, given.whitelist.split(","))),
        topic_blacklist=tuple(filter(None, given.blacklist.split(","))),
        range_offsets=given.range_offsets,
        is_deep=given.deep,
        settle_timeout_ms=given.settle_timeout_ms,
        until_ms=given.until,
    )
    found = reconcile(session("antipode reconcile", is_local=False), request, lambda text: print(text, file=sys.stderr))
    write_report(found, given.out)
    print(f"{found.verdict}: {given.out / 'report.html'}")
    return found.verdict.exit_code


if __name__ == "__main__":
    sys.exit(main())
