"""The metrics that a daemon shows before its mirror exists."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from mirror.flow.core.health import Health


class OpeningMetrics(Collector):
    """The first metrics of a daemon: whether it has found its link, and whether it serves."""

    def __init__(self, registry: CollectorRegistry, *, link: str, health: Callable[[], Health]) -> None:
        self._link = link
        self._health = health
        self._opened = Gauge(
            "antipode_mirror_link_opened",
            "0 until the daemon has reached both ends of its link; until then most metrics of the link are absent.",
            ["link"],
            registry=registry,
        ).labels(link)
        registry.register(self)

    def record_opened(self) -> None:
        """Publish the link's other figures from now on."""
        self._opened.set(1)

    def collect(self) -> Iterable[Metric]:
        """The same figures as gRPC health and `antipode status`."""
        health = self._health()
        serving = GaugeMetricFamily(
            "antipode_mirror_serving",
            "1 while at least one partition is mirrored as the link demands, as in gRPC health; `state` is the state of the whole mirror.",
            labels=["link", "state"],
        )
        serving.add_metric([self._link, health.state], float(health.is_serving))
        yield serving

    def describe(self) -> Iterable[Metric]:
        """Describes nothing in advance."""
        return ()
