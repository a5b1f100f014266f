"""A reconciliation: surveys both sites, compares wave after wave of partitions, and reports every
difference. Spark compares large logs; small ones are compared in this process, without a session.

With a journal, an interrupted run continues with the partitions that are not judged yet.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from runtime.process import OperationalFailure
from spark_jobs.reconciling.core.extents import Extent, range_size
from spark_jobs.reconciling.core.findings import Finding
from spark_jobs.reconciling.core.judged_waves import JudgedWave
from spark_jobs.reconciling.core.verdict import ReconciliationReport, SkippedPartition
from spark_jobs.reconciling.core.waves import waves
from spark_jobs.reconciling.process_rows import ProcessRows
from spark_jobs.reconciling.request import Request, load_of, surveyed
from spark_jobs.reconciling.run_journal import RunJournal
from spark_jobs.reconciling.wave_comparison import WaveComparison
from spark_jobs.reconciling.wave_rows import WaveRows
from spark_jobs.session import Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAUSE_POLL_S: Final = 1.0
LIMIT_REACHED: Final = "the limit of findings is reached"


def reconcile(
    session: Callable[[], SparkSession],
    request: Request,
    progress: Progress = lambda _: None,
    *,
    out: Path | None = None,
    is_resumed: bool = False,
) -> ReconciliationReport:
    """Compare; a site that cannot be asked is a problem of the report, not an exception. `session`
    is called when there is more than this process compares by itself. With `out` the judged waves
    are noted in that directory; `is_resumed` continues the run that is noted there
    (OperationalFailure without one).
    """
    run = Reconciliation(session, request, progress, RunJournal(out) if out is not None else None)
    if is_resumed:
        run.resume()
    return run.run()


@dataclass(slots=True)
class Reconciliation:
    """One run: `run` once; for an interrupted run, `resume` first."""

    session: Callable[[], SparkSession]
    request: Request
    progress: Progress
    journal: RunJournal | None = None
    _run_id: str = field(default_factory=lambda: os.urandom(6).hex())
    _waves: list[JudgedWave] = field(default_factory=list)
    _resumed_partitions: int = 0
    _problems: list[str] = field(default_factory=list)
    _unjudged: dict[tuple[str, int], str] = field(default_factory=dict)
    _range_offsets: int = 0

    def resume(self) -> None:
        """Take what the interrupted run has judged. OperationalFailure when there is none."""
        if self.journal is None:
            raise OperationalFailure("a run is resumed in the directory of its report")
        self._run_id, self._waves = self.journal.resume(self.request.deciding())
        self._resumed_partitions = sum(len(wave.partitions) for wave in self._waves)
        self.progress(f"run {self._run_id} goes on: {self._resumed_partitions} partitions are judged")

    def run(self) -> ReconciliationReport:
        """Survey, read, compare, judge."""
        started_at_ms, started = round(time.time() * 1000), time.monotonic()
        if self.journal is not None and not self._waves:
            self.journal.begin(self._run_id, self.request.deciding())
        try:
            self._compare(surveyed(self.request, self.progress))
        except OperationalFailure as failure:
            self._problems.append(str(failure))
        findings = self._findings()
        listed = self.request.limits.listed(findings)
        return ReconciliationReport(
            source_site=self.request.source_site,
            target_site=self.request.target_site,
            started_at_ms=started_at_ms,
            elapsed_ms=round((time.monotonic() - started) * 1000),
            range_offsets=self._range_offsets or self.request.range_offsets,
            is_deep=self.request.is_deep,
            until_ms=self.request.until_ms,
            partitions=tuple(one for wave in self._waves for one in wave.partitions),
            findings=listed,
            explanations=tuple(one for wave in self._waves for one in wave.explanations),
            problems=(*(one for wave in self._waves for one in wave.problems), *self._problems),
            run_id=self._run_id,
            resumed_partitions=self._resumed_partitions,
            skipped=tuple(SkippedPartition(*key, reason) for key, reason in sorted(self._unjudged.items())),
            findings_not_listed=len(findings) - len(listed),
        )

    def _findings(self) -> list[Finding]:
        found = [one for wave in self._waves for one in wave.findings]
        return sorted(found, key=lambda one: (one.topic, one.partition, one.first_offset))

    def _compare(self, plan: list[Extent]) -> None:
        self._range_offsets = range_size(plan, self.request.range_offsets)
        judged = {(one.topic, one.partition) for wave in self._waves for one in wave.partitions}
        ahead = waves(plan, offsets_max=self.request.wave_offsets, judged=judged)
        self._unjudged = {(one.topic, one.partition): "the run ended before" for wave in ahead for one in wave}
        is_small = sum(one.offsets for wave in ahead for one in wave) <= self.request.process_offsets_max
        for number, wave in enumerate(ahead, start=1):
            if self.request.limits.is_reached(self._findings()):
                self._unjudged = dict.fromkeys(self._unjudged, LIMIT_REACHED)
                return
            self._wait_for_sites()
            if len(ahead) > 1:
                self.progress(f"wave {number} of {len(ahead)}")
            rows = self._rows(wave, is_small=is_small)
            found = WaveComparison(rows, self.request, wave, self._range_offsets, self.progress).run()
            if self.journal is not None:
                self.journal.append(found)
            self._waves.append(found)
            for one in wave:
                del self._unjudged[one.topic, one.partition]

    def _rows(self, wave: Sequence[Extent], *, is_small: bool) -> WaveRows:
        if is_small:
            return ProcessRows(self.request, wave)
        from spark_jobs.reconciling.spark_rows import SparkRows

        return SparkRows(self.session(), self.request, wave)

    def _wait_for_sites(self) -> None:
        """Pause while the lag or the latency of the sites is above its bound."""
        bounds, before = self.request.pause, ""
        while bounds.is_set and (reason := bounds.reason(load_of(self.request))):
            if not before:
                self.progress(f"paused: {reason}")
            before = reason
            time.sleep(PAUSE_POLL_S)
        if before:
            self.progress("goes on: the sites are within the bounds again")


def judged_before(out: Path, request: Request) -> Mapping[tuple[str, int], str]:
    """The partitions that an interrupted run in the directory has judged, with that run's id.
    OperationalFailure when there is none.
    """
    run_id, found = RunJournal(out).resume(request.deciding())
    return {(one.topic, one.partition): run_id for wave in found for one in wave.partitions}
