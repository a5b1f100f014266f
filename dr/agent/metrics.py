"""What a site agent shows to Prometheus: whether the sites agree about their links, and whether
the standbys protect them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector


class SiteAgentMetrics(Collector):
    """Registers itself; `contested` has every link of the site and whether the peer names another
    active site in the same epoch; `protection` has the links that this agent judges: whether the
    link is protected, and the verdict's age in ms.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        contested: Callable[[], Mapping[str, bool]],
        protection: Callable[[], Mapping[str, tuple[bool, float]]],
    ) -> None:
        self._contested = contested
        self._protection = protection
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
        protected = GaugeMetricFamily(
            "antipode_site_protected_link",
            "1 for a link whose standby protects this site, 0 for one whose standby does not; at the broker that judges "
            "the link (the one with the lowest node id).",
            labels=["link"],
        )
        age = GaugeMetricFamily(
            "antipode_site_protected_link_age_seconds",
            "How old the verdict of antipode_site_protected_link is.",
            labels=["link"],
        )
        for link, (is_protected, age_ms) in sorted(self._protection().items()):
            protected.add_metric([link], int(is_protected))
            age.add_metric([link], age_ms / 1000)
        yield protected
        yield age

    def describe(self) -> Iterable[Metric]:
        """Nothing in advance: the links are not known yet."""
        return ()
