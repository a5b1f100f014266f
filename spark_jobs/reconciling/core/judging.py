"""Judges the rows that Spark collects: findings, which are faults, and explanations, which are not.
Pure: rows in, findings and explanations out, tested without Spark.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from spark_jobs.reconciling.core.extents import Extent
from spark_jobs.reconciling.core.findings import (
    Explanation,
    ExplanationKind,
    Finding,
    FindingKind,
    OffsetRange,
    classify,
    merged,
    without_expired,
)
from wire.protocol.ids import PartitionKey

ONLY_SOURCE: Final = "only_source"
ONLY_TARGET: Final = "only_target"
CORRUPT: Final = "corrupt"
OVERLAPPING: Final = "overlapping"
REPEATED: Final = "repeated"

BOTH_SITES: Final = "both"
ABORT_KEY: Final = bytes(4)
"""The key of a marker that aborts: version 0, type 0."""


class Run(NamedTuple):
    """Offsets `first_offset` to `last_offset` (both included) of one partition, with the
    comparison's `kind`: one of the constants above.
    """

    topic: str
    partition: int
    kind: str
    first_offset: int
    last_offset: int
    site: str = ""
    """The site of a defect; empty for differences between the sites."""
    records: int = 0
    """The number of records that one site alone has; of compacted topics only."""


@dataclass(slots=True, kw_only=True)
class Judgement:
    """Findings and explanations of one comparison, gathered as rows arrive."""

    source_site: str
    target_site: str
    findings: list[Finding] = field(default_factory=list)
    explanations: list[Explanation] = field(default_factory=list)

    def judge_defects(self, runs: Iterable[Run]) -> None:
        """Defects within one log. Corruption and overlaps are findings at any site. If both sites
        repeat the same batch, its producer wrote it twice; this explains the repetition.
        """
        repeated: dict[tuple[str, int, int, int], set[str]] = defaultdict(set)
        for run in runs:
            if run.kind == REPEATED:
                repeated[run.topic, run.partition, run.first_offset, run.last_offset].add(run.site)
            elif run.kind == CORRUPT:
                self._find(FindingKind.CORRUPT, run, "the checksum does not match the bytes")
            else:
                self._find(FindingKind.DUPLICATE, run, "an earlier batch has these offsets already")
        for (topic, partition, first, last), sites in sorted(repeated.items()):
            run = Run(topic, partition, REPEATED, first, last, site=min(sites))
            detail = "the log has this producer's batch already"
            if len(sites) > 1:
                self._explain(ExplanationKind.REPEATED, run, site=BOTH_SITES, detail=detail)
            else:
                self._find(FindingKind.DUPLICATE, run, detail)

    def judge_differences(self, runs: Iterable[Run]) -> None:
        """Runs that one site alone has: missing, extra or diverged ranges."""
        by_partition: dict[PartitionKey, dict[str, list[OffsetRange]]] = defaultdict(lambda: defaultdict(list))
        for run in runs:
            by_partition[run.topic, run.partition][run.kind].append(
                OffsetRange(first=run.first_offset, last=run.last_offset)
            )
        for (topic, partition), kinds in sorted(by_partition.items()):
            self.findings += classify(
                topic=topic,
                partition=partition,
                only_source=kinds[ONLY_SOURCE],
                only_target=kinds[ONLY_TARGET],
            )

    def judge_opened(self, opened: Iterable[Extent], runs: Sequence[Run]) -> None:
        """Batches differed and their records were compared: `runs` has the records that differ. An
        extent without any has the same records in other batches.
        """
        self.judge_differences(runs)
        differing = {(run.topic, run.partition) for run in runs}
        for extent in opened:
            if (extent.topic, extent.partition) not in differing:
                last = extent.first_offset + extent.offsets - 1
                run = Run(extent.topic, extent.partition, "", extent.first_offset, last)
                detail = "the same records under the same offsets and epochs, in other batches"
                self._explain(ExplanationKind.REBATCHED, run, site=BOTH_SITES, detail=detail)

    def explain_compaction(self, runs: Iterable[Run]) -> None:
        """Records of compacted topics that one site has cleaned earlier than the other one."""
        for run in runs:
            lacking = self.target_site if run.kind == ONLY_SOURCE else self.source_site
            detail = f"{lacking} has compacted {run.records} of these records away"
            self._explain(ExplanationKind.COMPACTED, run, site=lacking, detail=detail)

    def suspects(self) -> dict[str, FindingKind]:
        """The sites that lack offsets by the findings so far, each with the kind of finding:
        retention may have deleted these offsets since the survey.
        """
        lacking = {self.target_site: FindingKind.MISSING, self.source_site: FindingKind.EXTRA}
        kinds = {finding.kind for finding in self.findings}
        return {site: kind for site, kind in lacking.items() if kind in kinds}

    def explain_expiry(self, kind: FindingKind, *, site: str, starts: Mapping[PartitionKey, int]) -> None:
        """Turn findings of the kind into explanations as far as the site, which lacks the offsets,
        has expired them since the survey. `starts` has its log starts now.
        """
        kept: list[Finding] = []
        for finding in self.findings:
            if finding.kind is not kind:
                kept.append(finding)
                continue
            start = starts.get((finding.topic, finding.partition), 0)
            remaining, reasons = without_expired(finding, start_offset=start, site=site)
            kept += remaining
            self.explanations += reasons
        self.findings = kept

    def is_faulty(self, topic: str, partition: int) -> bool:
        """True if the partition has a finding."""
        return any((finding.topic, finding.partition) == (topic, partition) for finding in self.findings)

    def _find(self, kind: FindingKind, run: Run, detail: str) -> None:
        self.findings.append(
            Finding(
                topic=run.topic,
                partition=run.partition,
                kind=kind,
                first_offset=run.first_offset,
                last_offset=run.last_offset,
                site=run.site,
                detail=detail,
            )
        )

    def _explain(self, kind: ExplanationKind, run: Run, *, site: str, detail: str) -> None:
        self.explanations.append(
            Explanation(
                topic=run.topic,
                partition=run.partition,
                kind=kind,
                first_offset=run.first_offset,
                last_offset=run.last_offset,
                site=site,
                detail=detail,
            )
        )


def narrowed(plan: Iterable[Extent], runs: Iterable[Run]) -> list[Extent]:
    """The extents, reduced to the runs that differ; runs that overlap or touch become one."""
    by_partition: dict[PartitionKey, list[OffsetRange]] = defaultdict(list)
    for run in runs:
        by_partition[run.topic, run.partition].append(OffsetRange(first=run.first_offset, last=run.last_offset))
    return [
        replace(
            extent,
            first_offset=max(extent.first_offset, one.first),
            source_until=min(extent.source_until, one.last + 1),
            target_until=min(extent.target_until, one.last + 1),
        )
        for extent in plan
        for one in merged(by_partition.get((extent.topic, extent.partition), ()))
    ]
