"""What a scrape of the mirror says of times: only what is of now."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from prometheus_client import CollectorRegistry

from mirror.core.partitions import BatchRun, PartitionKey
from mirror.core.window import QueuedBatches
from mirror.metrics import WINDOW_MS, MirrorMetrics
from tests.support.clock import ManualClock

KEY = PartitionKey("t", 0)
LATENCY = "kafka_connect_mirror_mirrorsourceconnector_replication_latency_ms"
PLACE = {"source": "a", "target": "b", "topic": "t", "partition": "0"}


class Scene:
    """The metrics of a mirror with one partition, by hand."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self._registry = CollectorRegistry()
        link: Any = SimpleNamespace(name="a-b", epoch=1, source_site="a", site="b")
        self._metrics = MirrorMetrics(
            self._registry,
            board=MagicMock(),
            queue=MagicMock(used_bytes=0, capacity_bytes=0, wait_on_put_ms=0.0, timeouts=0),
            link=lambda: link,
            clock=self.clock,
            restarts=dict,
            groups_synced_at_ms=lambda: 0,
            throttle_waited_ms=lambda: 0.0,
            tallies={},
            surplus_records=dict,
            refusals=dict,
            groups_stale_since_ms=dict,
        )

    def acknowledge(self, *, latency_ms: int) -> None:
        now_ms = self.clock.now_ms()
        run = BatchRun(
            first_offset=0,
            next_offset=1,
            size_bytes=1,
            record_count=1,
            first_epoch=0,
            last_epoch=0,
            max_timestamp_ms=now_ms - latency_ms,
        )
        entry = QueuedBatches(
            key=KEY,
            generation=0,
            expected_log_end_offset=0,
            run=run,
            records=memoryview(b""),
            fetched_at_ms=now_ms - latency_ms,
        )
        self._metrics.observe(KEY, entry)

    def latencies(self) -> list[float]:
        """The last one, minimum, maximum, mean."""
        found = [
            self._registry.get_sample_value(f"{LATENCY}{suffix}", PLACE) for suffix in ("", "_min", "_max", "_avg")
        ]
        return [math.nan if value is None else value for value in found]


def test_latencies_are_those_of_the_last_half_to_whole_minute() -> None:
    scene = Scene()
    for latency_ms in (10, 30):
        scene.acknowledge(latency_ms=latency_ms)
    assert scene.latencies() == [30, 10, 30, 20]
    scene.clock.advance(WINDOW_MS + 1)
    scene.acknowledge(latency_ms=100)
    assert scene.latencies() == [100, 10, 100, 140 / 3]
    scene.clock.advance(WINDOW_MS + 1)
    assert scene.latencies() == [100, 100, 100, 100]


def test_latencies_of_a_partition_that_is_stalled_are_not_known() -> None:
    """MM-32."""
    scene = Scene()
    scene.acknowledge(latency_ms=10)
    scene.clock.advance(2 * WINDOW_MS + 1)
    assert all(math.isnan(value) for value in scene.latencies())
    scene.acknowledge(latency_ms=70)
    assert scene.latencies() == [70, 70, 70, 70]
