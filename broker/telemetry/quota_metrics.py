"""The figures of client quotas for Prometheus: what those that have a quota use, and how long they
have to wait.

Names follow the beans of Kafka's quotas (`kafka.server:type=Produce,user=..,client-id=..`). An
empty label means that all share the quota. Asked in the metrics server's thread, so it only reads.
`BrokerMetrics` shows them.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from broker.network.connection_server import ConnectionServer
from broker.quotas.client_throttling import Quotas
from runtime.clock import Clock

_LABELS = ["user", "client_id"]


class QuotaMetrics:
    """Figures of one broker's quotas."""

    def __init__(self, quotas: Quotas, connections: ConnectionServer, clock: Clock) -> None:
        self._quotas = quotas
        self._connections = connections
        self._clock = clock

    def families(self) -> Iterator[Metric]:
        """All samples."""
        now_ms = self._clock.monotonic_ms()
        quotas = self._quotas
        kinds = (
            ("produce", "byte_rate", "Bytes a second that clients with a quota produce", quotas.produce),
            ("fetch", "byte_rate", "Bytes a second that clients with a quota fetch", quotas.fetch),
            ("request", "request_time", "Percent of the event loop that clients with a quota use", quotas.request),
        )
        for name, figure, help_text, rates in kinds:
            used = GaugeMetricFamily(f"kafka_server_{name}_{figure}", help_text, labels=_LABELS)
            throttled = _throttled(name)
            for user, client_id, share in rates.shares():
                used.add_metric([user, client_id], share.rate.rate_per_second(now_ms))
                throttled.add_metric([user, client_id], share.throttle_ms_average(now_ms))
            yield from (used, throttled)
        yield from self._mutations(now_ms)
        yield from self._of_connections(now_ms)

    def _mutations(self, now_ms: float) -> Iterator[Metric]:
        used = GaugeMetricFamily(
            "kafka_server_controllermutation_mutation_rate",
            "Partitions a second that clients with a quota create and delete",
            labels=_LABELS,
        )
        throttled = _throttled("controllermutation")
        for user, client_id, share in self._quotas.mutations.shares():
            used.add_metric([user, client_id], share.rate.rate_per_second(now_ms))
            throttled.add_metric([user, client_id], share.throttle_time_ms)
        yield from (used, throttled)

    def _of_connections(self, now_ms: float) -> Iterator[Metric]:
        rates = GaugeMetricFamily(
            "kafka_server_socket_server_metrics_connection_accept_rate",
            "Connections a second from addresses that have a quota",
            labels=["ip"],
        )
        for address, rate in self._connections.rates.rates(now_ms):
            rates.add_metric([address], rate)
        yield rates
        yield CounterMetricFamily(
            "kafka_server_socket_server_metrics_connections_throttled",
            "Connections refused after a delay because their address exceeds its connection rate quota",
            value=self._connections.throttled_count,
        )


def _throttled(name: str) -> GaugeMetricFamily:
    help_text = "Average throttle time of clients with a quota over the last windows (ms)"
    return GaugeMetricFamily(f"kafka_server_{name}_throttle_time", help_text, labels=_LABELS)
