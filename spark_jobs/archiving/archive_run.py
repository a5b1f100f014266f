"""The archive job: copies topics to files on any file system, by offset ranges.

A run reads from the end of the archived ranges to the high watermarks at its start, in waves. The
last step of a wave is its manifest, in one step: a run that was killed has archived its finished
waves, and the next run removes the files of the unfinished one. A lock lets one run at a time write
to an archive.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from runtime.process import OperationalFailure
from spark_jobs.archiving.core.archive_plan import ArchivePlan, Piece, Settled, Settlement, Stored, plan
from spark_jobs.archiving.core.archive_waves import WAVE_BYTES_PER_CORE, Wave, waves
from spark_jobs.archiving.core.archived_history import other_histories, tails
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
from spark_jobs.logs.survey import ends_of_epochs, log_ends, log_sizes, topic_filter
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
    wave_bytes: int = 0
    """The estimated size of a wave at most; 0 means WAVE_BYTES_PER_CORE for each core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveReport:
    """The result of the runs of one command; for a dry run, the planned result."""

    to: str
    format: str
    is_dry_run: bool
    manifests: tuple[int, ...]
    """Numbers of the written manifests, one a wave."""
    planned_waves: int
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
    _manifests: list[int] = field(default_factory=list)
    _ranges: list[ArchivedRange] = field(default_factory=list)
    _holes: list[Hole] = field(default_factory=list)
    _problems: list[str] = field(default_factory=list)
    _offsets: int = 0
    _waves: int = 0
    _started: float = field(default_factory=time.monotonic)

    def dry_run(self, cores: int) -> ArchiveReport:
        """Plan a run and return its report; this writes nothing and needs no Spark."""
        _, _, planned = self._planned(cores)
        self._offsets, self._holes, self._problems = planned.offsets, planned.holes, planned.problems
        self._waves = len(self._in_waves(planned, cores)) if planned.pieces else 0
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
        ids = {topic.topic_id for topic in there.topics}
        held = {log: tail for log, tail in tails(manifests).items() if log.topic_id in ids and tail.key in ends}
        epochs = {tail.key: tail.leader_epoch for tail in held.values()}
        lost = other_histories(held, ends_of_epochs(request.bootstrap, epochs))
        planned = plan(there.topics, ends, archived_ends(manifests), lost=lost, log_bytes=sizes, cores=cores)
        return manifests, there, planned

    def _in_waves(self, planned: ArchivePlan, cores: int) -> list[Wave]:
        return waves(planned, bytes_max=self.request.wave_bytes or cores * WAVE_BYTES_PER_CORE)

    def _pass(self, session: Callable[[], SparkSession], cores: int, lock: ArchiveLock) -> bool:
        """Execute one run; True if it stored something without a problem."""
        manifests, there, planned = self._planned(cores)
        store = ArchiveStore.at(self.request.to)
        manifests = store.remove_unnamed(manifests, self.request.format)
        if not planned.pieces and not planned.holes and not planned.problems and manifests:
            return False
        found = self._in_waves(planned, cores)
        self._offsets += planned.offsets
        self._waves += len(found)
        self._problems += planned.problems
        self.progress(
            f"archiving {planned.offsets:,} offsets of {len(there.topics)} topics in {len(planned.pieces)} ranges, "
            f"{len(found)} {'wave' if len(found) == 1 else 'waves'}"
        )
        writer = _Writer(store, lock, there, next_manifest(manifests, self.request.format))
        is_new, settlement = False, Settlement()
        for number, wave in enumerate(found, 1):
            name = f"wave {number} of {len(found)}"
            try:
                started_at_ms = round(time.time() * 1000)
                content = settlement.settled(self._stored(session, settlement.unharmed(wave.pieces), name))
                content.holes += wave.holes
                self._problems += content.problems
                if number > 1 and not content.ranges and not content.holes:
                    continue
                manifest = writer.write(content, started_at_ms=started_at_ms)
            except OperationalFailure as failure:
                raise _with_finished(failure, number - 1, len(found)) from failure
            self.progress(f"{name} is in the archive: manifest {manifest.number:08d}")
            self._manifests.append(manifest.number)
            self._ranges += content.ranges
            self._holes += content.holes
            is_new = is_new or bool(content.ranges)
        return is_new and not self._problems

    def _stored(
        self, session: Callable[[], SparkSession], pieces: Sequence[Piece], name: str
    ) -> list[tuple[Piece, Stored]]:
        request = self.request
        store_one = partial(store_piece, request.to, request.format, request.bootstrap)
        return in_waves(session, pieces, store_one, f"{name}: archived ranges:", self.progress)

    def _report(self, *, is_dry_run: bool) -> ArchiveReport:
        return ArchiveReport(
            to=self.request.to,
            format=self.request.format,
            is_dry_run=is_dry_run,
            manifests=tuple(self._manifests),
            planned_waves=self._waves,
            elapsed_ms=round((time.monotonic() - self._started) * 1000),
            ranges=tuple(self._ranges),
            holes=tuple(self._holes),
            problems=tuple(self._problems),
            planned_offsets=self._offsets,
        )


@dataclass(slots=True)
class _Writer:
    """Writes the manifests of a run, of which the first lists all topics, and each other one the
    topics of its ranges.
    """

    store: ArchiveStore
    lock: ArchiveLock
    there: SiteTopics
    following: Manifest
    """The next manifest, without content."""
    is_first: bool = True

    def write(self, content: Settled, *, started_at_ms: int) -> Manifest:
        """Write one manifest. Raises OperationalFailure when this process has lost the lock."""
        named = {one.topic_id for one in content.ranges}
        manifest = replace(
            self.following,
            started_at_ms=started_at_ms,
            cluster_id=self.there.cluster_id,
            topics=tuple(one for one in self.there.topics if self.is_first or one.topic_id in named),
            ranges=tuple(content.ranges),
            holes=tuple(content.holes),
        )
        self.lock.check()
        self.store.write_manifest(manifest)
        self.following = next_manifest([manifest], manifest.format)
        self.is_first = False
        return manifest


def _with_finished(failure: OperationalFailure, finished: int, planned: int) -> OperationalFailure:
    if not finished:
        return failure
    kept = "wave 1" if finished == 1 else f"waves 1 to {finished}"
    return OperationalFailure(f"{failure}; the archive has {kept} of {planned}: the next run continues there")
