"""The archive job: copies topics to files on any file system, by offset ranges.

A run reads from the end of the archived ranges to the high watermarks at its start. Its manifest is
written last and in one step: a run that was killed before that has archived nothing, and the next
run removes its files. A lock lets one run at a time write to an archive.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from runtime.process import OperationalFailure
from spark_jobs.archiving.core.archive_plan import ArchivePlan, plan, settled
from spark_jobs.archiving.core.manifest import (
    BATCHES,
    ArchivedRange,
    Hole,
    Manifest,
    archived_ends,
    next_manifest,
)
from spark_jobs.archiving.lock import ArchiveLock
from spark_jobs.archiving.range_files import store_piece
from spark_jobs.archiving.site_topics import SiteTopics, site_topics
from spark_jobs.archiving.store import ArchiveStore
from spark_jobs.archiving.worker_waves import in_waves
from spark_jobs.logs.survey import log_ends, log_sizes, topic_filter
from spark_jobs.session import Progress


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
    """The result of the runs of one command; for a dry run, the planned result."""

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
        """Plan a run and return its report; this writes nothing and needs no Spark."""
        _, _, planned = self._planned(cores)
        self._offsets, self._holes, self._problems = planned.offsets, planned.holes, planned.problems
        return self._report(is_dry_run=True)

    def run(self, session: Callable[[], SparkSession], *, cores: int) -> ArchiveReport:
        """Archive. `session` is called when there is something to read, and has this many cores.
        Raises OperationalFailure when source or archive cannot be used, or another archiver writes
        to it.
        """
        lock = ArchiveLock(ArchiveStore.at(self.request.to), self.progress)
        with lock.held():
            while self._pass(session, cores, lock) and self.request.is_until_end:
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
        sizes = log_sizes(request.bootstrap, ends)
        return manifests, there, plan(there.topics, ends, archived_ends(manifests), log_bytes=sizes, cores=cores)

    def _pass(self, session: Callable[[], SparkSession], cores: int, lock: ArchiveLock) -> bool:
        """Execute one run; True if it stored something without a problem."""
        started_at_ms = round(time.time() * 1000)
        manifests, there, planned = self._planned(cores)
        request, store = self.request, ArchiveStore.at(self.request.to)
        manifests = store.remove_unnamed(manifests, request.format)
        if not planned.pieces and not planned.holes and not planned.problems and manifests:
            return False
        self.progress(
            f"archiving {planned.offsets:,} offsets of {len(there.topics)} topics in {len(planned.pieces)} ranges"
        )
        store_one = partial(store_piece, request.to, request.format, request.bootstrap)
        results = in_waves(session, planned.pieces, store_one, "archived", self.progress)
        found = settled(results)
        manifest = replace(
            next_manifest(manifests, request.format, started_at_ms=started_at_ms),
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
