"""Divides a comparison into waves of partitions that are judged one after the other, decides when a
wave has to wait, and which findings are listed. Pure.

A judged wave is written to the journal, so that an interrupted run continues with the next one.
Between two waves the job waits while the sites are slow or the standby lags.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from spark_jobs.reconciling.core.extents import Extent
from spark_jobs.reconciling.core.findings import Finding
from wire.protocol.ids import PartitionKey

WAVE_OFFSETS: Final = 50_000_000
"""Offsets of one site that a wave reads, unless one partition has more."""
NO_BOUND: Final = 0


def waves(plan: Iterable[Extent], *, offsets_max: int, judged: Collection[PartitionKey] = ()) -> list[list[Extent]]:
    """The extents that are not judged yet, in their order, as waves of at most `offsets_max`
    offsets; a longer extent is a wave of its own.
    """
    found: list[list[Extent]] = []
    offsets = 0
    for extent in plan:
        if (extent.topic, extent.partition) in judged:
            continue
        if not found or offsets + extent.offsets > offsets_max:
            found.append([])
            offsets = 0
        found[-1].append(extent)
        offsets += extent.offsets
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The state of the sites at one moment. `lag_records` is the lag of the target behind the
    source's ends; `latency_ms` is the response time of the slower site.
    """

    lag_records: int
    latency_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PauseBounds:
    """The load above which a comparison pauses; 0 sets no bound."""

    lag_records: int = NO_BOUND
    latency_ms: int = NO_BOUND

    @property
    def is_set(self) -> bool:
        """True if a bound is set."""
        return bool(self.lag_records or self.latency_ms)

    def reason(self, load: Load) -> str:
        """Why the comparison has to pause; empty when it may go on."""
        if self.lag_records and load.lag_records > self.lag_records:
            return f"the target lacks {load.lag_records:,} records, the bound is {self.lag_records:,}"
        if self.latency_ms and load.latency_ms > self.latency_ms:
            return f"a site took {load.latency_ms:,.0f} ms to answer, the bound is {self.latency_ms:,} ms"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingLimits:
    """The number of findings that are listed for each topic and in all; 0 lists every one."""

    per_topic: int = NO_BOUND
    in_all: int = NO_BOUND

    def is_reached(self, findings: Sequence[Finding]) -> bool:
        """True if the list of differences is full; the comparison itself continues."""
        return bool(self.in_all) and len(findings) >= self.in_all

    def listed(self, findings: Iterable[Finding]) -> tuple[Finding, ...]:
        """The first findings of each topic and in all."""
        kept: list[Finding] = []
        by_topic: dict[str, int] = {}
        for finding in findings:
            by_topic[finding.topic] = by_topic.get(finding.topic, 0) + 1
            is_within = not self.per_topic or by_topic[finding.topic] <= self.per_topic
            if is_within and not self.is_reached(kept):
                kept.append(finding)
        return tuple(kept)
