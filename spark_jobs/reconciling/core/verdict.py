"""The result of a reconciliation as plain values: what was compared, what was found, the resulting
exit code.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, NamedTuple

from spark_jobs.reconciling.core.findings import Explanation, Finding, FindingKind

ERRORS: Final = frozenset({FindingKind.CORRUPT, FindingKind.DUPLICATE})
"""Findings within one log, independently of the other one."""


class Verdict(enum.StrEnum):
    """The verdict of the whole comparison."""

    EQUAL = "equal"
    DIFFERENT = "different"
    NOT_COMPARED = "not compared"

    @property
    def exit_code(self) -> int:
        """0 equal, 1 different, 2 could not compare."""
        return (Verdict.EQUAL, Verdict.DIFFERENT, Verdict.NOT_COMPARED).index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One site's log of a partition: start offset included, end offset excluded."""

    start_offset: int
    end_offset: int
    records: int = 0
    bytes: int = 0
    batches: int = 0
    digest: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeReport:
    """One offset range of a partition on both sites; a digest is empty where a site holds nothing
    of it.
    """

    start_offset: int
    source_records: int
    target_records: int
    source_digest: str
    target_digest: str

    @property
    def is_equal(self) -> bool:
        """True when both digests agree."""
        return self.source_digest == self.target_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReport:
    """One partition on both sites."""

    topic: str
    partition: int
    source: Side
    target: Side
    is_equal: bool
    ranges: tuple[RangeReport, ...] = ()
    elapsed_ms: int = 0
    """Its share of the time of the run, by offsets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicLine:
    """One topic of a reconciliation in a line. `errors` are damage that one log has in itself,
    `differences` are those between the sites; `skipped` says what is not compared and why.
    """

    topic: str
    errors: int
    differences: int
    ranges: int
    records_source: int
    records_target: int
    skipped: tuple[str, ...]
    seconds: float


class SkippedPartition(NamedTuple):
    """A partition that was not compared, and why."""

    topic: str
    partition: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconciliationReport:
    """The result of a reconciliation. `as_document` is its JSON form."""

    source_site: str
    target_site: str
    started_at_ms: int
    elapsed_ms: int
    range_offsets: int
    is_deep: bool
    partitions: tuple[PartitionReport, ...]
    findings: tuple[Finding, ...]
    explanations: tuple[Explanation, ...]
    problems: tuple[str, ...] = field(default=())
    until_ms: int = -1
    """The comparison covers records before the first one with this timestamp (Unix ms) or a later
    one; -1 for everything.
    """
    run_id: str = ""
    resumed_partitions: int = 0
    """Partitions that an interrupted run with this id had judged before."""
    skipped: tuple[SkippedPartition, ...] = ()
    findings_not_listed: int = 0
    """Findings beyond the limits."""

    @property
    def verdict(self) -> Verdict:
        """Different when anything was found, not compared when that could not be established or
        there was nothing to compare.
        """
        if self.findings:
            return Verdict.DIFFERENT
        if self.problems or self.skipped or not self.partitions:
            return Verdict.NOT_COMPARED
        return Verdict.EQUAL

    @property
    def topics(self) -> list[TopicLine]:
        """A line for each topic, sorted."""
        names = {one.topic for one in self.partitions} | {one.topic for one in self.skipped}
        return [self._line(name) for name in sorted(names)]

    def _line(self, topic: str) -> TopicLine:
        partitions = [one for one in self.partitions if one.topic == topic]
        findings = [one for one in self.findings if one.topic == topic]
        errors = sum(one.kind in ERRORS for one in findings)
        reasons = [f"{one.kind} offsets" for one in self.explanations if one.topic == topic]
        reasons += [f"partition {one.partition}: {one.reason}" for one in self.skipped if one.topic == topic]
        return TopicLine(
            topic=topic,
            errors=errors,
            differences=len(findings) - errors,
            ranges=sum(len(one.ranges) for one in partitions),
            records_source=sum(one.source.records for one in partitions),
            records_target=sum(one.target.records for one in partitions),
            skipped=tuple(dict.fromkeys(reasons)),
            seconds=round(sum(one.elapsed_ms for one in partitions) / 1000, 3),
        )

    def as_document(self) -> dict[str, Any]:
        """Plain dictionaries and lists, with the verdict and totals in front."""
        document = asdict(self)
        for found, plain in zip(self.partitions, document["partitions"], strict=True):
            for one, plain_range in zip(found.ranges, plain["ranges"], strict=True):
                plain_range["is_equal"] = one.is_equal
        return {
            "verdict": str(self.verdict),
            "exit_code": self.verdict.exit_code,
            "partitions_compared": len(self.partitions),
            "partitions_different": sum(not partition.is_equal for partition in self.partitions),
            "records_source": sum(partition.source.records for partition in self.partitions),
            "records_target": sum(partition.target.records for partition in self.partitions),
            "bytes_source": sum(partition.source.bytes for partition in self.partitions),
            "bytes_target": sum(partition.target.bytes for partition in self.partitions),
            "offsets_by_kind": offsets_by_kind(self.findings),
            "topics": [asdict(one) for one in self.topics],
            **document,
            "skipped": [one._asdict() for one in self.skipped],
        }


def offsets_by_kind(findings: Sequence[Finding]) -> dict[str, int]:
    """The number of offsets that the findings of each kind span."""
    totals: dict[str, int] = {}
    for finding in findings:
        totals[str(finding.kind)] = totals.get(str(finding.kind), 0) + finding.offsets
    return totals
