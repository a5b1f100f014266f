"""What a controller candidate shows to Prometheus; names follow Kafka's controller beans."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from controller.core import facts
from controller.core.cluster import Cluster
from wire.znodes import NO_LEADER

_PREFIX = "kafka_controller"


class ControllerMetrics:
    """Gauges of the cluster while active (zero otherwise), and counters of what was done."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"{_PREFIX}_{name}", text, registry=registry)

        self._is_active = gauge("activecontrollercount", "1 while this candidate is the active controller")
        self._epoch = gauge("epoch", "Controller epoch of this candidate's tenure, 0 when not active")
        self._brokers = gauge("activebrokercount", "Brokers registered")
        self._topics = gauge("globaltopiccount", "Topics")
        self._partitions = gauge("globalpartitioncount", "Partitions")
        self._offline = gauge("offlinepartitionscount", "Partitions without a leader")
        self._imbalanced = gauge("preferredreplicaimbalancecount", "Partitions not led by their preferred replica")
        self._deleting = gauge("topicstodeletecount", "Topics whose deletion is not complete")
        self._reassigning = gauge("reassigningpartitions", "Partitions that are getting other replicas")
        self._queue = gauge("eventqueuesize", "Commands that wait for the controller")
        self._elections = Counter(f"{_PREFIX}_leaderelections", "Leaders elected", registry=registry)
        self._unclean_elections = Counter(
            f"{_PREFIX}_uncleanleaderelections", "Leaders elected that were not in sync", registry=registry
        )
        self._push_failures = Counter(
            f"{_PREFIX}_pushfailures", "Batches that a broker did not take and that were sent again", registry=registry
        )
        self._broker_failures = Counter(
            f"{_PREFIX}_partitionfailures",
            "Partitions that a broker could not bring into the state asked",
            registry=registry,
        )
        self._event_seconds = Histogram(
            f"{_PREFIX}_event_seconds",
            "Time to decide and commit one command",
            ["command"],
            registry=registry,
            buckets=(0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10),
        )

    def record_tenure(self, epoch: int) -> None:
        """Active at this epoch."""
        self._is_active.set(1)
        self._epoch.set(epoch)

    def record_resignation(self) -> None:
        """No longer active: a standby knows nothing of the cluster."""
        for gauge in (
            self._is_active,
            self._epoch,
            self._brokers,
            self._topics,
            self._partitions,
            self._offline,
            self._imbalanced,
            self._deleting,
            self._reassigning,
            self._queue,
        ):
            gauge.set(0)

    def record_cluster(self, cluster: Cluster) -> None:
        """The cluster after a change."""
        self._brokers.set(len(cluster.brokers))
        self._topics.set(len(cluster.topics))
        self._partitions.set(len(cluster.partition_phases))
        self._offline.set(len(cluster.offline_partitions()))
        self._deleting.set(len(cluster.deletions))
        self._reassigning.set(sum(len({*topic.adding, *topic.removing}) for topic in cluster.topics.values()))
        self._imbalanced.set(
            sum(
                leadership.leader != cluster.replicas_of(partition)[0]
                for partition, leadership in cluster.leaderships.items()
            )
        )

    def record_event(self, command: str, seconds: float, *, queued: int) -> None:
        """One command was handled; `queued` others wait."""
        self._event_seconds.labels(command).observe(seconds)
        self._queue.set(queued)

    def record_facts(self, changes: tuple[facts.Fact, ...]) -> None:
        """Count the elections among committed facts."""
        elected = sum(
            isinstance(change, facts.LeadershipChanged) and change.leadership.leader != NO_LEADER for change in changes
        )
        self._elections.inc(elected)
        self._unclean_elections.inc(
            sum(isinstance(change, facts.LeadershipChanged) and change.is_unclean for change in changes)
        )

    def record_push_failure(self) -> None:
        """A batch has to be sent again."""
        self._push_failures.inc()

    def record_broker_failures(self, count: int) -> None:
        """A broker took a batch but could not carry out this many partitions."""
        self._broker_failures.inc(count)
