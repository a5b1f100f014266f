"""The mirror's metrics of times and of records in flight: only current values."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from kio.schema.errors import ErrorCode
from prometheus_client import CollectorRegistry

from mirror.admin.metrics import MirrorMetrics
from mirror.admin.status import MirrorStatus
from mirror.flow.core.flow_state import FlowState
from mirror.flow.core.lag import Progress
from mirror.flow.core.window import QueuedBatches
from mirror.flow.rolling import WINDOW_MS
from mirror.groups.metrics import CheckpointMetrics
from mirror.link.core.partitions import BatchRun
from mirror.link.core.topic_plan import NameAtTarget
from mirror.settings.config import load_config
from mirror.translate.metrics import TransactionMetrics
from runtime.configuration import ConfigurationError
from tests.support.clock import ManualClock
from tests.support.disks.log_batches import batch
from tests.support.eventually import eventually
from tests.support.memory.memory_mirror import mirroring, world_with
from wire.protocol.ids import TopicPartition

KEY = TopicPartition("t", 0)
MIRROR_MAKER = "kafka_connect_mirror_mirrorsourceconnector"
LATENCY = f"{MIRROR_MAKER}_replication_latency_ms"
PLACE = {"source": "a", "target": "b", "topic": "t", "partition": "0"}
WITHIN_MS = 20_000


class Scene:
    """The metrics of a mirror with one partition, by hand."""

    def __init__(self, name_at_target: NameAtTarget | None = None) -> None:
        self.clock = ManualClock()
        self.is_stalled = False
        self.has_partition = True
        self.on_the_way: list[QueuedBatches] = []
        self.registry = CollectorRegistry()
        link: Any = SimpleNamespace(name="a-b", epoch=1, source_site="a", site="b")
        queue = MagicMock(used_bytes=0, capacity_bytes=0, wait_on_put_ms=0.0, wait_on_take_ms=0.0, timeouts=0)
        row: Any = SimpleNamespace(
            facts=SimpleNamespace(
                state=FlowState.MIRRORING, skipped_records=0, may_lack_tombstones=False, progress=Progress()
            )
        )
        self._metrics = MirrorMetrics(
            self.registry,
            board=MagicMock(
                is_stalled=lambda key: self.is_stalled,
                our_rows=lambda: [(KEY, row)] if self.has_partition else [],
                lag=lambda key: SimpleNamespace(records=0, bytes=0, ms=0),
            ),
            queue=queue,
            ends=MagicMock(tallies={}, surplus_records=dict, name_at_target=name_at_target),
            clock=self.clock,
            status=lambda: MirrorStatus(link=link),
            unacknowledged=lambda: self.on_the_way,
        )

    def entry(self, *, age_ms: int, record_count: int = 1, size_bytes: int = 1) -> QueuedBatches:
        fetched_at_ms = self.clock.now_ms() - age_ms
        run = BatchRun(
            first_offset=0,
            next_offset=1,
            size_bytes=size_bytes,
            record_count=record_count,
            first_epoch=0,
            last_epoch=0,
            max_timestamp_ms=fetched_at_ms,
        )
        return QueuedBatches(
            key=KEY,
            generation=0,
            expected_log_end_offset=0,
            run=run,
            records=memoryview(b""),
            fetched_at_ms=fetched_at_ms,
            fetched_monotonic_ms=self.clock.monotonic_ms() - age_ms,
        )

    def acknowledge(self, *, latency_ms: int) -> None:
        self._metrics.observe(KEY, self.entry(age_ms=latency_ms))

    def acknowledge_many(self, *, record_count: int, size_bytes: int) -> None:
        self._metrics.observe(KEY, self.entry(age_ms=0, record_count=record_count, size_bytes=size_bytes))

    def rates(self) -> tuple[float | None, float | None]:
        """Records and bytes a second."""
        records, sizes = (
            self.registry.get_sample_value(f"{MIRROR_MAKER}_{name}_rate", PLACE) for name in ("record", "byte")
        )
        return records, sizes

    def figures(self, name: str = LATENCY, topic: str = KEY.topic) -> list[float]:
        """The figure's last value, minimum, maximum and mean."""
        place = {**PLACE, "topic": topic}
        found = [self.registry.get_sample_value(f"{name}{suffix}", place) for suffix in ("", "_min", "_max", "_avg")]
        return [math.nan if value is None else value for value in found]


def test_latencies_are_those_of_the_last_half_to_whole_minute() -> None:
    scene = Scene()
    for latency_ms in (10, 30):
        scene.acknowledge(latency_ms=latency_ms)
    assert scene.figures() == [30, 10, 30, 20]
    scene.clock.advance(WINDOW_MS + 1)
    scene.acknowledge(latency_ms=100)
    assert scene.figures() == [100, 10, 100, 140 / 3]
    scene.clock.advance(WINDOW_MS + 1)
    assert scene.figures() == [100, 100, 100, 100]


def test_nothing_is_kept_and_shown_of_a_partition_whose_topic_was_deleted() -> None:
    scene = Scene()
    scene.acknowledge(latency_ms=10)
    scene.has_partition = False
    assert scene.registry.get_sample_value(LATENCY, PLACE) is None
    scene.has_partition = True
    assert scene.rates() == (0, 0), "the topic has been created again"
    scene.acknowledge(latency_ms=30)
    assert scene.figures() == [30, 30, 30, 30]


def test_mirror_maker_s_families_name_the_copy_as_mirror_maker_does() -> None:
    scene = Scene("a.{}".format)
    scene.acknowledge(latency_ms=10)
    assert scene.figures(topic="a.t") == [10, 10, 10, 10]
    assert all(math.isnan(value) for value in scene.figures(topic="t"))


@pytest.mark.parametrize(
    ("formats", "expected"),
    [
        ("legacy", {"kafka_connect_mirror_mirrorcheckpointconnector_checkpoint_latency_ms": set()}),
        ("new", {"kafka_connect_plugins_checkpoint_latency_ms": {"connector", "task"}}),
        (
            "new, legacy",
            {
                "kafka_connect_mirror_mirrorcheckpointconnector_checkpoint_latency_ms": set(),
                "kafka_connect_plugins_checkpoint_latency_ms": {"connector", "task"},
            },
        ),
    ],
)
def test_mirror_maker_s_figures_have_the_names_that_are_asked_for(formats: str, expected: dict[str, set[str]]) -> None:
    config = load_config({"link.name": "a-b", "site.agents": "h:1", "metric.names.formats": formats})
    registry = CollectorRegistry()
    metrics = CheckpointMetrics(
        registry, source="a", target="b", clock=ManualClock(), names_formats=config.figure_names
    )
    metrics.observe("billing", KEY, asked_ms=0)
    of_group = {"source", "target", "group", "topic", "partition"}
    found = {one.name: set(one.labels) - of_group for family in registry.collect() for one in family.samples}
    assert {name: labels for name, labels in found.items() if name.endswith("_ms")} == expected


@pytest.mark.parametrize("formats", ["", "newest", "legacy;new"])
def test_another_format_of_names_is_refused(formats: str) -> None:
    with pytest.raises(ConfigurationError, match=r"metric\.names\.formats.*legacy, new or both"):
        load_config({"link.name": "a-b", "site.agents": "h:1", "metric.names.formats": formats})


def test_latencies_of_a_partition_of_which_nothing_came_for_a_minute_are_not_known() -> None:
    """MM-32."""
    scene = Scene()
    scene.acknowledge(latency_ms=10)
    scene.clock.advance(2 * WINDOW_MS + 1)
    assert all(math.isnan(value) for value in scene.figures())
    scene.acknowledge(latency_ms=70)
    assert scene.figures() == [70, 70, 70, 70]


@pytest.mark.parametrize("name", [LATENCY, f"{MIRROR_MAKER}_record_age_ms"])
def test_a_partition_that_stands_still_tells_at_once_no_more_how_fast_it_was(name: str) -> None:
    scene = Scene()
    scene.acknowledge(latency_ms=10)
    scene.is_stalled = True
    assert all(math.isnan(value) for value in scene.figures(name))
    scene.is_stalled = False
    assert not any(math.isnan(value) for value in scene.figures(name))


def test_records_that_the_target_does_not_take_count_with_their_present_age() -> None:
    scene = Scene()
    scene.acknowledge(latency_ms=10)
    scene.on_the_way = [scene.entry(age_ms=5), scene.entry(age_ms=2)]
    assert scene.figures() == [10, 10, 10, 10]
    scene.clock.advance(985)
    assert scene.figures() == [990, 10, 990, 500]
    scene.is_stalled = True
    assert scene.figures() == [990, 990, 990, 990]
    scene.clock.advance(2 * WINDOW_MS)
    assert scene.figures() == [60_990, 60_990, 60_990, 60_990]


def test_rates_are_those_of_kafka_s_two_samples_of_thirty_seconds() -> None:
    scene = Scene()
    assert scene.rates() == (0, 0)
    scene.acknowledge_many(record_count=300, size_bytes=6000)
    assert scene.rates() == (10, 200), "a whole window is counted with what has begun less than one ago"
    scene.clock.advance(WINDOW_MS)
    assert scene.rates() == (10, 200)
    scene.clock.advance(1)
    scene.acknowledge_many(record_count=300, size_bytes=6000)
    scene.clock.advance(WINDOW_MS - 2)
    assert scene.rates() == pytest.approx((10, 200), rel=0.001), "600 records in a minute"
    scene.clock.advance(1)
    assert scene.rates() == pytest.approx((5, 100), rel=0.001), "the first window is too old"
    scene.clock.advance(WINDOW_MS + 1)
    assert scene.rates() == (0, 0), "nothing came for a minute"


def test_rates_and_waits_are_right_after_a_clock_was_put_back() -> None:
    scene = Scene()
    scene.acknowledge_many(record_count=300, size_bytes=6000)
    scene.on_the_way = [scene.entry(age_ms=0)]
    before = scene.rates()
    scene.clock.set_now_ms(scene.clock.now_ms() - 3_600_000)
    assert scene.rates() == before
    scene.clock.advance(2 * WINDOW_MS + 1)
    assert scene.rates() == (0, 0), "nothing came for a minute"
    assert figure(scene.registry, "unacknowledged_seconds") == (2 * WINDOW_MS + 1) / 1000


def test_checkpoints_are_timed_by_group_and_copy_until_the_group_is_gone() -> None:
    clock, registry = ManualClock(), CollectorRegistry()
    metrics = CheckpointMetrics(registry, source="a", target="b", clock=clock)
    copy = TopicPartition("a.t", 0)
    name = "kafka_connect_mirror_mirrorcheckpointconnector_checkpoint_latency_ms"
    place = PLACE | {"topic": "a.t", "group": "readers"}
    for latency_ms in (40, 20):
        metrics.observe("readers", copy, asked_ms=clock.monotonic_ms() - latency_ms)
    found = [registry.get_sample_value(f"{name}{suffix}", place) for suffix in ("", "_min", "_max", "_avg")]
    assert found == [20, 20, 40, 30]
    clock.advance(2 * WINDOW_MS + 1)
    assert math.isnan(registry.get_sample_value(name, place) or 0), "nothing was written in the last minute"
    metrics.forget_all_but({"others"})
    assert registry.get_sample_value(name, place) is None


def figure(registry: CollectorRegistry, name: str) -> float:
    """One of the link's figures."""
    value = registry.get_sample_value(f"antipode_mirror_{name}", {"link": "a-b"})
    assert value is not None, name
    return value


async def test_records_that_the_target_does_not_acknowledge_are_counted_and_age_until_it_does() -> None:
    """MM-32."""
    world = world_with(partitions=2, batches=2)
    registry = CollectorRegistry()
    async with mirroring(world, registry=registry):
        await eventually(world.is_equal, WITHIN_MS)
        await eventually(lambda: figure(registry, "unacknowledged_records") == 0, WITHIN_MS)
        assert figure(registry, "unacknowledged_seconds") == 0
        world.before_append = lambda: ErrorCode.kafka_storage_error
        world.source.produce("orders", 0, 3)
        await eventually(lambda: figure(registry, "unacknowledged_records") == 9, WITHIN_MS)
        age_s = figure(registry, "unacknowledged_seconds")
        await eventually(lambda: figure(registry, "unacknowledged_seconds") > age_s, WITHIN_MS)
        place = PLACE | {"topic": "orders"}
        first_ms = registry.get_sample_value(LATENCY, place) or 0.0
        await eventually(lambda: (registry.get_sample_value(LATENCY, place) or 0.0) > first_ms > 0, WITHIN_MS)
        world.before_append = lambda: None
        await eventually(world.is_equal, WITHIN_MS)
        await eventually(lambda: figure(registry, "unacknowledged_records") == 0, WITHIN_MS)


async def test_producers_that_have_nothing_to_send_and_fetchers_without_room_count_their_time() -> None:
    """MM-32: producers wait while the source is silent, fetchers while the target is."""
    world = world_with(partitions=1, batches=0)
    registry = CollectorRegistry()
    async with mirroring(world, registry=registry, **{"queue.byte.size": str(1 << 20), "num.producers": "1"}):
        await eventually(lambda: figure(registry, "queue_take_wait_seconds_total") > 0, WITHIN_MS)
        before_s = figure(registry, "queue_take_wait_seconds_total")
        await eventually(lambda: figure(registry, "queue_take_wait_seconds_total") > before_s, WITHIN_MS)
        assert figure(registry, "queue_wait_seconds_total") == 0
        world.before_append = lambda: ErrorCode.kafka_storage_error
        log = world.source.logs[TopicPartition("orders", 0)]
        log.batches = [batch([b"v" * 500_000], base_offset=offset) for offset in range(6)]
        world.source.changed.set()
        # An answer of three batches fills the queue; the next one waits for room.
        await eventually(lambda: figure(registry, "queue_bytes") > 1_500_000, WITHIN_MS)
        assert figure(registry, "unacknowledged_records") == 3
        world.before_append = lambda: None
        await eventually(lambda: figure(registry, "queue_wait_seconds_total") > 0, WITHIN_MS)


def test_transactions_are_counted_as_they_end_and_the_open_one_is_looked_at() -> None:
    registry = CollectorRegistry()
    metrics = TransactionMetrics(registry, link="a-b")
    metrics.record_committed(open_ms=120, commit_ms=30)
    metrics.record_aborted(is_fenced=True)
    metrics.record_aborted(is_fenced=False)
    metrics.open_records, metrics.open_for_ms = lambda: 7, lambda: 250.0
    names = (
        "transactions_committed_total",
        "transactions_aborted_total",
        "transactions_fenced_total",
        "transaction_open_seconds_sum",
        "transaction_commit_seconds_sum",
        "open_transaction_records",
        "open_transaction_age_seconds",
    )
    found = [registry.get_sample_value(f"antipode_mirror_{name}", {"link": "a-b"}) for name in names]
    assert found == [1, 2, 1, 0.12, 0.03, 7, 0.25]


def test_the_time_of_a_round_over_groups_is_unknown_before_the_first_and_not_that_of_1970() -> None:
    value = Scene().registry.get_sample_value("antipode_mirror_groups_synced_timestamp_seconds", {"link": "a-b"})
    assert value is not None
    assert math.isnan(value)
