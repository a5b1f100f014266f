"""Checks an archive: reads every file again and compares it with its manifest."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from runtime.process import OperationalFailure
from spark_jobs.archiving.core.manifest import BATCHES, ArchivedRange, chain_problems, files_of, newest_topics
from spark_jobs.archiving.range_files import rows_in, stored_batches
from spark_jobs.archiving.store import ArchiveStore
from spark_jobs.archiving.worker_waves import in_waves
from spark_jobs.session import Progress
from wire.batches.record_batch import InvalidBatch, verify_crc


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
    """Read every file of the archive again and compare it with its manifest."""
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
    """The problems of one range's files, as sentences: size, checksum, and content."""
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
