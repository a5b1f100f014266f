"""Computes the loss that regular backups would have had instead, for comparison with a drill
(DR-04, DR-05).

A backup loses the records that were written since the last one. In the worst case the fault comes
just before the next backup: the loss is the newest records of one interval.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

INTERVALS_MS: Final = (10_000, 60_000, 3_600_000, 86_400_000)
"""Snapshot intervals, from every ten seconds to a backup every night."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotLoss:
    """The worst case of one interval, which is its recovery point. `is_counted` is False if the
    load was shorter than the interval; then the loss is estimated from its rate.
    """

    interval_ms: int
    lost_records: int
    is_counted: bool


def snapshot_baseline(
    acknowledged_at_ms: Sequence[float], *, fault_at_ms: float, intervals_ms: Sequence[int] = INTERVALS_MS
) -> tuple[SnapshotLoss, ...]:
    """The losses for sorted times of acknowledgements; none when no acknowledgement came before the
    fault.
    """
    before = bisect_right(acknowledged_at_ms, fault_at_ms)
    if not before:
        return ()
    elapsed_ms = fault_at_ms - acknowledged_at_ms[0]
    found = []
    for interval_ms in intervals_ms:
        is_counted = interval_ms <= elapsed_ms
        if is_counted:
            lost = before - bisect_right(acknowledged_at_ms, fault_at_ms - interval_ms)
        else:
            lost = round(before * interval_ms / max(1.0, elapsed_ms))
        found.append(SnapshotLoss(interval_ms=interval_ms, lost_records=lost, is_counted=is_counted))
    return tuple(found)
