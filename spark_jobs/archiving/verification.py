"""Checks an archive: reads every file again and compares it with its manifest, and on request with
the digests that the brokers of a site keep of their logs, which costs sixteen bytes a range.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from runtime.process import OperationalFailure
from spark_jobs.archiving.core.manifest import BATCHES, ArchivedRange, chain_problems, files_of, newest_topics
from spark_jobs.archiving.range_files import rows_in, stored_batches
from spark_jobs.archiving.site_comparison import Compared, compared_with_site
from spark_jobs.archiving.store import ArchiveStore
from spark_jobs.archiving.worker_waves import in_waves
from spark_jobs.session import Progress
from wire.batches.leaf_digests import RangeRun
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
    compared_ranges: int = 0
    """Ranges that were compared with the digests of a site."""
    not_compared: tuple[str, ...] = ()
    """Ranges of which the site has no digest, each with the reason."""

    def as_document(self) -> dict[str, Any]:
        """The JSON form."""
        return asdict(self)


def verify(
    session: Callable[[], SparkSession], address: str, progress: Progress = lambda _: None, *, bootstrap: str = ""
) -> VerifyReport:
    """Read every file of the archive again and compare it with its manifest, and with the logs of
    the site at `bootstrap` if there is one. `session` is called if there are files. Raises
    OperationalFailure when archive or site cannot be used.
    """
    store = ArchiveStore.at(address)
    manifests = store.manifests()
    if not manifests:
        raise OperationalFailure(f"there is no archive at {address}: it holds no manifest")
    if bootstrap and manifests[0].format != BATCHES:
        raise OperationalFailure(
            f"the archive {address} holds {manifests[0].format}: only batches can be compared with a site"
        )
    topics = newest_topics(manifests)
    ranges = [one for manifest in manifests for one in manifest.ranges]
    gaps = {(hole.log, hole.first_offset) for manifest in manifests for hole in manifest.holes}
    checks = [
        RangeCheck(one, is_compacted=one.topic in topics and topics[one.topic].is_compacted, holes=_starts(gaps, one))
        for one in ranges
    ]
    found = in_waves(session, checks, partial(checked_range, address, manifests[0].format), "verified", progress)
    compared = Compared((), (), 0)
    if bootstrap:
        sound = [(check.range, result.digest) for check, result in found if not result.problems]
        compared = compared_with_site(bootstrap, sound)
    return VerifyReport(
        archive=address,
        manifests=len(manifests),
        files=len(files_of(manifests)),
        bytes=sum(one.bytes for one in ranges),
        problems=(
            *chain_problems(manifests),
            *(problem for _, result in found for problem in result.problems),
            *compared.differing,
        ),
        unnamed_files=tuple(store.unnamed(files_of(manifests))),
        compared_ranges=compared.equal + len(compared.differing),
        not_compared=compared.not_compared,
    )


def _starts(gaps: set[Any], one: ArchivedRange) -> frozenset[int]:
    return frozenset(start for log, start in gaps if log == one.log)


@dataclass(frozen=True, slots=True)
class RangeCheck:
    """A range to verify. `holes` are the offsets at which the manifests name a hole."""

    range: ArchivedRange
    is_compacted: bool
    holes: frozenset[int]


class RangeResult(NamedTuple):
    """The problems of one range's files as sentences, and the digest of its batches; empty for a
    range of records, or with a problem.
    """

    problems: tuple[str, ...]
    digest: bytes = b""


def checked_range(address: str, format_name: str, check: RangeCheck) -> RangeResult:
    """Check one range's files: size, checksum, and content."""
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
        return RangeResult(tuple(problems))
    paths = [file.path for file in one.files]
    if format_name == BATCHES:
        return _checked_batches(store, paths[0], check)
    rows = rows_in(store, paths)
    return RangeResult(() if rows == one.records else (f"{paths}: {rows} records, expected {one.records}",))


def _checked_batches(store: ArchiveStore, path: str, check: RangeCheck) -> RangeResult:
    run = RangeRun(check.range.first_offset)
    problem = _batch_problem(store, path, check, run)
    return RangeResult((f"{path}: {problem}",)) if problem else RangeResult((), run.digest(check.range.end_offset))


def _batch_problem(store: ArchiveStore, path: str, check: RangeCheck, run: RangeRun) -> str:
    """The first problem of a file of batches, whose headers `run` takes."""
    expected, batches = check.range.first_offset, 0
    try:
        for header, data in stored_batches(store.chunks(path)):
            if not verify_crc(data, 0, header):
                return f"the checksum of the batch at offset {header.base_offset} does not fit its bytes"
            is_gap = header.base_offset > expected and not check.is_compacted and expected not in check.holes
            if is_gap or (batches and header.base_offset < expected):
                return f"a batch begins at offset {header.base_offset}, expected {expected}"
            run.take(header)
            expected, batches = header.next_offset, batches + 1
    except InvalidBatch as error:
        return str(error)
    if (expected, batches) != (check.range.end_offset, check.range.batches):
        return f"{batches} batches that end at {expected}, expected {check.range.batches} and {check.range.end_offset}"
    return ""
