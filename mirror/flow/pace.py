"""Measures the age of records when the mirror and the target receive them, and their rate, by
partition, for `mirror/admin/metrics.py`.

Kept over the last half to whole minute (`rolling.py`), as MirrorMaker's figures are. Batches in
flight count with their current age once that exceeds every recent value; for a partition that is
not mirrored now, or whose source does not answer, nothing else counts. So no figure shows the speed
of a mirror that has stopped. The minute is measured by the monotonic clock.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from mirror.flow.core.window import QueuedBatches
from mirror.flow.rolling import Figures, Rolling
from runtime.clock import Clock
from wire.protocol.ids import TopicPartition


class _Figures:
    """The figures of one partition. Ages are of records that have a timestamp."""

    __slots__ = ("ages", "bytes", "has_ages", "latencies", "records")

    def __init__(self) -> None:
        self.ages, self.latencies, self.records, self.bytes = Rolling(), Rolling(), Rolling(), Rolling()
        self.has_ages = False


class Pace:
    """The pace of the partitions that have acknowledged records."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._figures: dict[TopicPartition, _Figures] = {}

    def observe(self, key: TopicPartition, entry: QueuedBatches) -> None:
        """Batches were acknowledged; skipped ones have no pace."""
        if not entry.run.record_count:
            return
        now_ms = self._clock.monotonic_ms()
        figures = self._figures.get(key)
        if figures is None:
            figures = self._figures[key] = _Figures()
        figures.records.add(entry.run.record_count, now_ms)
        figures.bytes.add(entry.run.carried_bytes, now_ms)
        timestamp_ms = entry.run.max_timestamp_ms
        if timestamp_ms < 0:
            return
        figures.ages.add(max(0, entry.fetched_at_ms - timestamp_ms), now_ms)
        figures.latencies.add(max(0, self._clock.now_ms() - timestamp_ms), now_ms)
        figures.has_ages = True

    def keep(self, keys: Collection[TopicPartition]) -> None:
        """Forget all partitions but these."""
        for key in self._figures.copy().keys() - keys:
            self._figures.pop(key, None)

    def partitions(self) -> Iterator[TopicPartition]:
        """Iterate over the partitions with known ages; a copy, because metrics are read in another
        thread.
        """
        return iter([key for key, figures in self._figures.copy().items() if figures.has_ages])

    def ages(self, key: TopicPartition, *, is_stalled: bool) -> Figures:
        """The age of records at their arrival at the mirror."""
        return self._figures[key].ages.figures(self._clock.monotonic_ms(), is_stalled=is_stalled)

    def latencies(self, key: TopicPartition, *, is_stalled: bool, oldest: QueuedBatches | None) -> Figures:
        """The age of records at their arrival at the target; `oldest` is the oldest batch that the
        target does not have.
        """
        has_time = oldest is not None and oldest.run.max_timestamp_ms >= 0
        now_ms = self._clock.now_ms()
        waiting_ms = max(0.0, now_ms - oldest.run.max_timestamp_ms) if oldest is not None and has_time else None
        latencies = self._figures[key].latencies
        return latencies.figures(self._clock.monotonic_ms(), is_stalled=is_stalled, waiting_ms=waiting_ms)

    def records_a_second(self, key: TopicPartition) -> float:
        """Records acknowledged a second."""
        figures = self._figures.get(key)
        return 0.0 if figures is None else figures.records.a_second(self._clock.monotonic_ms())

    def bytes_a_second(self, key: TopicPartition) -> float:
        """Bytes acknowledged a second."""
        figures = self._figures.get(key)
        return 0.0 if figures is None else figures.bytes.a_second(self._clock.monotonic_ms())


def oldest_by_partition(entries: Iterable[QueuedBatches]) -> dict[TopicPartition, QueuedBatches]:
    """The first of each partition's, which is its oldest."""
    oldest: dict[TopicPartition, QueuedBatches] = {}
    for entry in entries:
        oldest.setdefault(entry.key, entry)
    return oldest
