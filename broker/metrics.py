"""The broker's figures: plain counters that the hot path adds to, turned into Prometheus samples at
each scrape.

Names follow what the ecosystem knows from Kafka's exporters. A scrape runs in the metrics server's
thread and only reads numbers; sizes that must be computed (logs, purgatories) are read through
callbacks given by `main.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from kio.schema.errors import ErrorCode
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from broker.latencies import ApiMetrics, Latencies
from broker.log.core.batch_checks import BatchRejected


@dataclass(slots=True)
class TopicMetrics:
    """Traffic of one topic. Consumers, mirrors and followers are counted separately, as are
    producers, mirrors and leaders.
    """

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    mirrored_bytes_out: int = 0
    replicated_bytes_out: int = 0
    mirrored_bytes_in: int = 0
    mirrored_messages_in: int = 0
    replicated_bytes_in: int = 0
    produce_count: int = 0
    fetch_count: int = 0
    failed_produce: int = 0
    failed_fetch: int = 0
    bytes_rejected: int = 0

    def count_sent(self, size_bytes: int, *, is_to_follower: bool, is_to_mirror: bool) -> None:
        """Records went to a reader."""
        if is_to_follower:
            self.replicated_bytes_out += size_bytes
        elif is_to_mirror:
            self.mirrored_bytes_out += size_bytes
        else:
            self.bytes_out += size_bytes

    def count_refused(self, error: Exception, size_bytes: int) -> None:
        """A producer's records were not appended."""
        self.failed_produce += 1
        if isinstance(error, BatchRejected) and error.code is ErrorCode.message_too_large:
            self.bytes_rejected += size_bytes

    def add(self, other: TopicMetrics) -> None:
        """Count what another topic has had."""
        for _, _, attribute in _TOPIC_COUNTERS:
            setattr(self, attribute, getattr(self, attribute) + getattr(other, attribute))


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A figure that is computed when it is read."""

    name: str
    help: str
    read: Callable[[], float]


@dataclass(slots=True, eq=False)
class BrokerMetrics(Collector):
    """All figures of one broker; register it in the process's registry."""

    apis: dict[str, ApiMetrics] = field(default_factory=dict)
    topics: dict[str, TopicMetrics] = field(default_factory=dict)
    version: str = "unknown"
    log_flush: Latencies = field(default_factory=Latencies)
    gauges: list[Figure] = field(default_factory=list)
    counters: list[Figure] = field(default_factory=list)
    log_sizes: Callable[[], dict[tuple[str, int], tuple[int, int, int]]] | None = None
    follower_lags: Callable[[], dict[tuple[str, int], int]] | None = None
    families: list[Callable[[], Iterator[Metric]]] = field(default_factory=list)
    """Figures with labels, read at every scrape."""
    _forgotten: TopicMetrics = field(default_factory=TopicMetrics)
    """Traffic of topics that are deleted."""

    def api(self, name: str) -> ApiMetrics:
        """The figures of one API."""
        found = self.apis.get(name)
        if found is None:
            found = self.apis[name] = ApiMetrics(name)
        return found

    def topic(self, name: str) -> TopicMetrics:
        """The figures of one topic."""
        found = self.topics.get(name)
        if found is None:
            found = self.topics[name] = TopicMetrics()
        return found

    def forget_topic(self, name: str) -> None:
        """The topic is deleted; the broker's totals keep its traffic."""
        gone = self.topics.pop(name, None)
        if gone is not None:
            self._forgotten.add(gone)

    def add_gauge(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        """Show `read()` under the name at every scrape."""
        self.gauges.append(Figure(name=name, help=help_text, read=read))

    def add_counter(self, name: str, help_text: str, read: Callable[[], float]) -> None:
        """Show `read()`, which only grows, under the name and `_total` at every scrape."""
        self.counters.append(Figure(name=name, help=help_text, read=read))

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Describes nothing before the first scrape, so that registration does not collect."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """All samples."""
        yield InfoMetricFamily("kafka_server_app", "Version of the running broker", value={"version": self.version})
        yield from self._collect_apis()
        yield from self._collect_topics()
        flushes = HistogramMetricFamily(
            "kafka_log_logflushstats_logflushrateandtimems", "Time to force a log to disk (ms)"
        )
        flushes.add_metric([], self.log_flush.cumulative_buckets(), sum_value=self.log_flush.sum_ms)
        yield flushes
        for gauge in self.gauges:
            yield GaugeMetricFamily(gauge.name, gauge.help, value=gauge.read())
        for counter in self.counters:
            yield CounterMetricFamily(counter.name, counter.help, value=counter.read())
        if self.log_sizes is not None:
            yield from _collect_logs(self.log_sizes())
        if self.follower_lags is not None:
            yield _collect_lags(self.follower_lags())
        for families in self.families:
            yield from families()

    def _collect_apis(self) -> Iterator[Metric]:
        total_ms = HistogramMetricFamily(
            "kafka_network_requestmetrics_totaltimems",
            "Time from request to the last byte of its answer (ms)",
            labels=["request"],
        )
        requests = CounterMetricFamily("kafka_network_requestmetrics_requests", "Requests", labels=["request"])
        errors = CounterMetricFamily(
            "kafka_network_requestmetrics_errors",
            "Errors in answers to clients: one for each partition, topic or group with an error",
            labels=["request", "error"],
        )
        phases = {
            attribute: HistogramMetricFamily(
                f"kafka_network_requestmetrics_{attribute.replace('_', '')}timems", help_text, labels=["request"]
            )
            for attribute, help_text in _PHASES
        }
        for metrics in tuple(self.apis.values()):
            for code, count in tuple(metrics.errors.items()):
                errors.add_metric([metrics.name, ErrorCode(code).name.upper()], count)
            buckets = metrics.cumulative_buckets()
            answered_count = buckets[-1][1]
            if not answered_count and not metrics.unanswered_count:
                continue
            for attribute, family in phases.items():
                phase: Latencies = getattr(metrics, attribute)
                family.add_metric([metrics.name], phase.cumulative_buckets(int(answered_count)), sum_value=phase.sum_ms)
            total_ms.add_metric([metrics.name], buckets, sum_value=metrics.sum_ms)
            requests.add_metric([metrics.name], answered_count + metrics.unanswered_count)
        yield from (total_ms, *phases.values(), requests, errors)

    def _collect_topics(self) -> Iterator[CounterMetricFamily]:
        """Yield the counts of each topic and, without the label, of all together, as Kafka's beans
        do.
        """
        total = TopicMetrics()
        for part in (self._forgotten, *tuple(self.topics.values())):
            total.add(part)
        for name, help_text, attribute in _TOPIC_COUNTERS:
            family = CounterMetricFamily(f"kafka_server_brokertopicmetrics_{name}", help_text, labels=["topic"])
            family.add_metric([], getattr(total, attribute))
            for topic, metrics in tuple(self.topics.items()):
                family.add_metric([topic], getattr(metrics, attribute))
            yield family


_PHASES: Final = (
    ("request_queue", "Time that a request waited for its handler (ms)"),
    ("local", "Time that a request's handler ran (ms)"),
    ("remote", "Time that a request waited for records, replicas, the disk or another broker (ms)"),
    ("throttle", "Time that the client's connection is throttled after the answer because of a quota (ms)"),
    ("response_queue", "Time that an answer waited for those of pipelined requests, to be sent with them (ms)"),
    ("response_send", "Time until the kernel accepted the whole answer: long when the client reads slowly (ms)"),
)

_TOPIC_COUNTERS: Final = (
    ("messagesin", "Records appended by producers", "messages_in"),
    ("bytesin", "Bytes appended by producers", "bytes_in"),
    ("bytesout", "Bytes sent to consumers", "bytes_out"),
    ("mirroredmessagesin", "Records appended by mirrors", "mirrored_messages_in"),
    ("mirroredbytesin", "Bytes appended by mirrors", "mirrored_bytes_in"),
    ("mirroredbytesout", "Bytes sent to mirrors", "mirrored_bytes_out"),
    ("replicationbytesout", "Bytes sent to followers", "replicated_bytes_out"),
    ("replicationbytesin", "Bytes appended by following leaders", "replicated_bytes_in"),
    ("totalproducerequests", "Partitions that producers asked to append to", "produce_count"),
    ("totalfetchrequests", "Partitions that fetchers asked to read", "fetch_count"),
    ("failedproducerequests", "Partitions that could not be appended to", "failed_produce"),
    ("bytesrejected", "Bytes refused because a batch exceeds max.message.bytes", "bytes_rejected"),
    ("failedfetchrequests", "Partitions that could not be read", "failed_fetch"),
)


def _collect_logs(sizes: dict[tuple[str, int], tuple[int, int, int]]) -> Iterator[GaugeMetricFamily]:
    families = [
        GaugeMetricFamily("kafka_log_log_size", "Bytes of a log", labels=["topic", "partition"]),
        GaugeMetricFamily("kafka_log_log_logstartoffset", "First offset of a log", labels=["topic", "partition"]),
        GaugeMetricFamily("kafka_log_log_logendoffset", "Next offset of a log", labels=["topic", "partition"]),
    ]
    for (topic, partition), figures in sizes.items():
        for family, figure in zip(families, figures, strict=True):
            family.add_metric([topic, str(partition)], figure)
    yield from families


def _collect_lags(lags: dict[tuple[str, int], int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(
        "kafka_server_fetcherlagmetrics_consumerlag",
        "Records below the leader's high watermark that a follower here does not have",
        labels=["topic", "partition"],
    )
    for (topic, partition), lag in lags.items():
        family.add_metric([topic, str(partition)], lag)
    return family
