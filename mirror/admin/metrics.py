"""The mirror's metrics: our names, and MirrorMaker 2's names for existing dashboards.

Values come from the board and from the status of the last round; only times and rates are recorded
as they happen (`mirror/flow/pace.py`). A lag that cannot be known is NaN, never zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, UnknownMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from mirror.admin.status import MirrorStatus
from mirror.flow.board import FlowBoard
from mirror.flow.core.flow_state import FlowState
from mirror.flow.core.window import QueuedBatches
from mirror.flow.pace import Pace, oldest_by_partition
from mirror.flow.queue import ByteQueue
from mirror.flow.rolling import Figures, figure_families
from mirror.link.core.slots import SLOTS
from mirror.link.core.topic_plan import NameAtTarget
from mirror.settings.core.mirror_maker_keys import NamesFormat
from mirror.settings.metric_names import in_formats
from mirror.sharing.peer_watch import PeersStatus
from runtime.clock import Clock
from wire.protocol.ids import UNKNOWN, TopicPartition
from wire.protocol.streams.compressed_stream import CompressionTally

GROUPS_SHOWN = 100
TRANSIT_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1, 2.5, 10, 60)

_LEGACY_NAMES = (NamesFormat.LEGACY,)
_SOURCE_CONNECTOR = "kafka_connect_mirror_mirrorsourceconnector"
_OF_PARTITION = ("source", "target", "topic", "partition")


class FiguresOfEnds(Protocol):
    """The figures and names that the ends of a link have."""

    @property
    def tallies(self) -> Mapping[str, CompressionTally]:
        """The bytes that compressed connections save, by end."""
        ...

    @property
    def name_at_target(self) -> NameAtTarget | None:
        """The name of a topic's copy at a translate target; None on an exact link."""
        ...

    def surplus_records(self) -> Mapping[TopicPartition, int]:
        """Records at the target beyond one copy of each, by partition."""
        ...


class MirrorMetrics(Collector):
    """The metrics of one mirror; `observe` gets every acknowledged entry. Registers itself."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        board: FlowBoard,
        queue: ByteQueue,
        ends: FiguresOfEnds,
        clock: Clock,
        status: Callable[[], MirrorStatus],
        unacknowledged: Callable[[], Sequence[QueuedBatches]],
        names_formats: Collection[NamesFormat] = _LEGACY_NAMES,
    ) -> None:
        self._board = board
        self._queue = queue
        self._ends = ends
        self._clock = clock
        self._status = status
        self._unacknowledged = unacknowledged
        self._names_formats = names_formats
        self._pace = Pace(clock)
        self._transit = Histogram(
            "antipode_mirror_transit_seconds",
            "Time from the arrival of batches at the mirror to the target's acknowledgement.",
            ["link"],
            buckets=TRANSIT_BUCKETS_S,
            registry=registry,
        )
        registry.register(self)

    def observe(self, key: TopicPartition, entry: QueuedBatches) -> None:
        """Batches were acknowledged."""
        took_ms = self._clock.monotonic_ms() - entry.fetched_monotonic_ms
        self._transit.labels(self._status().link.name).observe(took_ms / 1000)
        self._pace.observe(key, entry)

    def collect(self) -> Iterable[Metric]:
        """Yield all metric families; the thread of the metrics server calls this."""
        unacknowledged = self._unacknowledged()
        yield from self._queue_families(unacknowledged)
        yield from self._waiting_families()
        yield from self._compression_families()
        peers = self._status().peers
        if peers is not None:
            share = GaugeMetricFamily(
                "antipode_mirror_owned_slots",
                f"Of the {SLOTS} parts of a link that several daemons share, how many this one has; all daemons together have {SLOTS}.",
                labels=["link"],
            )
            share.add_metric([self._status().link.name], peers.owned_slots)
            yield share
            yield from self._peer_families(peers)
        yield from self._partition_families()
        yield from self._stall_families()
        yield from in_formats(self._mirror_maker_families(oldest_by_partition(unacknowledged)), self._names_formats)

    def describe(self) -> Iterable[Metric]:
        """Describes nothing in advance: the names do not clash with those of the process
        collectors.
        """
        return ()

    def _peer_families(self, peers: PeersStatus) -> Iterable[Metric]:
        for name, text, value in (
            (
                "disagreements",
                "Settings that must be the same in all daemons of the link, but differ between this daemon and another.",
                len(peers.disagreements),
            ),
            (
                "untaken_partitions",
                "Partitions that no daemon mirrors: this daemon's filters include them, those of the assigned daemon do not.",
                len(peers.untaken),
            ),
            ("failing_daemons", "Other daemons of the link that cannot carry groups' offsets.", len(peers.failing)),
        ):
            gauge = GaugeMetricFamily(f"antipode_mirror_{name}", text, labels=["link"])
            gauge.add_metric([self._status().link.name], value)
            yield gauge

    def _queue_families(self, unacknowledged: Sequence[QueuedBatches]) -> Iterable[Metric]:
        status = self._status()
        link = status.link
        now_ms = self._clock.monotonic_ms()
        first_ms = min((entry.fetched_monotonic_ms for entry in unacknowledged), default=now_ms)
        plain = (
            ("antipode_mirror_queue_bytes", "Bytes between fetch and acknowledgement.", self._queue.used_bytes),
            ("antipode_mirror_queue_capacity_bytes", "Capacity of the queue.", self._queue.capacity_bytes),
            (
                "antipode_mirror_unacknowledged_records",
                "Records that were fetched and that the target has not acknowledged yet.",
                sum(entry.run.record_count for entry in unacknowledged),
            ),
            (
                "antipode_mirror_unacknowledged_seconds",
                "Time that the oldest of these records has spent in the mirror; 0 when there are none.",
                max(0.0, now_ms - first_ms) / 1000,
            ),
            ("antipode_mirror_link_epoch", "Epoch of the link as last read.", link.epoch),
            (
                "antipode_mirror_groups_synced_timestamp_seconds",
                "When group offsets were last mirrored; NaN before the first time.",
                _known(status.groups_synced_at_ms) / 1000,
            ),
            (
                "antipode_mirror_retention_risk_partitions",
                "Partitions that are behind by half of their topic's retention.ms or more: records may expire before they are mirrored.",
                len(status.retention_risks),
            ),
            (
                "antipode_mirror_falling_behind_partitions",
                "Partitions whose lag has grown over the last ten looks, and shrunk at none, although they advance.",
                len(status.falling_behind),
            ),
            (
                "antipode_mirror_groups_failing",
                "Groups whose offsets cannot be mirrored, and brokers that do not report theirs.",
                len(status.groups_stale_since_ms),
            ),
        )
        for name, text, value in plain:
            gauge = GaugeMetricFamily(name, text, labels=["link"])
            gauge.add_metric([link.name], value)
            yield gauge

    def _waiting_families(self) -> Iterable[Metric]:
        status = self._status()
        link = status.link
        for name, text, value in (
            ("queue_wait_seconds", "Time that fetchers waited for room.", self._queue.wait_on_put_ms / 1000),
            (
                "queue_take_wait_seconds",
                "Time during which producers had nothing to send, summed over all producers.",
                self._queue.wait_on_take_ms / 1000,
            ),
            (
                "throttle_wait_seconds",
                "Time that fetchers waited for the byte rate.",
                status.throttle_waited_ms / 1000,
            ),
            (
                "enqueue_timeouts",
                "Batches that found no room in time; they are fetched again.",
                self._queue.timeouts,
            ),
        ):
            counter = CounterMetricFamily(f"antipode_mirror_{name}", text, labels=["link"])
            counter.add_metric([link.name], value)
            yield counter
        restarts = CounterMetricFamily(
            "antipode_mirror_worker_restarts", "Workers that died and were started again.", labels=["link", "worker"]
        )
        for worker, count in sorted(status.restarts.items()):
            restarts.add_metric([link.name, worker], count)
        yield restarts
        stale = GaugeMetricFamily(
            "antipode_mirror_group_staleness_seconds",
            "Time for which the offsets of a group that cannot be mirrored may be older than the source's; at most 100 groups.",
            labels=["link", "group"],
        )
        for group, since_ms in sorted(status.groups_stale_since_ms.items())[:GROUPS_SHOWN]:
            stale.add_metric([link.name, group], max(0, self._clock.now_ms() - since_ms) / 1000)
        yield stale
        refused = GaugeMetricFamily(
            "antipode_mirror_refused_changes",
            "1 for a topic that the target's controller refuses to create, to extend by partitions or to configure.",
            labels=["link", "topic"],
        )
        for topic in sorted({refusal.topic for refusal in status.refusals}):
            refused.add_metric([link.name, topic], 1)
        yield refused

    def _compression_families(self) -> Iterable[Metric]:
        labels = ["link", "end"]
        families = (
            ("plain_bytes", "Bytes of compressed connections before compression, both ways."),
            ("wire_bytes", "Bytes that compressed connections sent over the network, both ways."),
            ("refusals", "Connections that are not compressed as configured, because the broker does not offer it."),
        )
        for name, text in families:
            counter = CounterMetricFamily(f"antipode_mirror_compression_{name}", text, labels=labels)
            for end, tally in sorted(self._ends.tallies.items()):
                counter.add_metric([self._status().link.name, end], getattr(tally, name))
            yield counter

    def _partition_families(self) -> Iterable[Metric]:
        labels = ["link", "topic", "partition"]
        link = self._status().link.name
        lag_records = GaugeMetricFamily("antipode_mirror_lag_records", "Records behind; NaN unknown.", labels=labels)
        lag_bytes = GaugeMetricFamily("antipode_mirror_lag_bytes", "Bytes behind, estimated.", labels=labels)
        lag_seconds = GaugeMetricFamily("antipode_mirror_lag_seconds", "Seconds behind.", labels=labels)
        state = GaugeMetricFamily("antipode_mirror_state", "1 for the partition's state.", labels=[*labels, "state"])
        mirrored_bytes = CounterMetricFamily(
            "antipode_mirror_bytes", "Bytes of mirrored batches that the target has acknowledged.", labels=labels
        )
        mirrored_records = CounterMetricFamily("antipode_mirror_records", "Records acknowledged.", labels=labels)
        skipped_bytes = CounterMetricFamily(
            "antipode_mirror_left_out_bytes",
            "Bytes of batches that a translate link does not mirror: aborted ones, markers, and records that came from its target.",
            labels=labels,
        )
        skipped_records = CounterMetricFamily(
            "antipode_mirror_left_out_records", "Records in these batches, including markers.", labels=labels
        )
        skipped = CounterMetricFamily(
            "antipode_mirror_skipped_records", "Offsets that expired at the source and were skipped.", labels=labels
        )
        doubtful = GaugeMetricFamily(
            "antipode_mirror_missing_tombstones",
            "1 where keys deleted at the source may remain at the target: it was behind for longer than tombstones are kept.",
            labels=labels,
        )
        end_offset = GaugeMetricFamily("antipode_mirror_target_log_end_offset", "End at the target.", labels=labels)
        watermark = GaugeMetricFamily("antipode_mirror_source_high_watermark", "End at the source.", labels=labels)
        for key, row in self._board.our_rows():
            place = [link, key.topic, str(key.partition)]
            facts, lag = row.facts, self._board.lag(key)
            lag_records.add_metric(place, _known(lag.records))
            lag_bytes.add_metric(place, _known(lag.bytes))
            lag_seconds.add_metric(place, _known(lag.ms) / 1000)
            for known in FlowState:
                state.add_metric([*place, known.value], int(facts.state is known))
            mirrored_bytes.add_metric(place, facts.progress.mirrored_bytes)
            mirrored_records.add_metric(place, facts.progress.mirrored_records)
            skipped_bytes.add_metric(place, facts.progress.skipped_bytes)
            skipped_records.add_metric(place, facts.progress.skipped_records)
            skipped.add_metric(place, facts.skipped_records)
            doubtful.add_metric(place, int(facts.may_lack_tombstones))
            end_offset.add_metric(place, _known(facts.progress.target_log_end_offset))
            watermark.add_metric(place, _known(facts.progress.source_high_watermark))
        yield from (lag_records, lag_bytes, lag_seconds, state, mirrored_bytes, mirrored_records, skipped)
        yield from (end_offset, watermark, doubtful, skipped_bytes, skipped_records)
        surplus = CounterMetricFamily(
            "antipode_mirror_surplus_records",
            "Records at a translate link's target beyond one copy of each: repetitions, and records of other "
            "writers in between. For a link that writes in transactions, at most the records of aborted ones, "
            "which read-committed readers do not see.",
            labels=labels,
        )
        for key, records in sorted(self._ends.surplus_records().items()):
            surplus.add_metric([link, key.topic, str(key.partition)], records)
        yield surplus

    def _stall_families(self) -> Iterable[Metric]:
        status = self._status()
        link, stalled_for_ms = status.link.name, status.stalled_for_ms
        stalled = GaugeMetricFamily(
            "antipode_mirror_stalled_seconds",
            "Time for which a partition has made no progress although the source has more records or does not answer; 0 without a stall.",
            labels=["link", "topic", "partition"],
        )
        for key, _ in self._board.our_rows():
            stalled.add_metric([link, key.topic, str(key.partition)], stalled_for_ms.get(key, 0) / 1000)
        yield stalled
        remedies = CounterMetricFamily(
            "antipode_mirror_stall_remedies",
            "Actions on stalled partitions: their flow was restarted, or their workers were replaced.",
            labels=["link", "remedy"],
        )
        for remedy, count in sorted(status.stall_remedies.items()):
            remedies.add_metric([link, remedy], count)
        yield remedies

    def _mirror_maker_families(self, oldest: Mapping[TopicPartition, QueuedBatches]) -> Iterable[Metric]:
        link = self._status().link
        # As in MirrorMaker, its metric families name the copy and not the source topic.
        name_at_target = self._ends.name_at_target or (lambda topic: topic)
        # MirrorMaker's own names: its counters end in `_count`, and its users' dashboards do not
        # query `_count_total`.
        records = UnknownMetricFamily(f"{_SOURCE_CONNECTOR}_record_count", "Records mirrored.", labels=_OF_PARTITION)
        sizes = UnknownMetricFamily(
            f"{_SOURCE_CONNECTOR}_byte_count",
            "Compressed bytes mirrored.",
            labels=_OF_PARTITION,
        )
        record_rate = GaugeMetricFamily(
            f"{_SOURCE_CONNECTOR}_record_rate",
            "Records mirrored each second, over the last 30 to 60 s.",
            labels=_OF_PARTITION,
        )
        byte_rate = GaugeMetricFamily(
            f"{_SOURCE_CONNECTOR}_byte_rate",
            "Bytes mirrored each second, in the compressed size of the batches, over the last 30 to 60 s.",
            labels=_OF_PARTITION,
        )
        ours = dict(self._board.our_rows())
        # Those of deleted topics and of other daemons' partitions would be shown, and kept, for
        # ever.
        self._pace.keep(ours.keys())
        for key, row in ours.items():
            place = [link.source_site, link.site, name_at_target(key.topic), str(key.partition)]
            records.add_metric(place, row.facts.progress.mirrored_records)
            sizes.add_metric(place, row.facts.progress.mirrored_bytes)
            record_rate.add_metric(place, self._pace.records_a_second(key))
            byte_rate.add_metric(place, self._pace.bytes_a_second(key))
        yield from (records, sizes, record_rate, byte_rate)
        ages: dict[tuple[str, ...], Figures] = {}
        latencies: dict[tuple[str, ...], Figures] = {}
        for key in self._pace.partitions():
            is_stalled = self._board.is_stalled(key)
            copy = (link.source_site, link.site, name_at_target(key.topic), str(key.partition))
            ages[copy] = self._pace.ages(key, is_stalled=is_stalled)
            latencies[copy] = self._pace.latencies(key, is_stalled=is_stalled, oldest=oldest.get(key))
        name = f"{_SOURCE_CONNECTOR}_record_age_ms"
        yield from figure_families(name, "Age of records when they reach the mirror.", _OF_PARTITION, ages)
        name = f"{_SOURCE_CONNECTOR}_replication_latency_ms"
        yield from figure_families(
            name, "Age of records when the target has acknowledged them.", _OF_PARTITION, latencies
        )


def _known(value: int) -> float:
    return math.nan if value == UNKNOWN else value
