"""The bridge's metrics."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

LATENCY_BUCKETS_S = (0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 60)
_PREFIX = "antipode_bridge"
GAUGES = {
    "connections": "Open HTTP connections",
    "consumer_instances": "Consumer instances that there are",
    "bodies_bytes": "Bytes of request bodies in memory",
    "kafka_users": "Kafka users that act for HTTP clients, with the bridge's own",
    "refused_addresses": "Addresses whose passwords are refused for a while because too many were wrong",
    "unacknowledged_bytes": "Bytes of records that wait for Kafka",
}
"""The gauges whose values parts of the bridge provide."""


class BridgeMetrics:
    """Methods for events; gauges ask their owner when they are read."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._requests = Counter(
            f"{_PREFIX}_requests", "HTTP requests answered", ["route", "status"], registry=registry
        )
        self._latency = Histogram(
            f"{_PREFIX}_request_seconds",
            "Seconds from a request's head to the end of its answer",
            ["route"],
            buckets=LATENCY_BUCKETS_S,
            registry=registry,
        )
        self._produced = Counter(
            f"{_PREFIX}_produced_records", "Records that Kafka has acknowledged", registry=registry
        )
        self._produced_bytes = Counter(
            f"{_PREFIX}_produced_bytes", "Bytes of keys and values that Kafka has acknowledged", registry=registry
        )
        self._failed = Counter(
            f"{_PREFIX}_failed_records", "Records that were answered with an error", ["kind"], registry=registry
        )
        self._consumed = Counter(f"{_PREFIX}_consumed_records", "Records handed to readers", registry=registry)
        self._consumed_bytes = Counter(
            f"{_PREFIX}_consumed_bytes", "Bytes of keys and values handed to readers", registry=registry
        )
        self._expired = Counter(
            f"{_PREFIX}_expired_instances", "Consumer instances closed because no client used them", registry=registry
        )
        self._dropped = Counter(
            f"{_PREFIX}_dropped_connections",
            "Connections closed because the client exceeded a time limit",
            ["reason"],
            registry=registry,
        )

        self._refused_logins = Counter(
            f"{_PREFIX}_refused_logins",
            "Requests without a login that is accepted, or without a Kafka user",
            ["status"],
            registry=registry,
        )

    def record_request(self, *, route: str, status: int, seconds: float) -> None:
        """The response to a request is complete."""
        self._requests.labels(route, str(status)).inc()
        self._latency.labels(route).observe(seconds)

    def record_produced(self, *, records: int, size_bytes: int) -> None:
        """Acknowledged records."""
        self._produced.inc(records)
        self._produced_bytes.inc(size_bytes)

    def record_failed(self, *, is_retriable: bool) -> None:
        """A record that Kafka did not accept."""
        self._failed.labels("retriable" if is_retriable else "final").inc()

    def record_consumed(self, *, records: int, size_bytes: int) -> None:
        """Records in an answer."""
        self._consumed.inc(records)
        self._consumed_bytes.inc(size_bytes)

    def record_expired(self) -> None:
        """An instance that no client has used."""
        self._expired.inc()

    def record_dropped(self, reason: str) -> None:
        """A connection that the bridge closed."""
        self._dropped.labels(reason).inc()

    def record_refused_login(self, status: int) -> None:
        """A request that was refused before it reached the application."""
        self._refused_logins.labels(str(status)).inc()

    def add_gauge(self, name: str, value: Callable[[], float]) -> None:
        """One of `GAUGES`, by its owner."""
        Gauge(f"{_PREFIX}_{name}", GAUGES[name], registry=self._registry).set_function(value)
