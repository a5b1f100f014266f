"""The metrics of a site agent: whether the sites agree about their links, whether the standbys
protect them, until when they are proven equal, and the state of their leases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from dr.agent.core.silences import Silences
from dr.agent.core.watched_link import FailoverCounts
from dr.proof.core.verification import LinkVerification
from dr.sites.core.lease_sentences import FROM_STANDBY
from wire.control.site_pb2 import LinkLease, LinkRehearsal


class SiteAgentMetrics(Collector):
    """Registers itself; `contested` has every link of the site and whether the peer names another
    active site in the same epoch; `protection` has the links that this agent judges: whether the
    link is protected, and the verdict's age in ms. `verification` has the links that this agent
    compares: the state of the proof, and the offset below which each partition is equal. `leases`
    has the links with a lease; `waiting` and `failovers` have the links whose active site this
    agent watches; `rehearsals` has the last rehearsal of each link on clones of this site's logs,
    and its age in ms; `silences` has the durations for which the active sites did not answer.
    """

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        contested: Callable[[], Mapping[str, bool]],
        protection: Callable[[], Mapping[str, tuple[bool, float]]],
        verification: Callable[[], Mapping[str, tuple[LinkVerification, Mapping[tuple[str, int], int]]]],
        leases: Callable[[], Mapping[str, LinkLease]],
        waiting: Callable[[], Mapping[str, bool]],
        failovers: Callable[[], Mapping[str, FailoverCounts]],
        rehearsals: Callable[[], Mapping[str, tuple[LinkRehearsal, float]]],
        silences: Callable[[], Mapping[str, Silences]],
    ) -> None:
        self._contested = contested
        self._protection = protection
        self._verification = verification
        self._leases = leases
        self._waiting = waiting
        self._failovers = failovers
        self._rehearsals = rehearsals
        self._silences = silences
        registry.register(self)

    def collect(self) -> Iterable[Metric]:
        """Yield all metric families; the thread of the metrics server calls this."""
        family = GaugeMetricFamily(
            "antipode_site_contested_link",
            "1 for a link with a split brain: both sites are active in the same epoch and take writes.",
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
            "Age of the verdict of antipode_site_protected_link.",
            labels=["link"],
        )
        for link, (is_protected, age_ms) in sorted(self._protection().items()):
            protected.add_metric([link], int(is_protected))
            age.add_metric([link], age_ms / 1000)
        yield protected
        yield age
        yield from self._verified()
        yield from self._leased()
        yield from self._watched()
        yield from self._rehearsed()
        yield from self._silent()

    def _leased(self) -> Iterable[Metric]:
        reachable = GaugeMetricFamily(
            "antipode_site_arbiter_reachable",
            "1 while this broker reaches the arbiter of the link, 0 while it does not.",
            labels=["link"],
        )
        left = GaugeMetricFamily(
            "antipode_site_permit_seconds",
            "Time for which this broker may acknowledge writes of the link without another renewal; 0 at the passive "
            "site, and while writers wait.",
            labels=["link"],
        )
        vowed = GaugeMetricFamily(
            "antipode_site_permit_by_vow",
            "1 while this broker writes by a vow of the standby because the arbiter does not answer.",
            labels=["link"],
        )
        for link, lease in sorted(self._leases().items()):
            reachable.add_metric([link], int(lease.is_arbiter_reachable))
            left.add_metric([link], lease.permit_left_ms / 1000)
            vowed.add_metric([link], int(lease.permit_from == FROM_STANDBY))
        yield reachable
        yield left
        yield vowed

    def _watched(self) -> Iterable[Metric]:
        waits = GaugeMetricFamily(
            "antipode_site_failover_awaits_person",
            "1 while the active site of the link is lost and the standby does not fail over by itself; at the broker with "
            "the lowest node id of the standby.",
            labels=["link"],
        )
        count = CounterMetricFamily(
            "antipode_site_failovers",
            "Failovers that the standby began by itself, by outcome (done, refused), and those that it only reported "
            "(observed).",
            labels=["link", "outcome"],
        )
        for link, is_waiting in sorted(self._waiting().items()):
            waits.add_metric([link], int(is_waiting))
        for link, counts in sorted(self._failovers().items()):
            for outcome, number in (("done", counts.done), ("refused", counts.refused), ("observed", counts.observed)):
                count.add_metric([link, outcome], number)
        yield waits
        yield count

    def _silent(self) -> Iterable[Metric]:
        silence = HistogramMetricFamily(
            "antipode_site_active_silence_seconds",
            "Durations for which no view from the standby reached the active site of the link, until it answered again; "
            "at the broker with the lowest node id of the standby.",
            labels=["link"],
        )
        recommended = GaugeMetricFamily(
            "antipode_site_recommended_lease_seconds",
            "The shortest lease that is well above every silence of the active site since this process started; absent "
            "while there was none.",
            labels=["link"],
        )
        for link, silences in sorted(self._silences().items()):
            buckets = [
                ("+Inf" if bound == float("inf") else str(bound), float(count)) for bound, count in silences.buckets()
            ]
            silence.add_metric([link], buckets, silences.sum_ms / 1000)
            if silences.recommended_lease_ms:
                recommended.add_metric([link], silences.recommended_lease_ms / 1000)
        yield silence
        yield recommended

    def _rehearsed(self) -> Iterable[Metric]:
        age = GaugeMetricFamily(
            "antipode_site_rehearsal_age_seconds",
            "Time since the last rehearsal on clones of this site's logs ended; absent before the first one.",
            labels=["link"],
        )
        passed = GaugeMetricFamily(
            "antipode_site_rehearsal_passed",
            "1 when the last rehearsal on clones of this site's logs passed, 0 when it failed.",
            labels=["link"],
        )
        for link, (rehearsal, age_ms) in sorted(self._rehearsals().items()):
            age.add_metric([link], age_ms / 1000)
            passed.add_metric([link], int(rehearsal.is_passed))
        yield age
        yield passed

    def _verified(self) -> Iterable[Metric]:
        until = GaugeMetricFamily(
            "antipode_site_verified_until_timestamp_seconds",
            "Everything that the active site held at this Unix time is proven equal at the standby, by digests; 0 before "
            "the first proof. Compacted topics are not part of it. At the broker with the lowest node id of the active site.",
            labels=["link"],
        )
        differences = GaugeMetricFamily(
            "antipode_site_differences",
            "Ranges of offsets in which the last comparison of the link's sites found a difference.",
            labels=["link"],
        )
        offset = GaugeMetricFamily(
            "antipode_site_verified_until_offset",
            "Offset below which both sites had the same records of the partition at the last comparison.",
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
        """Return nothing: the links are unknown at registration."""
        return ()
