"""Figures of a broker that are read at each scrape: a table of names, meanings and functions.

Where Kafka has the figure, the name is that of Kafka's bean as exporters write it. The thread of
the metrics server reads them, so nothing here may wait or change anything.

Caller: broker/main.py.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Final

from broker.metrics import BrokerMetrics
from broker.replication import replica_figures
from broker.telemetry.counters import COUNTERS
from broker.telemetry.gauge_sources import SECOND_MS, GaugeSources, Read
from broker.telemetry.labelled_gauges import FAMILIES


def _seconds_left(left_ms: int | None) -> float:
    return math.inf if left_ms is None else left_ms / SECOND_MS


GAUGES: Final[tuple[tuple[str, str, Read], ...]] = (
    (
        "kafka_server_kafkaserver_brokerstate",
        "0 not running, 1 starting, 2 recovering logs, 3 running, 6 controlled shutdown, 7 shutting down",
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
    (
        "kafka_server_replicamanager_leadercount",
        "Partitions led here",
        lambda parts: replica_figures.leader_count(parts.replicas),
    ),
    (
        "kafka_server_replicamanager_underreplicatedpartitions",
        "Partitions led here with an incomplete ISR",
        lambda parts: replica_figures.under_replicated_count(parts.replicas),
    ),
    (
        "kafka_server_replicamanager_underminisrpartitioncount",
        "Partitions led here that refuse acks=all: fewer replicas in sync than min.insync.replicas",
        lambda parts: replica_figures.under_min_isr_count(parts.replicas),
    ),
    (
        "kafka_server_replicamanager_atminisrpartitioncount",
        "Partitions led here that would refuse acks=all without one more of their replicas",
        lambda parts: replica_figures.at_min_isr_count(parts.replicas),
    ),
    (
        "kafka_server_replicamanager_offlinereplicacount",
        "Partitions that went offline with their log directories",
        lambda parts: parts.logs.offline_count,
    ),
    (
        "antipode_broker_link_hold_partitions",
        "Partitions that keep records beyond their retention because a standby lacks them, at the last pass of retention",
        lambda parts: parts.logs.held.logs,
    ),
    (
        "antipode_broker_link_hold_bytes",
        "Bytes that are kept beyond retention because a standby lacks them, at the last pass of retention",
        lambda parts: parts.logs.held.size_bytes,
    ),
    (
        "antipode_broker_link_hold_max_percent",
        "Largest share (0 to 100) of antipode.link.hold.max.ms or .bytes that a partition uses, at the last pass of retention",
        lambda parts: 100 * parts.logs.held.share,
    ),
    (
        "antipode_broker_quarantine_entries",
        "Entries of the quarantine here",
        lambda parts: parts.replicas.cuts.quarantine.use.entries,
    ),
    (
        "antipode_broker_quarantine_bytes",
        "Bytes of the quarantine here",
        lambda parts: parts.replicas.cuts.quarantine.use.size_bytes,
    ),
    (
        "antipode_broker_quarantine_max_percent",
        "Largest share (0 to 100) of antipode.truncated.records.max.bytes that the quarantine of a partition uses",
        lambda parts: parts.replicas.cuts.quarantine.use.fullest_percent,
    ),
    (
        "antipode_broker_quarantine_expires_in_seconds",
        "Time until the first entry of the quarantine expires; +Inf: none does",
        lambda parts: _seconds_left(parts.replicas.cuts.quarantine.use.expires_in_ms(parts.clock.now_ms())),
    ),
    (
        "antipode_broker_sync_partitions",
        "Partitions of sync links led here: acknowledgements wait for the standby",
        lambda parts: len(parts.replicas.standbys.holds()),
    ),
    (
        "antipode_broker_sync_blocking_partitions",
        "Partitions of sync links with policy block led here: no acknowledgements while the standby is lost",
        lambda parts: sum(not hold.may_degrade for hold in parts.replicas.standbys.holds()),
    ),
    (
        "antipode_broker_sync_degraded_partitions",
        "Partitions of sync links led here that made records visible which the standby may not have",
        lambda parts: sum(hold.is_degraded for hold in parts.replicas.standbys.holds()),
    ),
    (
        "antipode_broker_sync_bound_limited_partitions",
        "Partitions of links with sync policy bound led here whose acknowledgements are throttled or held",
        lambda parts: sum(hold.bound is not None for hold in parts.replicas.standbys.lag_bounded_holds()),
    ),
    (
        "antipode_broker_sync_bound_held_partitions",
        "Partitions of links with sync policy bound led here: no acknowledgements, the standby is behind for too long",
        lambda parts: sum(hold.is_held for hold in parts.replicas.standbys.lag_bounded_holds()),
    ),
    (
        "antipode_broker_sync_bound_max_lag_ms",
        "How far the standby of a partition with sync policy bound is behind at most",
        lambda parts: max((hold.lag_ms for hold in parts.replicas.standbys.lag_bounded_holds()), default=0),
    ),
    (
        "antipode_broker_sync_bound_limited_seconds",
        "How long acknowledgements under sync policy bound were throttled or held, over the partitions led here",
        lambda parts: sum(hold.limited_ms for hold in parts.replicas.standbys.lag_bounded_holds()) / 1000,
    ),
    (
        "kafka_log_logmanager_offlinelogdirectorycount",
        "Log directories that are offline after a failure of their disks",
        lambda parts: len(parts.logs.offline),
    ),
    (
        "antipode_log_stray_folders",
        "Folders of logs that were set aside (`*-stray`): those found at the start, and those since",
        lambda parts: parts.logs.stray_count,
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
        "Time since the last pass over compacted logs ended",
        lambda parts: parts.seconds_since_cleaning(),
    ),
    (
        "antipode_log_scrub_age_seconds",
        "How long ago the log that waits longest was read from the disk and checked, or the broker started",
        lambda parts: parts.scrubber.oldest_pass_ms() / SECOND_MS,
    ),
    (
        "antipode_log_scrub_corrupt_batches",
        "Batches on the disks that the last check found damaged",
        lambda parts: parts.scrubber.corrupt_count(),
    ),
    (
        "antipode_log_scrub_read_bytes",
        "Bytes that were read from the disks for the check since the broker started",
        lambda parts: parts.scrubber.read_bytes,
    ),
    (
        "antipode_failed_logins_refused_addresses",
        "Addresses whose logins are refused for a while because too many have failed",
        lambda parts: parts.connections.failed_logins.refused_count(parts.connections.clock.monotonic_ms()),
    ),
    (
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "Compacted logs with a batch that does not decode",
        lambda parts: parts.logs.cleaning.figures.uncleanable_count,
    ),
    (
        "kafka_server_replicafetchermanager_maxlag",
        "Largest lag of a follower here, in records",
        lambda parts: parts.fetchers.max_lag(),
    ),
    (
        "kafka_server_replicafetchermanager_failedpartitionscount",
        "Partitions that followers here cannot fetch now",
        lambda parts: parts.fetchers.failing_count(),
    ),
    (
        "kafka_server_replicafetchermanager_deadthreadcount",
        "Fetchers stopped by an internal error; each restarts after a pause",
        lambda parts: parts.fetchers.broken_count(),
    ),
    (
        "kafka_server_leaderreplication_byte_rate",
        "Bytes per second of throttled replicas sent to followers",
        lambda parts: parts.replicas.leader_throttle.rate_per_second(parts.clock.monotonic_ms()),
    ),
    (
        "kafka_server_followerreplication_byte_rate",
        "Bytes per second of throttled replicas received from leaders",
        lambda parts: parts.replicas.follower_throttle.rate_per_second(parts.clock.monotonic_ms()),
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
        "kafka_server_socket_server_metrics_connection_count",
        "Open connections",
        lambda parts: len(parts.connections.connections),
    ),
    (
        "kafka_server_socket_server_metrics_request_memory_bytes",
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
        "Connections that are not read because the memory for requests is full",
        lambda parts: parts.connections.memory.waiting_count,
    ),
    (
        "kafka_server_fetchsessioncache_numincrementalfetchsessions",
        "Fetch sessions",
        lambda parts: len(parts.fetch_sessions()),
    ),
    (
        "kafka_server_fetchsessioncache_numincrementalfetchpartitionscached",
        "Partitions of all fetch sessions",
        lambda parts: parts.fetch_sessions().partition_count,
    ),
)


def add_gauges(metrics: BrokerMetrics, parts: GaugeSources) -> None:
    """Show all of them in `metrics`."""
    metrics.log_sizes = lambda: replica_figures.sizes(parts.replicas)
    metrics.follower_lags = lambda: replica_figures.follower_lags(parts.replicas)
    for name, text, read in GAUGES:
        metrics.add_gauge(name, text, partial(read, parts))
    for name, text, read in COUNTERS:
        metrics.add_counter(name, text, partial(read, parts))
    metrics.families += [partial(family, parts) for family in FAMILIES]
