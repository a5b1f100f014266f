"""What a scrape of the mirror shows: our names, and MirrorMaker 2's for the dashboards that people have.

Values are read from the board when they are asked for; only times are recorded as they happen. Latencies are kept over the
last half to whole minute, as MirrorMaker's are, and are NaN when nothing has been acknowledged for so long. A lag that cannot be
known is NaN, never zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from mirror.board import FlowBoard
from mirror.core.flow_state import FlowState
from mirror.core.lag import UNKNOWN
from mirror.core.partitions import PartitionKey
from mirror.core.plan import Trouble
from mirror.core.window import QueuedBatches
from mirror.link_watch import LinkStanding
from mirror.queue import ByteQueue
from runtime.clock import Clock
from wire.compressed_stream import CompressionTally

WINDOW_MS = 30_000
GROUPS_SHOWN = 100
TRANSIT_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1, 2.5, 10, 60)

_MIRROR_MAKER = "kafka_connect_mirror_mirrorsourceconnector"


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

    def figures(self, now_ms: float) -> tuple[float, float, float, float]:
        """The last one, minimum, maximum and mean; NaN when what was seen last is too old to say anything of now."""
        age_ms = now_ms - self._began_ms
        sample = self._now.merged(self._before) if age_ms <= WINDOW_MS else self._now
        if not sample.count or age_ms > 2 * WINDOW_MS:
            return math.nan, math.nan, math.nan, math.nan
        return self._last, sample.minimum, sample.maximum, sample.total / sample.count


class MirrorMetrics(Collector):
    """Registers itself; `observe` is called for every acknowledged entry."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        board: FlowBoard,
        queue: ByteQueue,
        link: Callable[[], LinkStanding],
        clock: Clock,
        restarts: Callable[[], dict[str, int]],
        groups_synced_at_ms: Callable[[], int],
        throttle_waited_ms: Callable[[], float],
        tallies: Mapping[str, CompressionTally],
        surplus_records: Callable[[], Mapping[PartitionKey, int]],
        refusals: Callable[[], Mapping[str, Trouble]],
        groups_stale_since_ms: Callable[[], Mapping[str, int]],
    ) -> None:
        self._groups_stale_since_ms = groups_stale_since_ms
        self._refusals = refusals
        self._tallies = tallies
        self._surplus_records = surplus_records
        self._throttle_waited_ms = throttle_waited_ms
        self._board = board
        self._queue = queue
        self._link = link
        self._clock = clock
        self._restarts = restarts
        self._groups_synced_at_ms = groups_synced_at_ms
        self._ages: dict[PartitionKey, _Rolling] = {}
        self._latencies: dict[PartitionKey, _Rolling] = {}
        self._transit = Histogram(
            "antipode_mirror_transit_seconds",
            "Time from the arrival of batches at the mirror to the target's acknowledgement.",
            buckets=TRANSIT_BUCKETS_S,
            registry=registry,
        )
        registry.register(self)

    def observe(self, key: PartitionKey, entry: QueuedBatches) -> None:
        """Batches were acknowledged."""
        now_ms = self._clock.now_ms()
        self._transit.observe(max(0, now_ms - entry.fetched_at_ms) / 1000)
        timestamp_ms = entry.run.max_timestamp_ms
        if timestamp_ms < 0:
            return
        if key not in self._ages:
            self._ages[key], self._latencies[key] = _Rolling(), _Rolling()
        self._ages[key].add(max(0, entry.fetched_at_ms - timestamp_ms), now_ms)
        self._latencies[key].add(max(0, now_ms - timestamp_ms), now_ms)

    def collect(self) -> Iterable[Metric]:
        """All families; called from the thread of the metrics server."""
        yield from self._queue_families()
        yield from self._compression_families()
        yield from self._partition_families()
        yield from self._mirror_maker_families()

    def describe(self) -> Iterable[Metric]:
        """Nothing in advance: names do not clash with those of the process collectors."""
        return ()

    def _queue_families(self) -> Iterable[Metric]:
        link = self._link()
        plain = (
            ("antipode_mirror_queue_bytes", "Bytes between fetch and acknowledgement.", self._queue.used_bytes),
            ("antipode_mirror_queue_capacity_bytes", "Bound of the queue.", self._queue.capacity_bytes),
            ("antipode_mirror_link_epoch", "Epoch of the link as last read.", link.epoch),
            (
                "antipode_mirror_groups_synced_timestamp_seconds",
                "When group offsets were last carried.",
                self._groups_synced_at_ms() / 1000,
            ),
            (
                "antipode_mirror_groups_failing",
                "Groups whose offsets cannot be carried, and brokers that do not tell theirs.",
                len(self._groups_stale_since_ms()),
            ),
        )
        for name, text, value in plain:
            gauge = GaugeMetricFamily(name, text, labels=["link"])
            gauge.add_metric([link.name], value)
            yield gauge
        waited = CounterMetricFamily(
            "antipode_mirror_queue_wait_seconds", "Time that fetchers waited for room.", labels=["link"]
        )
        waited.add_metric([link.name], self._queue.wait_on_put_ms / 1000)
        yield waited
        throttled = CounterMetricFamily(
            "antipode_mirror_throttle_wait_seconds", "Time that fetchers waited for the byte rate.", labels=["link"]
        )
        throttled.add_metric([link.name], self._throttle_waited_ms() / 1000)
        yield throttled
        timeouts = CounterMetricFamily(
            "antipode_mirror_enqueue_timeouts", "Batches that found no room in time, fetched again.", labels=["link"]
        )
        timeouts.add_metric([link.name], self._queue.timeouts)
        yield timeouts
        restarts = CounterMetricFamily(
            "antipode_mirror_worker_restarts", "Workers that died and were started again.", labels=["link", "worker"]
        )
        for worker, count in sorted(self._restarts().items()):
            restarts.add_metric([link.name, worker], count)
        yield restarts
        stale = GaugeMetricFamily(
            "antipode_mirror_group_staleness_seconds",
            "For how long the offsets of a group that cannot be carried may be older than the source's; at most 100 groups.",
            labels=["link", "group"],
        )
        for group, since_ms in sorted(self._groups_stale_since_ms().items())[:GROUPS_SHOWN]:
            stale.add_metric([link.name, group], max(0, self._clock.now_ms() - since_ms) / 1000)
        yield stale
        refused = GaugeMetricFamily(
            "antipode_mirror_refused_changes",
            "1 for a topic that the target's controller refuses to make, to grow or to configure.",
            labels=["link", "topic"],
        )
        for topic in sorted(self._refusals()):
            refused.add_metric([link.name, topic], 1)
        yield refused

    def _compression_families(self) -> Iterable[Metric]:
        labels = ["link", "end"]
        families = (
            ("plain_bytes", "Bytes of compressed connections before compression, both ways."),
            ("wire_bytes", "Bytes that compressed connections put on the line, both ways."),
            ("refusals", "Connections without the compression that was wished, because the broker does not offer it."),
        )
        for name, text in families:
            counter = CounterMetricFamily(f"antipode_mirror_compression_{name}", text, labels=labels)
            for end, tally in sorted(self._tallies.items()):
                counter.add_metric([self._link().name, end], getattr(tally, name))
            yield counter

    def _partition_families(self) -> Iterable[Metric]:
        labels = ["link", "topic", "partition"]
        link = self._link().name
        lag_records = GaugeMetricFamily("antipode_mirror_lag_records", "Records behind; NaN unknown.", labels=labels)
        lag_bytes = GaugeMetricFamily("antipode_mirror_lag_bytes", "Bytes behind, estimated.", labels=labels)
        lag_seconds = GaugeMetricFamily("antipode_mirror_lag_seconds", "Seconds behind.", labels=labels)
        state = GaugeMetricFamily("antipode_mirror_state", "1 for the partition's state.", labels=[*labels, "state"])
        mirrored_bytes = CounterMetricFamily("antipode_mirror_bytes", "Bytes acknowledged.", labels=labels)
        mirrored_records = CounterMetricFamily("antipode_mirror_records", "Records acknowledged.", labels=labels)
        skipped = CounterMetricFamily(
            "antipode_mirror_skipped_records", "Offsets that expired at the source and were skipped.", labels=labels
        )
        doubtful = GaugeMetricFamily(
            "antipode_mirror_missing_tombstones",
            "1 where keys deleted at the source may live on at the target: it was behind for longer than tombstones are kept.",
            labels=labels,
        )
        end_offset = GaugeMetricFamily("antipode_mirror_target_log_end_offset", "End at the target.", labels=labels)
        watermark = GaugeMetricFamily("antipode_mirror_source_high_watermark", "End at the source.", labels=labels)
        for key, row in self._board.our_rows():
            place = [link, key.topic, str(key.partition)]
            facts, lag = row.facts, self._board.lag(key)
            lag_records.add_metric(place, _known(lag.records))
            lag_bytes.add_metric(place, _known(lag.bytes))
            lag_seconds.add_metric(place, lag.ms / 1000)
            for known in FlowState:
                state.add_metric([*place, known.value], int(facts.state is known))
            mirrored_bytes.add_metric(place, facts.progress.mirrored_bytes)
            mirrored_records.add_metric(place, facts.progress.mirrored_records)
            skipped.add_metric(place, facts.skipped_records)
            doubtful.add_metric(place, int(facts.may_lack_tombstones))
            end_offset.add_metric(place, _known(facts.progress.target_log_end_offset))
            watermark.add_metric(place, _known(facts.progress.source_high_watermark))
        yield from (lag_records, lag_bytes, lag_seconds, state, mirrored_bytes, mirrored_records, skipped)
        yield from (end_offset, watermark, doubtful)
        surplus = CounterMetricFamily(
            "antipode_mirror_surplus_records",
            "Records at a translate link's target beyond one copy of each: repetitions and what others wrote between; of a link that "
            "writes in transactions at most those of broken-off ones, which read-committed readers do not see.",
            labels=labels,
        )
        for key, records in sorted(self._surplus_records().items()):
            surplus.add_metric([link, key.topic, str(key.partition)], records)
        yield surplus

    def _mirror_maker_families(self) -> Iterable[Metric]:
        link = self._link()
        labels = ["source", "target", "topic", "partition"]
        records = CounterMetricFamily(f"{_MIRROR_MAKER}_record_count", "Records mirrored.", labels=labels)
        sizes = CounterMetricFamily(f"{_MIRROR_MAKER}_byte_count", "Bytes mirrored.", labels=labels)
        for key, row in self._board.our_rows():
            place = [link.source_site, link.site, key.topic, str(key.partition)]
            records.add_metric(place, row.facts.progress.mirrored_records)
            sizes.add_metric(place, row.facts.progress.mirrored_bytes)
        yield records
        yield sizes
        for name, text, rollings in (
            ("record_age_ms", "Age of records when they reach the mirror.", self._ages),
            ("replication_latency_ms", "Age of records when the target has them.", self._latencies),
        ):
            family = f"{_MIRROR_MAKER}_{name}"
            yield from _rolling_families(family, text, labels, link, dict(rollings), now_ms=self._clock.now_ms())


def _rolling_families(
    name: str,
    text: str,
    labels: list[str],
    link: LinkStanding,
    rollings: dict[PartitionKey, _Rolling],
    *,
    now_ms: float,
) -> Iterable[Metric]:
    families = {suffix: GaugeMetricFamily(f"{name}{suffix}", text, labels=labels) for suffix in _SUFFIXES}
    for key, rolling in rollings.items():
        place = [link.source_site, link.site, key.topic, str(key.partition)]
        for suffix, value in zip(_SUFFIXES, rolling.figures(now_ms), strict=True):
            families[suffix].add_metric(place, value)
    return families.values()


_SUFFIXES = ("", "_min", "_max", "_avg")


def _known(value: int) -> float:
    return math.nan if value == UNKNOWN else value
