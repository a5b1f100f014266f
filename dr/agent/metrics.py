"""What a site agent shows to Prometheus: whether the sites agree about their links, whether the
standbys protect them, and until when they are proven equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from dr.proof.core.verification import LinkVerification


class SiteAgentMetrics(Collector):
    """Registers itself; `contested` has every link of the site and whether the peer names another
    active site in the same epoch; `protection` has the links that this agent judges: whether the
    link is protected, and the verdict's age in ms. `verification` has the links that this agent
    compares: the state of the proof, and the offset below which each partition is equal.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        contested: Callable[[], Mapping[str, bool]],
        protection: Callable[[], Mapping[str, tuple[bool, float]]],
        verification: Callable[[], Mapping[str, tuple[LinkVerification, Mapping[tuple[str, int], int]]]],
    ) -> None:
        self._contested = contested
        self._protection = protection
        self._verification = verification
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
        yield from self._verified()

    def _verified(self) -> Iterable[Metric]:
        until = GaugeMetricFamily(
            "antipode_site_verified_until_timestamp_seconds",
            "Everything that the active site held at this Unix time is proven equal at the standby, by digests; 0 before "
            "the first proof. At the broker with the lowest node id of the active site.",
            labels=["link"],
        )
        differences = GaugeMetricFamily(
            "antipode_site_differences",
            "Ranges of offsets that the last comparison of the link's sites found different.",
            labels=["link"],
        )
        offset = GaugeMetricFamily(
            "antipode_site_verified_until_offset",
            "Below this offset the partition was equal at both sites at the last comparison.",
            labels=["link", "topic", "partition"],
        )
        for link, (state, proven_ends) in sorted(self._verification().items()):
            until.add_metric([link], state.verified_until_ms / 1000)
            differences.add_metric([link], state.differences)
            for (topic, partition), end_offset in sorted(proven_ends.items()):
                offset.add_metric([link, topic, str(partition)], end_offset)
        yield until
        yield differences
        yield offset

    def describe(self) -> Iterable[Metric]:
        """Nothing in advance: the links are not known yet."""
        return ()
