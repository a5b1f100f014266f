"""Compares one wave of partitions: digests of ranges first, the batches of ranges that differ, and
(deep, or of compacted topics) their records.

Only ranges whose digests differ are looked at batch by batch. Findings are bounded by
`FINDINGS_MAX` a kind of question; the report says when there are more.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from spark_jobs.logs.survey import compacted_topics, log_ends, topic_filter
from spark_jobs.reconciling.core.extents import Extent, expired
from spark_jobs.reconciling.core.judged_waves import JudgedWave
from spark_jobs.reconciling.core.judging import Judgement, Run, narrowed
from spark_jobs.reconciling.core.ranges import Comparison, RangeKey
from spark_jobs.reconciling.core.verdict import PartitionReport
from spark_jobs.reconciling.request import Request
from spark_jobs.reconciling.wave_rows import WaveRows
from spark_jobs.session import Progress
from wire.protocol.ids import PartitionKey

FINDINGS_MAX = 10_000


@dataclass(slots=True)
class WaveComparison:
    """One wave: `run` once. Raises OperationalFailure when a site cannot be read."""

    rows: WaveRows
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
        try:
            compared = Comparison.of(
                self.rows.digests(self.range_offsets),
                source_site=request.source_site,
                target_site=request.target_site,
            )
            self.progress("looking for corrupt and repeated batches")
            self._judgement.judge_defects(self._bounded(self.rows.defects(FINDINGS_MAX + 1), "defects"))
            differing = compared.differing()
            if differing:
                self.progress(f"naming what differs in {len(differing)} ranges")
                self._name_differences(differing)
        finally:
            self.rows.release()
        return compared

    def _bounded(self, runs: list[Run], what: str) -> list[Run]:
        if len(runs) > FINDINGS_MAX:
            self._problems.append(f"there are more than {FINDINGS_MAX:,} {what}: the others are not listed")
        return runs[:FINDINGS_MAX]

    def _explain_expiry(self) -> None:
        """Retention continues during a run: offsets that a site has deleted since the survey are no
        difference.
        """
        request = self.request
        is_wanted = topic_filter(request.topic_whitelist, request.topic_blacklist)
        for site, kind in self._judgement.suspects().items():
            now = log_ends(request.bootstraps[site], is_wanted)
            starts = {key: ends.start_offset for key, ends in now.items()}
            self._judgement.explain_expiry(kind, site=site, starts=starts)

    def _name_differences(self, differing: Sequence[RangeKey]) -> None:
        topics = sorted({key.topic for key in differing})
        compacted = compacted_topics(self.request.source_bootstrap, topics)
        plain = [key for key in differing if key.topic not in compacted]
        if plain:
            self._name_plain(plain)
        if len(plain) < len(differing):
            self._name_compacted({(key.topic, key.partition) for key in differing if key.topic in compacted})

    def _name_plain(self, differing: Sequence[RangeKey]) -> None:
        found = self.rows.differing_batches(differing, self.range_offsets, FINDINGS_MAX + 1)
        runs = self._bounded(found, "differences")
        if self.request.is_deep:
            self._name_deep(runs)
        else:
            self._judgement.judge_differences(runs)

    def _name_deep(self, runs: Sequence[Run]) -> None:
        """Open the batches of these runs alone, and name the records that differ."""
        opened = narrowed(self.wave, runs)
        exact = self._bounded(self.rows.differing_records(opened, FINDINGS_MAX + 1), "differences")
        self._judgement.judge_opened(opened, exact)

    def _name_compacted(self, partitions: set[PartitionKey]) -> None:
        self.progress(f"opening {len(partitions)} compacted partitions")
        chosen = [extent for extent in self.wave if (extent.topic, extent.partition) in partitions]
        runs, explained = self.rows.compacted_differences(chosen, FINDINGS_MAX + 1)
        self._judgement.judge_differences(self._bounded(runs, "differences"))
        self._judgement.explain_compaction(explained)
