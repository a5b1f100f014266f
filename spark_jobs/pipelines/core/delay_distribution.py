"""The distribution of delays. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class DelayDistribution(NamedTuple):
    """Delays in ms; the quantiles are delays of records (nearest rank)."""

    records: int
    mean_ms: float
    p50_ms: int
    p90_ms: int
    p99_ms: int
    max_ms: int


def delay_distribution(delays_ms: Sequence[int]) -> DelayDistribution:
    """The distribution of at least one delay."""
    ordered = sorted(delays_ms)

    def quantile(percent: int) -> int:
        return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]

    return DelayDistribution(
        records=len(ordered),
        mean_ms=round(sum(ordered) / len(ordered), 1),
        p50_ms=quantile(50),
        p90_ms=quantile(90),
        p99_ms=quantile(99),
        max_ms=ordered[-1],
    )
