"""Counts the connections that were accepted and refused, for Prometheus: logins of SASL, and
handshakes of TLS where clients do not log in.

Names follow Kafka's (`kafka.server:type=socket-server-metrics,listener=...`). Asked in the metrics
server's thread, so it only reads. `BrokerMetrics` shows them.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric

from broker.authentication.entrances import Entrances


class LoginMetrics:
    """Figures of one broker's listeners."""

    def __init__(self, entrances: Entrances) -> None:
        self._entrances = entrances

    def families(self) -> Iterator[Metric]:
        """All samples."""
        successful = CounterMetricFamily(
            "kafka_server_socket_server_metrics_successful_authentication",
            "Clients that have shown who they are: by a login, or at an SSL listener by the handshake",
            labels=["listener"],
        )
        failed = CounterMetricFamily(
            "kafka_server_socket_server_metrics_failed_authentication",
            "Clients that were refused: by their login, or because their handshake of TLS failed",
            labels=["listener"],
        )
        for name, entrance in self._entrances.by_listener.items():
            successful.add_metric([name], entrance.logins.successful_count)
            failed.add_metric([name], entrance.logins.failed_count)
        yield from (successful, failed)
