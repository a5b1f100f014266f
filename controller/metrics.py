"""The metrics of a controller candidate, under the names that exporters give to Kafka's controller
beans.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from controller.core.state import facts
from controller.core.state.cluster import Cluster
from wire.protocol.ids import NO_NODE

_PREFIX: Final = "kafka_controller"
_STATS: Final = "controllerstats"
_EVENTS: Final = "controllereventmanager"
_BOUNDS_MS: Final = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000)


class ControllerMetrics:
    """Gauges of the cluster while active (zero otherwise), and counters of what was done.

    The gauges are computed at each scrape, in the thread that answers it: counting ten thousand
    partitions after each decision would block the event loop. The thread needs no lock, because a
    committed cluster never changes (`ControllerMachine.apply` makes another one).
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str, *, bean: str = "kafkacontroller") -> Gauge:
            return Gauge(f"{_PREFIX}_{bean}_{name}", text, registry=registry)

        def of_cluster(name: str, text: str, value: Callable[[Cluster], int]) -> None:
            gauge(name, text).set_function(lambda: 0 if self._cluster is None else value(self._cluster))

        def counter(name: str, text: str, *, bean: str = "kafkacontroller") -> Counter:
            return Counter(f"{_PREFIX}_{bean}_{name}", text, registry=registry)

        def times(name: str, text: str, *labels: str, bean: str) -> Histogram:
            return Histogram(f"{_PREFIX}_{bean}_{name}", text, labels, registry=registry, buckets=_BOUNDS_MS)

        self._is_active = gauge("activecontrollercount", "1 while this candidate is the active controller")
        self._epoch = gauge("epoch", "Controller epoch of this candidate's tenure, 0 when not active")
        self._cluster: Cluster | None = None
        of_cluster("activebrokercount", "Brokers registered", lambda now: len(now.brokers))
        of_cluster("globaltopiccount", "Topics", lambda now: len(now.topics))
        of_cluster("globalpartitioncount", "Partitions", lambda now: len(now.partition_phases))
        of_cluster("offlinepartitionscount", "Partitions without a leader", lambda now: len(now.offline_partitions()))
        of_cluster("preferredreplicaimbalancecount", "Partitions not led by their preferred replica", _imbalanced)
        of_cluster("topicstodeletecount", "Topics whose deletion is not complete", lambda now: len(now.deletions))
        of_cluster("reassigningpartitions", "Partitions that are being reassigned", _reassigning)
        self._quarantined = Gauge(
            "antipode_controller_quarantined",
            "Topics and links in quarantine until their znodes, which cannot be decoded, are repaired",
            ["kind"],
            registry=registry,
        )
        self._queue = gauge("eventqueuesize", "Commands that wait for the controller", bean=_EVENTS)
        self._elections = counter("electedleaders", "Leaders elected", bean=_STATS)
        self._unclean_elections = counter(
            "uncleanleaderelections", "Leaders elected that were not in sync", bean=_STATS
        )
        self._election_times = times(
            "leaderelectionrateandtimems",
            "Time of decisions that elected leaders, from the start until ZooKeeper has them (ms)",
            bean=_STATS,
        )
        self._push_failures = counter("pushfailures", "Batches that a broker did not apply and that were sent again")
        self._broker_failures = counter("partitionfailures", "Partitions whose state a broker could not apply")
        self._queue_times = times("eventqueuetimems", "Time that a command waited for its turn (ms)", bean=_EVENTS)
        self._event_times = times(
            "eventqueueprocessingtimems", "Time to decide and commit one command (ms)", "command", bean=_EVENTS
        )

    def record_tenure(self, epoch: int) -> None:
        """The candidate is active at this epoch."""
        self._is_active.set(1)
        self._epoch.set(epoch)

    def record_resignation(self) -> None:
        """The candidate has ceased to be active; the gauges of the cluster become zero."""
        self._cluster = None
        for gauge in (self._is_active, self._epoch, self._queue):
            gauge.set(0)
        self._record_quarantined(topics=0, links=0)

    def _record_quarantined(self, *, topics: int, links: int) -> None:
        self._quarantined.labels("topic").set(topics)
        self._quarantined.labels("link").set(links)

    def record_cluster(self, cluster: Cluster) -> None:
        """Set the committed cluster from which the next scrape computes the gauges."""
        self._cluster = cluster
        self._record_quarantined(topics=len(cluster.quarantine), links=len(cluster.link_problems))

    def record_wait(self, wait_ms: float) -> None:
        """A command has waited this long in the queue."""
        self._queue_times.observe(wait_ms)

    def record_event(self, command: str, elapsed_ms: float, *, queued: int) -> None:
        """One command was handled; `queued` others wait."""
        self._event_times.labels(command).observe(elapsed_ms)
        self._queue.set(queued)

    def record_facts(self, changes: tuple[facts.Fact, ...], elapsed_ms: float) -> None:
        """Count the elections among these facts, with the time to decide and commit them."""
        changed = [change for change in changes if isinstance(change, facts.LeadershipChanged)]
        elected = sum(change.leadership.leader != NO_NODE for change in changed)
        if elected:
            self._election_times.observe(elapsed_ms)
        self._elections.inc(elected)
        self._unclean_elections.inc(sum(change.is_unclean for change in changed))

    def record_push_failure(self) -> None:
        """A broker did not apply a batch, which is sent again."""
        self._push_failures.inc()

    def record_broker_failures(self, count: int) -> None:
        """A broker could not apply this many partitions of a batch."""
        self._broker_failures.inc(count)


def _imbalanced(cluster: Cluster) -> int:
    return sum(
        leadership.leader != cluster.replicas_of(partition)[0] for partition, leadership in cluster.leaderships.items()
    )


def _reassigning(cluster: Cluster) -> int:
    return sum(len({*topic.adding, *topic.removing}) for topic in cluster.topics.values())
