"""Counts since a broker's start that are read at each scrape: names, meanings, functions."""

from __future__ import annotations

from typing import Final

from broker.telemetry.gauge_sources import Read
from runtime.zookeeper.sessions import SessionState

COUNTERS: Final[tuple[tuple[str, str, Read], ...]] = (
    (
        "kafka_server_sessionexpirelistener_zookeeperdisconnects",
        "Connections to ZooKeeper that broke",
        lambda parts: parts.session_changes[SessionState.SUSPENDED],
    ),
    (
        "kafka_server_sessionexpirelistener_zookeeperexpires",
        "ZooKeeper sessions that expired; the broker is not registered until it has a new one",
        lambda parts: parts.session_changes[SessionState.LOST],
    ),
    (
        "kafka_server_sessionexpirelistener_zookeepersyncconnects",
        "Reconnections to ZooKeeper",
        lambda parts: parts.session_changes[SessionState.CONNECTED],
    ),
    (
        "antipode_broker_link_hold_given_up_bytes",
        "Bytes that retention deleted although a standby lacks them, because the limit of held bytes was reached",
        lambda parts: parts.logs.given_up_bytes,
    ),
    (
        "antipode_broker_sync_degradations",
        "How often a partition stopped waiting for a silent standby",
        lambda parts: parts.replicas.degradations,
    ),
    (
        "antipode_broker_truncated_records",
        "Records truncated from logs here because the leader has another history, including control records",
        lambda parts: parts.replicas.cuts.total.records,
    ),
    (
        "antipode_broker_truncated_bytes",
        "Bytes truncated from logs here because the leader has another history",
        lambda parts: parts.replicas.cuts.total.bytes,
    ),
    (
        "antipode_broker_truncated_unkept_bytes",
        "Truncated bytes that were not copied to a file of truncated records first",
        lambda parts: parts.replicas.cuts.total.bytes - parts.replicas.cuts.total.kept_bytes,
    ),
    (
        "antipode_broker_recovery_dropped_bytes",
        "Bytes that recovery dropped at the start: damaged batches of logs, and all behind them",
        lambda parts: parts.logs.dropped_bytes,
    ),
    (
        "antipode_broker_recovery_unkept_bytes",
        "Dropped bytes that are not in a file of truncated records: damaged, or beyond its limit",
        lambda parts: parts.logs.dropped_bytes - parts.logs.dropped_kept_bytes,
    ),
    (
        "kafka_log_logcleaner_cleaned_logs",
        "Compactions of a log",
        lambda parts: parts.logs.cleaning.figures.cleaned_count,
    ),
    (
        "kafka_log_logcleaner_read_bytes",
        "Bytes of segments that compaction replaced",
        lambda parts: parts.logs.cleaning.figures.bytes_before,
    ),
    (
        "kafka_log_logcleaner_kept_bytes",
        "Bytes of segments that compaction put in their place",
        lambda parts: parts.logs.cleaning.figures.bytes_after,
    ),
    (
        "kafka_server_replicamanager_isrexpands",
        "ISR expansions",
        lambda parts: parts.proposals.expansions,
    ),
    (
        "kafka_server_replicamanager_isrshrinks",
        "ISR shrinks",
        lambda parts: parts.proposals.shrinks,
    ),
    (
        "kafka_server_replicamanager_failedisrupdates",
        "Changes of in-sync replicas that the controller refused",
        lambda parts: parts.proposals.failures,
    ),
    (
        "kafka_server_socket_server_metrics_refused_connections",
        "Connections refused because of a limit",
        lambda parts: parts.connections.refused_count,
    ),
    (
        "antipode_failed_logins_refused_connections",
        "Connections closed unread because too many logins of their address had failed",
        lambda parts: parts.connections.refused_logins_count,
    ),
    (
        "kafka_server_socket_server_metrics_idle_connections_closed",
        "Connections closed because they were idle",
        lambda parts: parts.connections.reaped_count,
    ),
    (
        "kafka_server_fetchsessioncache_incrementalfetchsessionevictions",
        "Fetch sessions evicted to make room for others",
        lambda parts: parts.fetch_sessions().eviction_count,
    ),
)
"""Counts since the start; Prometheus sees each name with `_total`."""
