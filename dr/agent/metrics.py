"""What a site agent shows to Prometheus: whether the sites agree about their links."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


class SiteAgentMetrics(Collector):
    """Registers itself; `contested` has every link of the site and whether the peer names another
    active site in the same epoch.
    """

    def __init__(self, registry: CollectorRegistry, *, contested: Callable[[], Mapping[str, bool]]) -> None:
        self._contested = contested
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """All families; called from the thread of the metrics server."""
        family = GaugeMetricFamily(
            "antipode_site_contested_link",
            "1 for a link of which both sites hold themselves for active in the same epoch: writes go to two places.",
            labels=["link"],
        )
        for link, is_contested in sorted(self._contested().items()):
            family.add_metric([link], int(is_contested))
        yield family

    def describe(self) -> Iterable[Metric]:
        """Nothing in advance: the links are not known yet."""
        return ()
