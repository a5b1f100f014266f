"""The figures of a broker that are read when somebody asks: a table of names, meanings and where each is read.

Names are those that Kafka's exporters make of Kafka's beans, where Kafka has the figure. Read from the metrics server's thread, so
nothing here may wait or change anything.

Caller: broker/main.py.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from broker.metrics import BrokerMetrics
from runtime.clock import Clock

if TYPE_CHECKING:
    from broker.connection_server import ConnectionServer
    from broker.coordinator import GroupCoordinator
    from broker.core.fetch_sessions import FetchSessions
    from broker.isr_proposals import IsrProposals
    from broker.log.log_store import LogStore
    from broker.replica_fetchers import ReplicaFetchers
    from broker.replicas import Replicas
    from broker.transaction_coordinator import TransactionCoordinator

_SECOND_MS: Final = 1000


class BrokerState(IntEnum):
    """Where a broker is in its life, by Kafka's numbers."""

    NOT_RUNNING = 0
    STARTING = 1
    RECOVERING = 2
    RUNNING = 3
    HANDING_OVER = 6
    SHUTTING_DOWN = 7


class LoopShare:
    """Which share of the time since the last question the event loop's thread had nothing to do."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._at_s = time.monotonic()
        self._used_s = self._cpu_s()

    def _cpu_s(self) -> float:
        if sys.platform != "linux":
            return time.process_time()
        return time.clock_gettime(time.pthread_getcpuclockid(self._thread))

    def idle(self) -> float:
        """0 to 1."""
        now_s, used_s = time.monotonic(), self._cpu_s()
        elapsed_s, busy_s = now_s - self._at_s, used_s - self._used_s
        self._at_s, self._used_s = now_s, used_s
        return min(max(1 - busy_s / elapsed_s, 0.0), 1.0) if elapsed_s > 0 else 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GaugeSources:
    """The parts that are asked."""

    replicas: Replicas
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    fetchers: ReplicaFetchers
    proposals: IsrProposals
    connections: ConnectionServer
    logs: LogStore
    clock: Clock
    fetch_sessions: Callable[[], FetchSessions]
    state: Callable[[], BrokerState]
    loop: LoopShare = field(default_factory=LoopShare)
    network_loop: LoopShare = field(default_factory=LoopShare)
    """The same loop, asked under another name: each counts from its own last question."""

    def seconds_since_cleaning(self) -> float:
        """Since the last pass over compacted logs; 0 before the first."""
        ended_at_ms = self.logs.cleaning.figures.ended_at_ms
        return (self.clock.now_ms() - ended_at_ms) / _SECOND_MS if ended_at_ms else 0.0


Read = Callable[[GaugeSources], float]

GAUGES: Final[tuple[tuple[str, str, Read], ...]] = (
    (
        "kafka_server_kafkaserver_brokerstate",
        "0 not running, 1 starting, 2 recovering logs, 3 running, 6 handing leaderships over, 7 shutting down",
        lambda parts: parts.state(),
    ),
    (
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
        "Share (0 to 1) of the time since the last scrape in which the event loop had nothing to do",
        lambda parts: parts.loop.idle(),
    ),
    (
        "kafka_network_socketserver_networkprocessoravgidle_percent",
        "The same share under Kafka's other name: one event loop reads, handles and answers",
        lambda parts: parts.network_loop.idle(),
    ),
    ("kafka_server_replicamanager_partitioncount", "Partitions here", lambda parts: len(parts.replicas)),
    ("kafka_server_replicamanager_leadercount", "Partitions led here", lambda parts: parts.replicas.leader_count()),
    (
        "kafka_server_replicamanager_underreplicatedpartitions",
        "Partitions led here with an incomplete ISR",
        lambda parts: parts.replicas.under_replicated_count(),
    ),
    (
        "kafka_server_replicamanager_underminisrpartitioncount",
        "Partitions led here that refuse acks=all: fewer replicas in sync than min.insync.replicas",
        lambda parts: parts.replicas.under_min_isr_count(),
    ),
    (
        "kafka_server_replicamanager_atminisrpartitioncount",
        "Partitions led here that would refuse acks=all without one more of their replicas",
        lambda parts: parts.replicas.at_min_isr_count(),
    ),
    (
        "kafka_server_replicamanager_offlinereplicacount",
        "Partitions that went offline with their log directories",
        lambda parts: parts.replicas.offline_count(),
    ),
    (
        "antipode_broker_sync_partitions",
        "Partitions of sync links led here: acknowledgements wait for the standby",
        lambda parts: len(parts.replicas.standby_holds()),
    ),
    (
        "antipode_broker_sync_blocking_partitions",
        "Of these, partitions whose link has the policy block: a lost standby stops acknowledgements without end",
        lambda parts: sum(not hold.may_degrade for hold in parts.replicas.standby_holds()),
    ),
    (
        "antipode_broker_sync_degraded_partitions",
        "Of those that wait, partitions that showed records which the standby may not have",
        lambda parts: sum(hold.is_degraded for hold in parts.replicas.standby_holds()),
    ),
    (
        "antipode_broker_sync_degradations",
        "How often since the start a partition stopped waiting for a silent standby",
        lambda parts: parts.replicas.degradations,
    ),
    (
        "kafka_log_logmanager_offlinelogdirectorycount",
        "Log directories that are offline after a failure of their disks",
        lambda parts: len(parts.logs.offline),
    ),
    (
        "kafka_log_logmanager_movingpartitions",
        "Logs on their way to another log directory",
        lambda parts: len(parts.logs.moves),
    ),
    (
        "kafka_log_logcleanermanager_max_dirty_percent",
        "Largest share (0 to 100) of uncompacted bytes among compacted logs, at the last pass",
        lambda parts: 100 * parts.logs.cleaning.figures.max_dirty_ratio,
    ),
    (
        "kafka_log_logcleanermanager_time_since_last_run_seconds",
        "Since the last pass over compacted logs ended",
        lambda parts: parts.seconds_since_cleaning(),
    ),
    (
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "Compacted logs with a batch that does not decode",
        lambda parts: parts.logs.cleaning.figures.uncleanable_count,
    ),
    (
        "kafka_log_logcleaner_cleaned_logs",
        "Compactions of a log since the start",
        lambda parts: parts.logs.cleaning.figures.cleaned_count,
    ),
    (
        "kafka_log_logcleaner_read_bytes",
        "Bytes of segments that compaction replaced since the start",
        lambda parts: parts.logs.cleaning.figures.bytes_before,
    ),
    (
        "kafka_log_logcleaner_kept_bytes",
        "Bytes of segments that compaction put in their place since the start",
        lambda parts: parts.logs.cleaning.figures.bytes_after,
    ),
    (
        "kafka_server_delayedoperationpurgatory_fetch_size",
        "Fetches that wait for records",
        lambda parts: (
            len(parts.replicas.fetches) + len(parts.replicas.follower_fetches) + len(parts.replicas.mirror_fetches)
        ),
    ),
    (
        "kafka_server_delayedoperationpurgatory_produce_size",
        "Produces that wait for replicas",
        lambda parts: len(parts.replicas.produces),
    ),
    (
        "kafka_server_delayedoperationpurgatory_deleterecords_size",
        "Deletions of records that wait for followers",
        lambda parts: len(parts.replicas.deletes),
    ),
    (
        "kafka_server_replicafetchermanager_maxlag",
        "Records that the furthest follower here lacks",
        lambda parts: parts.fetchers.max_lag(),
    ),
    (
        "kafka_server_replicafetchermanager_failedpartitionscount",
        "Partitions that cannot be followed just now",
        lambda parts: parts.fetchers.failing_count(),
    ),
    (
        "kafka_server_replicafetchermanager_deadthreadcount",
        "Fetchers that a defect has stopped; each begins anew after a moment",
        lambda parts: parts.fetchers.broken_count(),
    ),
    (
        "kafka_server_leaderreplication_byte_rate",
        "Bytes per second of throttled replicas sent to followers",
        lambda parts: parts.replicas.leader_throttle.rate_per_second(parts.clock.monotonic_ms()),
    ),
    (
        "kafka_server_followerreplication_byte_rate",
        "Bytes per second of throttled replicas taken from leaders",
        lambda parts: parts.replicas.follower_throttle.rate_per_second(parts.clock.monotonic_ms()),
    ),
    (
        "kafka_server_replicamanager_isrexpands",
        "ISR expansions since the start",
        lambda parts: parts.proposals.expansions,
    ),
    (
        "kafka_server_replicamanager_isrshrinks",
        "ISR shrinks since the start",
        lambda parts: parts.proposals.shrinks,
    ),
    (
        "kafka_server_replicamanager_failedisrupdates",
        "Changes of in-sync replicas that the controller refused since the start",
        lambda parts: parts.proposals.failures,
    ),
    (
        "kafka_coordinator_group_groupmetadatamanager_numgroups",
        "Groups coordinated here",
        lambda parts: parts.groups.group_count,
    ),
    (
        "kafka_coordinator_group_groupmetadatamanager_numoffsets",
        "Offsets of groups coordinated here",
        lambda parts: parts.groups.offset_count,
    ),
    (
        "kafka_coordinator_transaction_transactionalids",
        "Transactional ids coordinated here",
        lambda parts: parts.transactions.count,
    ),
    (
        "kafka_server_socketservermetrics_connection_count",
        "Open connections",
        lambda parts: len(parts.connections.connections),
    ),
    (
        "kafka_server_socketservermetrics_refused_connections",
        "Connections refused because of a limit since the start",
        lambda parts: parts.connections.refused_count,
    ),
    (
        "kafka_server_socketservermetrics_idle_connections_closed",
        "Connections closed because they were idle since the start",
        lambda parts: parts.connections.reaped_count,
    ),
    (
        "kafka_server_socketservermetrics_request_memory_bytes",
        "Memory of half-received requests",
        lambda parts: parts.connections.memory.used_bytes,
    ),
    (
        "kafka_network_socketserver_memorypoolavailable",
        "Room left for half-received requests (bytes)",
        lambda parts: parts.connections.memory.bytes_max - parts.connections.memory.used_bytes,
    ),
    (
        "kafka_network_socketserver_memorypooldepleted_connections",
        "Connections that are not read from because there is no room for their requests",
        lambda parts: parts.connections.memory.waiting_count,
    ),
    ("kafka_server_fetchsessioncache_sessions", "Fetch sessions", lambda parts: len(parts.fetch_sessions())),
    (
        "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached",
        "Partitions of all fetch sessions",
        lambda parts: parts.fetch_sessions().partition_count,
    ),
    (
        "kafka_server_fetchsessioncache_incrementalfetchsessionevictions",
        "Fetch sessions that made room for others since the start",
        lambda parts: parts.fetch_sessions().eviction_count,
    ),
)


def add_gauges(metrics: BrokerMetrics, parts: GaugeSources) -> None:
    """Show all of them in `metrics`."""
    metrics.log_sizes = parts.replicas.sizes
    metrics.follower_lags = parts.replicas.follower_lags
    for name, text, read in GAUGES:
        metrics.add_gauge(name, text, lambda read=read: read(parts))  # type: ignore[misc]
