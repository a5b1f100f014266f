"""The archive job: topics as files on any file system, by offset ranges, and the check of what is
there.

    spark-submit spark_jobs/archive.py --bootstrap-server host:port --to file:///archive

A run reads from where the manifests end to the high watermarks that it finds at its start. Its
manifest is written last and in one step: a run that was killed before has archived nothing, and the
next run removes the files that it left. A lock lets one run at a time write to an archive.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from pyspark.sql import SparkSession

from runtime.process import ExitCode, OperationalFailure
from spark_jobs.archive_files import rows_in, store_piece, stored_batches
from spark_jobs.archive_lock import ArchiveLock
from spark_jobs.archive_store import ArchiveStore
from spark_jobs.core.archive_manifest import (
    BATCHES,
    FORMATS,
    ArchivedRange,
    Hole,
    Manifest,
    archived_ends,
    chain_problems,
    files_of,
    newest_topics,
)
from spark_jobs.core.archive_plan import ArchivePlan, plan, settled
from spark_jobs.session import Progress, result_of, session
from spark_jobs.survey import SiteTopics, log_ends, site_topics, topic_filter
from wire.batches.record_batch import InvalidBatch, verify_crc
from wire.client.client_errors import KafkaClientError

WAVE_PER_CORE: Final = 4
"""Ranges that a core stores between two reports of progress."""

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveRequest:
    """A request to archive topics. `bootstrap` is a host:port list, `to` an address as in
    `archive_store`; `topics` is a regular expression on whole names.
    """

    bootstrap: str
    to: str
    topics: str = ".*"
    format: str = BATCHES
    is_until_end: bool = False
    """Repeat until a run finds nothing new."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveReport:
    """The result of the runs of one command; of a dry run, the result that they would have."""

    to: str
    format: str
    is_dry_run: bool
    runs: tuple[int, ...]
    elapsed_ms: int
    ranges: tuple[ArchivedRange, ...]
    holes: tuple[Hole, ...]
    problems: tuple[str, ...]
    planned_offsets: int

    def as_document(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            **asdict(self),
            "bytes": sum(one.bytes for one in self.ranges),
            "records": sum(one.records for one in self.ranges),
            "batches": sum(one.batches for one in self.ranges),
        }


@dataclass(slots=True)
class ArchiveRun:
    """Passes over the topics; `dry_run` or `run` once."""

    request: ArchiveRequest
    progress: Progress = lambda _: None
    _runs: list[int] = field(default_factory=list)
    _ranges: list[ArchivedRange] = field(default_factory=list)
    _holes: list[Hole] = field(default_factory=list)
    _problems: list[str] = field(default_factory=list)
    _offsets: int = 0
    _started: float = field(default_factory=time.monotonic)

    def dry_run(self, cores: int) -> ArchiveReport:
        """The report of a run that only plans: it writes nothing and needs no Spark."""
        _, _, planned = self._planned(cores)
        self._offsets, self._holes, self._problems = planned.offsets, planned.holes, planned.problems
        return self._report(is_dry_run=True)

    def run(self, spark: SparkSession) -> ArchiveReport:
        """Archive. OperationalFailure when source or archive cannot be used, or another archiver
        writes to it.
        """
        lock = ArchiveLock(ArchiveStore.at(self.request.to), self.progress)
        with lock.held():
            while self._pass(spark, lock) and self.request.is_until_end:
                pass
        return self._report(is_dry_run=False)

    def _planned(self, cores: int) -> tuple[list[Manifest], SiteTopics, ArchivePlan]:
        request = self.request
        manifests = ArchiveStore.at(request.to).manifests()
        if others := {manifest.format for manifest in manifests} - {request.format}:
            raise OperationalFailure(f"the archive {request.to} holds {others.pop()}: give another directory")
        is_wanted = topic_filter([request.topics], [])
        self.progress(f"asking {request.bootstrap} for its logs")
        there = site_topics(request.bootstrap, is_wanted)
        if not there.topics:
            raise OperationalFailure(f"no topic matches {request.topics!r}: nothing was archived")
        ends = log_ends(request.bootstrap, is_wanted)
        return manifests, there, plan(there.topics, ends, archived_ends(manifests), cores=cores)

    def _pass(self, spark: SparkSession, lock: ArchiveLock) -> bool:
        """One run; True when it stored something and met no problem."""
        started_at_ms = round(time.time() * 1000)
        manifests, there, planned = self._planned(spark.sparkContext.defaultParallelism)
        request, store = self.request, ArchiveStore.at(self.request.to)
        for path in store.unnamed(files_of(manifests)):
            store.remove(path)
        if not planned.pieces and not planned.holes and not planned.problems and manifests:
            return False
        self.progress(
            f"archiving {planned.offsets:,} offsets of {len(there.topics)} topics in {len(planned.pieces)} ranges"
        )
        store_one = partial(store_piece, request.to, request.format, request.bootstrap)
        results = in_waves(spark, planned.pieces, store_one, "archived", self.progress)
        found = settled(results)
        manifest = Manifest(
            run=max((manifest.run for manifest in manifests), default=0) + 1,
            format=request.format,
            started_at_ms=started_at_ms,
            cluster_id=there.cluster_id,
            topics=there.topics,
            ranges=tuple(found.ranges),
            holes=(*planned.holes, *found.holes),
        )
        lock.check()
        store.write_manifest(manifest)
        self._runs.append(manifest.run)
        self._ranges += manifest.ranges
        self._holes += manifest.holes
        self._problems += [*planned.problems, *found.problems]
        self._offsets += planned.offsets
        return bool(found.ranges) and not self._problems

    def _report(self, *, is_dry_run: bool) -> ArchiveReport:
        return ArchiveReport(
            to=self.request.to,
            format=self.request.format,
            is_dry_run=is_dry_run,
            runs=tuple(self._runs),
            elapsed_ms=round((time.monotonic() - self._started) * 1000),
            ranges=tuple(self._ranges),
            holes=tuple(self._holes),
            problems=tuple(self._problems),
            planned_offsets=self._offsets,
        )


def in_waves(
    spark: SparkSession,
    items: Sequence[Item],
    work: Callable[[Item], Result],
    verb: str,
    progress: Progress,
) -> list[tuple[Item, Result]]:
    """Each item with what a worker makes of it, with a report of progress after each wave.
    OperationalFailure.
    """
    found: list[tuple[Item, Result]] = []
    size = spark.sparkContext.defaultParallelism * WAVE_PER_CORE
    for start in range(0, len(items), size):
        wave = items[start : start + size]
        attempts = result_of(spark.sparkContext.parallelize(wave, len(wave)).map(partial(_attempted, work)).collect)
        for item, attempt in zip(wave, attempts, strict=True):
            if isinstance(attempt, _Failed):
                raise OperationalFailure(attempt.reason)
            found.append((item, attempt))
        progress(f"{verb} {len(found)} of {len(items)}")
    return found


class _Failed(NamedTuple):
    """The reason why an item failed in a worker: an exception would come back in pages of Spark's
    own.
    """

    reason: str


def _attempted(work: Callable[[Item], Result], item: Item) -> Result | _Failed:
    try:
        return work(item)
    except (OperationalFailure, KafkaClientError, InvalidBatch, OSError) as error:
        return _Failed(str(error))


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """The result of a check of an archive. Without problems, every file is as its manifest says."""

    archive: str
    manifests: int
    files: int
    bytes: int
    problems: tuple[str, ...]
    unnamed_files: tuple[str, ...]
    """Files of a run that was killed; the next run removes them."""

    def as_document(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self)


def verify(spark: SparkSession, address: str, progress: Progress = lambda _: None) -> VerifyReport:
    """Read every file of the archive again and hold it against its manifest."""
    store = ArchiveStore.at(address)
    manifests = store.manifests()
    if not manifests:
        raise OperationalFailure(f"there is no archive at {address}: it holds no manifest")
    topics = newest_topics(manifests)
    ranges = [one for manifest in manifests for one in manifest.ranges]
    gaps = {(hole.log, hole.first_offset) for manifest in manifests for hole in manifest.holes}
    checks = [
        RangeCheck(one, is_compacted=one.topic in topics and topics[one.topic].is_compacted, holes=_starts(gaps, one))
        for one in ranges
    ]
    found = in_waves(spark, checks, partial(range_problems, address, manifests[0].format), "verified", progress)
    return VerifyReport(
        archive=address,
        manifests=len(manifests),
        files=len(files_of(manifests)),
        bytes=sum(one.bytes for one in ranges),
        problems=(*chain_problems(manifests), *(problem for _, problems in found for problem in problems)),
        unnamed_files=tuple(store.unnamed(files_of(manifests))),
    )


def _starts(gaps: set[Any], one: ArchivedRange) -> frozenset[int]:
    return frozenset(start for log, start in gaps if log == one.log)


@dataclass(frozen=True, slots=True)
class RangeCheck:
    """A range to verify. `holes` are the offsets at which the manifests name a hole."""

    range: ArchivedRange
    is_compacted: bool
    holes: frozenset[int]


def range_problems(address: str, format_name: str, check: RangeCheck) -> list[str]:
    """Sentences about the files of one range: size, checksum, and what is inside."""
    store, one = ArchiveStore.at(address), check.range
    problems: list[str] = []
    for file in one.files:
        try:
            problem = store.file_problem(file)
        except OSError as error:
            problem = f"it cannot be read: {error}"
        if problem:
            problems.append(f"{file.path}: {problem}")
    if problems:
        return problems
    paths = [file.path for file in one.files]
    if format_name != BATCHES:
        rows = rows_in(store, paths)
        return [] if rows == one.records else [f"{paths}: {rows} records, expected {one.records}"]
    return [f"{path}: {problem}" for path in paths for problem in _batch_problems(store, path, check)]


def _batch_problems(store: ArchiveStore, path: str, check: RangeCheck) -> list[str]:
    expected, batches = check.range.first_offset, 0
    try:
        for header, data in stored_batches(store.chunks(path)):
            if not verify_crc(data, 0, header):
                return [f"the checksum of the batch at offset {header.base_offset} does not fit its bytes"]
            is_gap = header.base_offset > expected and not check.is_compacted and expected not in check.holes
            if is_gap or (batches and header.base_offset < expected):
                return [f"a batch begins at offset {header.base_offset}, expected {expected}"]
            expected, batches = header.next_offset, batches + 1
    except InvalidBatch as error:
        return [str(error)]
    if (expected, batches) != (check.range.end_offset, check.range.batches):
        return [
            f"{batches} batches that end at {expected}, expected {check.range.batches} and {check.range.end_offset}"
        ]
    return []


def main(arguments: Sequence[str] | None = None) -> int:
    """The program for spark-submit; the exit code is 1 when there were problems or holes."""
    parser = argparse.ArgumentParser(description="Archive topics; exit code 0 complete, 1 with holes or problems.")
    parser.add_argument("--bootstrap-server", required=True, help="brokers, host:port[,host:port...]")
    parser.add_argument("--to", required=True, help="the archive: file:///dir, hdfs://host:port/dir, s3a://bucket/dir")
    parser.add_argument("--topics", default=".*", help="a regular expression on whole names")
    parser.add_argument("--format", choices=FORMATS, default=BATCHES, help="raw batches, or records as Parquet")
    parser.add_argument("--until-end", action="store_true", help="repeat until a run finds nothing new")
    given = parser.parse_args(arguments)
    request = ArchiveRequest(
        bootstrap=given.bootstrap_server,
        to=given.to,
        topics=given.topics,
        format=given.format,
        is_until_end=given.until_end,
    )
    progress: Progress = lambda text: print(text, file=sys.stderr)  # noqa: E731
    try:
        report = ArchiveRun(request, progress).run(session("antipode archive", is_local=False))
    except OperationalFailure as failure:
        print(f"error: {failure}", file=sys.stderr)
        return ExitCode.FAILED
    for problem in report.problems:
        print(problem, file=sys.stderr)
    print(
        f"{len(report.ranges)} ranges, {report.as_document()['bytes']:,} bytes, {len(report.holes)} holes: {report.to}"
    )
    return ExitCode.FAILED if report.problems or report.holes else ExitCode.DONE


if __name__ == "__main__":
    sys.exit(main())
