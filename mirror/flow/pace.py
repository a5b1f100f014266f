"""Measures the age of records when the mirror and the target receive them, and their rate, by
partition, for `mirror/admin/metrics.py`.

Kept over the last half to whole minute (`rolling.py`), as MirrorMaker's figures are. Batches in
flight count with their current age once that exceeds every recent value; for a partition that is
not mirrored now, or whose source does not answer, nothing else counts. So no figure shows the speed
of a mirror that has stopped. The minute is measured by the monotonic clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mirror.flow.core.window import QueuedBatches
from mirror.flow.rolling import Figures, Rolling
from runtime.clock import Clock
from wire.protocol.ids import TopicPartition


class Pace:
    """The pace of the partitions that have acknowledged records."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ages: dict[TopicPartition, Rolling] = {}
        self._latencies: dict[TopicPartition, Rolling] = {}
        self._records: dict[TopicPartition, Rolling] = {}
        self._bytes: dict[TopicPartition, Rolling] = {}

    def observe(self, key: TopicPartition, entry: QueuedBatches) -> None:
        """Batches were acknowledged; skipped ones have no pace."""
        if not entry.run.record_count:
            return
        now_ms = self._clock.monotonic_ms()
        if key not in self._records:
            self._records[key], self._bytes[key] = Rolling(), Rolling()
        self._records[key].add(entry.run.record_count, now_ms)
        self._bytes[key].add(entry.run.carried_bytes, now_ms)
        timestamp_ms = entry.run.max_timestamp_ms
        if timestamp_ms < 0:
            return
        if key not in self._ages:
            self._ages[key], self._latencies[key] = Rolling(), Rolling()
        self._ages[key].add(max(0, entry.fetched_at_ms - timestamp_ms), now_ms)
        self._latencies[key].add(max(0, self._clock.now_ms() - timestamp_ms), now_ms)

    def partitions(self) -> Iterator[TopicPartition]:
        """Iterate over the partitions with known ages; a copy, because metrics are read in another
        thread.
        """
        return iter(tuple(self._ages))

    def ages(self, key: TopicPartition, *, is_stalled: bool) -> Figures:
        """The age of records at their arrival at the mirror."""
        return self._ages[key].figures(self._clock.monotonic_ms(), is_stalled=is_stalled)

    def latencies(self, key: TopicPartition, *, is_stalled: bool, oldest: QueuedBatches | None) -> Figures:
        """The age of records at their arrival at the target; `oldest` is the oldest batch that the
        target does not have.
        """
        has_time = oldest is not None and oldest.run.max_timestamp_ms >= 0
        now_ms = self._clock.now_ms()
        waiting_ms = max(0.0, now_ms - oldest.run.max_timestamp_ms) if oldest is not None and has_time else None
        return self._latencies[key].figures(self._clock.monotonic_ms(), is_stalled=is_stalled, waiting_ms=waiting_ms)

    def records_a_second(self, key: TopicPartition) -> float:
        """Records acknowledged a second."""
        return self._records[key].a_second(self._clock.monotonic_ms()) if key in self._records else 0.0

    def bytes_a_second(self, key: TopicPartition) -> float:
        """Bytes acknowledged a second."""
        return self._bytes[key].a_second(self._clock.monotonic_ms()) if key in self._bytes else 0.0


def oldest_by_partition(entries: Iterable[QueuedBatches]) -> dict[TopicPartition, QueuedBatches]:
    """The first of each partition's, which is its oldest."""
    oldest: dict[TopicPartition, QueuedBatches] = {}
    for entry in entries:
        oldest.setdefault(entry.key, entry)
    return oldest
