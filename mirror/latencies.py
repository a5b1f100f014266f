"""How old records are when the mirror has them, and when the target has them: figures of now, by partition, for `metrics.py`.

Kept over the last half to whole minute, as MirrorMaker's are. What is still on its way counts with the age that it has by now, once that is
more than anything seen lately; of a partition that is not mirrored at the moment, or whose source is silent, nothing else counts. So no
figure goes on telling how fast a mirror was before it stood still.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from mirror.core.partitions import PartitionKey
from mirror.core.window import QueuedBatches

WINDOW_MS = 30_000

NAMES = ("", "_min", "_max", "_avg")


class Figures(NamedTuple):
    """The last one, minimum, maximum and mean; NaN when nothing is known of now. In the order of NAMES."""

    last: float = math.nan
    minimum: float = math.nan
    maximum: float = math.nan
    mean: float = math.nan


@dataclass(slots=True)
class _Sample:
    """Minimum, maximum and mean of the values seen in one window."""

    count: int = 0
    total: float = 0.0
    minimum: float = math.inf
    maximum: float = -math.inf

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        self.minimum = min(self.minimum, value)
        self.maximum = max(self.maximum, value)

    def merged(self, other: _Sample) -> _Sample:
        return _Sample(
            self.count + other.count,
            self.total + other.total,
            min(self.minimum, other.minimum),
            max(self.maximum, other.maximum),
        )


class _Rolling:
    """The present window and the one before."""

    __slots__ = ("_before", "_began_ms", "_last", "_now")

    def __init__(self) -> None:
        self._now = _Sample()
        self._before = _Sample()
        self._began_ms = 0.0
        self._last = math.nan

    def add(self, value: float, now_ms: float) -> None:
        age_ms = now_ms - self._began_ms
        if age_ms > WINDOW_MS:
            self._before = self._now if age_ms <= 2 * WINDOW_MS else _Sample()
            self._now, self._began_ms = _Sample(), now_ms
        self._last = value
        self._now.add(value)

    def figures(self, now_ms: float, *, is_stalled: bool, waiting_ms: float | None) -> Figures:
        age_ms = now_ms - self._began_ms
        last, sample = self._last, _Sample()
        if not is_stalled and age_ms <= 2 * WINDOW_MS:
            sample = self._now.merged(self._before if age_ms <= WINDOW_MS else _Sample())
        if waiting_ms is not None and waiting_ms > sample.maximum:
            last = waiting_ms
            sample.add(waiting_ms)
        if not sample.count:
            return Figures()
        return Figures(last, sample.minimum, sample.maximum, sample.total / sample.count)


class Latencies:
    """Of the partitions of which something was acknowledged."""

    def __init__(self) -> None:
        self._ages: dict[PartitionKey, _Rolling] = {}
        self._latencies: dict[PartitionKey, _Rolling] = {}

    def observe(self, key: PartitionKey, entry: QueuedBatches, now_ms: float) -> None:
        """Batches were acknowledged."""
        timestamp_ms = entry.run.max_timestamp_ms
        if timestamp_ms < 0:
            return
        if key not in self._ages:
            self._ages[key], self._latencies[key] = _Rolling(), _Rolling()
        self._ages[key].add(max(0, entry.fetched_at_ms - timestamp_ms), now_ms)
        self._latencies[key].add(max(0, now_ms - timestamp_ms), now_ms)

    def partitions(self) -> Iterator[PartitionKey]:
        """Those of which there are figures; a copy, since metrics are read in a thread of their own."""
        return iter(tuple(self._ages))

    def ages(self, key: PartitionKey, now_ms: float, *, is_stalled: bool) -> Figures:
        """How old records were when they reached the mirror."""
        return self._ages[key].figures(now_ms, is_stalled=is_stalled, waiting_ms=None)

    def latencies(self, key: PartitionKey, now_ms: float, *, is_stalled: bool, oldest: QueuedBatches | None) -> Figures:
        """How old records were when the target had them; `oldest` is what it does not have yet."""
        has_time = oldest is not None and oldest.run.max_timestamp_ms >= 0
        waiting_ms = max(0.0, now_ms - oldest.run.max_timestamp_ms) if oldest is not None and has_time else None
        return self._latencies[key].figures(now_ms, is_stalled=is_stalled, waiting_ms=waiting_ms)


def oldest_by_partition(entries: Iterable[QueuedBatches]) -> dict[PartitionKey, QueuedBatches]:
    """The first of each partition's, which is its oldest."""
    oldest: dict[PartitionKey, QueuedBatches] = {}
    for entry in entries:
        oldest.setdefault(entry.key, entry)
    return oldest
