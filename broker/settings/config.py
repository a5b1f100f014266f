"""A broker's settings under Kafka's own property names, and ours under `antipode.`; read once,
never changed.

Durations and sizes carry their unit in the field's name. Topic-level defaults (`log.*`) keep
Kafka's spelling and are handed to `core/topic_configs.py`, which knows how a topic overrides them.
`loading.py` makes them from properties.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from broker.authentication.listener_security import (
    PROTOCOLS,
)
from broker.metadata.core.read_replicas import LEADER_SELECTOR, SELECTORS
from broker.settings.core.group_configs import ASSIGNOR_NAMES
from broker.settings.group_settings import (
    ASSIGNORS_ACCEPTED,
    PROTOCOLS_ACCEPTED,
    REBALANCE_PROTOCOLS,
    parsed_assignors,
    parsed_protocols,
)
from broker.settings.property_values import (
    AUTHORIZERS,
    Address,
    Listeners,
    parsed_authorizer,
    parsed_counts,
    parsed_mirror_principals,
    parsed_paths,
    parsed_principals,
    parsed_protocol_map,
)
from runtime.addresses import HostPort, checked_zookeeper_connect
from runtime.configuration import Settings
from wire.identity.core.failed_logins import FAILURES_MAX, FAILURES_MAX_KEY, WINDOW_MS, WINDOW_MS_KEY
from wire.rules.delegation_tokens import EXPIRY_CHECK_INTERVAL_MS

SITE_NUMBER_MAX: Final = 1023
MEBIBYTE: Final = 1024 * 1024
INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
CLEANERS_MAX: Final = 64
FETCHERS_MAX: Final = 64
"""More connections to one broker than this are a typing error."""


class BrokerSettings(Settings):
    """All settings of a broker; the alias of a field is its key in a properties file."""

    node_id: int = Field(alias="node.id", ge=0, description="accepted: a node id from 0 up, unique in all linked sites")
    listeners: Listeners = Field(
        alias="listeners", min_length=1, description="accepted: NAME://host:port[,NAME://host:port...]"
    )
    advertised_listeners: Listeners = Field(
        default=(),
        alias="advertised.listeners",
        description="accepted: the form of listeners, with names from listeners",
    )
    listener_protocols: Annotated[dict[str, str], BeforeValidator(parsed_protocol_map)] = Field(
        default={},
        alias="listener.security.protocol.map",
        description=f"accepted: NAME:PROTOCOL[,NAME:PROTOCOL...] with {', '.join(PROTOCOLS)}",
    )
    log_dirs: Annotated[tuple[str, ...], BeforeValidator(parsed_paths)] = Field(
        alias="log.dirs", min_length=1, description="accepted: one or more folders, separated by commas"
    )
    zookeeper_connect: Annotated[str, AfterValidator(checked_zookeeper_connect)] = Field(
        alias="zookeeper.connect", min_length=1, description="accepted: host:port[,...][/chroot]"
    )
    zookeeper_session_timeout_ms: int = Field(default=6000, alias="zookeeper.session.timeout.ms", ge=500)
    zookeeper_connection_timeout_ms: int = Field(default=18_000, alias="zookeeper.connection.timeout.ms", ge=100)
    rack: str = Field(default="", alias="broker.rack")
    replica_selector: str = Field(
        default=LEADER_SELECTOR,
        alias="replica.selector.class",
        pattern="^(" + "|".join(map(re.escape, SELECTORS)) + ")?$",
        description="accepted: " + " or ".join(SELECTORS),
    )

    site_name: str = Field(default="", alias="antipode.site.name", description="accepted: the site's name, such as a")
    cluster_id: str = Field(
        default="",
        alias="antipode.cluster.id",
        description="accepted: the cluster id that linked sites share, or an empty value",
    )
    site_number: int = Field(
        default=0,
        alias="antipode.site.number",
        ge=0,
        le=SITE_NUMBER_MAX,
        description=f"accepted: 0 to {SITE_NUMBER_MAX}",
    )
    grpc_listener: Address = Field(
        default=HostPort("127.0.0.1", 0), alias="antipode.grpc.listener", description="accepted: host:port"
    )
    grpc_advertised: Address | None = Field(
        default=None, alias="antipode.grpc.advertised", description="accepted: host:port"
    )
    metrics_listener: Address | None = Field(
        default=None, alias="antipode.metrics.listener", description="accepted: host:port"
    )
    is_controller_candidate: bool = Field(
        default=True, alias="antipode.controller.candidate", description="accepted: true or false"
    )

    authorizer_class: Annotated[str, AfterValidator(parsed_authorizer)] = Field(
        default="",
        alias="authorizer.class.name",
        description=f"accepted: {', '.join(AUTHORIZERS)}, which are all the same one, or an empty value for none",
    )
    super_users: Annotated[tuple[str, ...], BeforeValidator(parsed_principals)] = Field(
        default=(), alias="super.users", description="accepted: User:name[;User:name...]"
    )
    mirror_principals: Annotated[dict[str, frozenset[str]], BeforeValidator(parsed_mirror_principals)] = Field(
        default={}, alias="antipode.mirror.principals", description="accepted: LINK=User:name[;LINK=User:name...]"
    )
    """Links by the principal of their mirrors; other principals have no limit of links."""
    allows_everyone_without_acl: bool = Field(default=False, alias="allow.everyone.if.no.acl.found")
    token_lifetime_ms_max: int = Field(default=604_800_000, alias="delegation.token.max.lifetime.ms", ge=1)
    token_expiry_ms: int = Field(default=86_400_000, alias="delegation.token.expiry.time.ms", ge=1)
    token_expiry_check_ms: int = Field(default=3_600_000, alias=EXPIRY_CHECK_INTERVAL_MS, ge=1)
    """For the controller candidate of the process, as are some below; brokers describe it."""
    default_partition_count: int = Field(default=1, alias="num.partitions", ge=1)
    default_replication_factor: int = Field(default=1, alias="default.replication.factor", ge=1)
    may_delete_topics: bool = Field(default=True, alias="delete.topic.enable")
    is_balancing: bool = Field(default=True, alias="auto.leader.rebalance.enable")
    imbalance_check_interval_s: int = Field(default=300, alias="leader.imbalance.check.interval.seconds", ge=1)
    imbalance_percentage: int = Field(default=10, alias="leader.imbalance.per.broker.percentage", ge=0, le=100)
    """This and the three before it are for the controller candidate of the process, which reads the
    same file; brokers describe them.
    """
    may_auto_create_topics: bool = Field(default=True, alias="auto.create.topics.enable")
    send_buffer_bytes: int = Field(default=-1, alias="socket.send.buffer.bytes", ge=-1)
    receive_buffer_bytes: int = Field(default=-1, alias="socket.receive.buffer.bytes", ge=-1)
    request_bytes_max: int = Field(default=100 * MEBIBYTE, alias="socket.request.max.bytes", ge=1024, le=INT_MAX)
    queued_request_bytes_max: int = Field(default=64 * MEBIBYTE, alias="queued.max.request.bytes", ge=-1)
    connections_max: int = Field(default=INT_MAX, alias="max.connections", ge=1)
    connections_per_address_max: int = Field(default=INT_MAX, alias="max.connections.per.ip", ge=0)
    connections_per_address_overrides: Annotated[dict[str, int], BeforeValidator(parsed_counts)] = Field(
        default={}, alias="max.connections.per.ip.overrides", description="accepted: host:count[,host:count...]"
    )
    connection_creation_rate_max: int = Field(default=INT_MAX, alias="max.connection.creation.rate", ge=1)
    failed_logins_max: int = Field(
        default=FAILURES_MAX, alias=FAILURES_MAX_KEY, ge=0, description="accepted: a whole number, 0 for no limit"
    )
    failed_logins_window_ms: int = Field(default=WINDOW_MS, alias=WINDOW_MS_KEY, ge=1)
    connection_idle_ms_max: int = Field(default=600_000, alias="connections.max.idle.ms", ge=1)
    fetch_bytes_max: int = Field(default=55 * MEBIBYTE, alias="fetch.max.bytes", ge=1024)
    fetch_session_slots: int = Field(default=1000, alias="max.incremental.fetch.session.cache.slots", ge=0)
    message_bytes_max: int = Field(default=MEBIBYTE + 12, alias="message.max.bytes", ge=0)
    log_retention_check_interval_ms: int = Field(default=300_000, alias="log.retention.check.interval.ms", ge=1)
    log_cleaner_backoff_ms: int = Field(default=15_000, alias="log.cleaner.backoff.ms", ge=1)
    is_log_cleaner_enabled: bool = Field(default=True, alias="log.cleaner.enable")
    log_cleaner_threads: int = Field(default=1, alias="log.cleaner.threads", ge=1, le=CLEANERS_MAX)
    log_cleaner_bytes_per_second_max: float = Field(
        default=0.0, alias="log.cleaner.io.max.bytes.per.second", ge=0, description="accepted: bytes, 0 for no limit"
    )
    log_move_bytes_per_second_max: int = Field(
        default=LONG_MAX, alias="replica.alter.log.dirs.io.max.bytes.per.second", ge=1
    )
    recovery_threads: int = Field(default=2, alias="num.recovery.threads.per.data.dir", ge=1)
    log_flush_scheduler_interval_ms: int = Field(default=3000, alias="log.flush.scheduler.interval.ms", ge=1)
    log_checkpoint_interval_ms: int = Field(default=60_000, alias="log.flush.offset.checkpoint.interval.ms", ge=1)
    inter_broker_listener: str = Field(
        default="",
        alias="inter.broker.listener.name",
        description="accepted: a name from listeners, or an empty value for the first one",
    )
    inter_broker_protocol: str = Field(
        default="", alias="security.inter.broker.protocol", description=f"accepted: {', '.join(PROTOCOLS)}"
    )
    replica_lag_ms_max: int = Field(default=30_000, alias="replica.lag.time.max.ms", ge=100)
    replica_fetch_wait_ms_max: int = Field(default=500, alias="replica.fetch.wait.max.ms", ge=1)
    replica_fetch_bytes_min: int = Field(default=1, alias="replica.fetch.min.bytes", ge=0)
    replica_fetch_bytes_max: int = Field(default=MEBIBYTE, alias="replica.fetch.max.bytes", ge=1)
    replica_fetch_response_bytes_max: int = Field(default=10 * MEBIBYTE, alias="replica.fetch.response.max.bytes", ge=1)
    replica_fetcher_count: int = Field(default=1, alias="num.replica.fetchers", ge=1, le=FETCHERS_MAX)
    leader_throttle_bytes_per_second: int = Field(
        default=LONG_MAX, alias="leader.replication.throttled.rate", ge=0, description="accepted: bytes per second"
    )
    follower_throttle_bytes_per_second: int = Field(
        default=LONG_MAX, alias="follower.replication.throttled.rate", ge=0, description="accepted: bytes per second"
    )
    throttle_window_count: int = Field(default=11, alias="replication.quota.window.num", ge=1)
    throttle_window_s: int = Field(default=1, alias="replication.quota.window.size.seconds", ge=1)
    replica_fetch_backoff_ms: int = Field(default=1000, alias="replica.fetch.backoff.ms", ge=1)
    replica_socket_timeout_ms: int = Field(default=30_000, alias="replica.socket.timeout.ms", ge=100)
    truncated_bytes_kept_max: int = Field(
        default=64 * MEBIBYTE,
        alias="antipode.truncated.records.max.bytes",
        ge=0,
        description="accepted: bytes kept for each partition, 0 to keep nothing",
    )
    quarantine_retention_ms: int = Field(
        default=-1,
        alias="antipode.quarantine.retention.ms",
        ge=-1,
        description="accepted: milliseconds after which an entry of the quarantine is deleted, -1 to keep all",
    )
    link_hold_ms_max: int = Field(
        default=3_600_000,
        alias="antipode.link.hold.max.ms",
        ge=0,
        description="accepted: milliseconds beyond retention.ms, 0 to keep nothing for standbys",
    )
    link_hold_bytes_max: int = Field(
        default=1024 * MEBIBYTE,
        alias="antipode.link.hold.max.bytes",
        ge=0,
        description="accepted: bytes of each partition beyond its retention, 0 to keep nothing for standbys",
    )
    arbiter_connect: str = Field(
        default="", alias="antipode.arbiter.connect", description="accepted: host:port[,...][/chroot], or nothing"
    )
    arbiter_session_timeout_ms: int = Field(default=10_000, alias="antipode.arbiter.session.timeout.ms", ge=500)
    log_scrub_interval_ms: int = Field(
        default=86_400_000,
        alias="antipode.log.scrub.interval.ms",
        ge=1,
        description="accepted: milliseconds between two readings of a log",
    )
    log_scrub_bytes_per_second_max: int = Field(
        default=10 * MEBIBYTE,
        alias="antipode.log.scrub.max.bytes.per.second",
        ge=0,
        description="accepted: bytes read in a second, 0 to check nothing",
    )
    high_watermark_checkpoint_interval_ms: int = Field(
        default=5000, alias="replica.high.watermark.checkpoint.interval.ms", ge=1
    )
    shutdown_grace_ms: int = Field(default=5000, alias="antipode.shutdown.grace.ms", ge=0)
    is_shutdown_controlled: bool = Field(default=True, alias="controlled.shutdown.enable")
    controlled_shutdown_retries_max: int = Field(default=3, alias="controlled.shutdown.max.retries", ge=0)
    controlled_shutdown_backoff_ms: int = Field(default=500, alias="controlled.shutdown.retry.backoff.ms", ge=0)

    offsets_partition_count: int = Field(default=50, alias="offsets.topic.num.partitions", ge=1)
    offsets_replication_factor: int = Field(default=3, alias="offsets.topic.replication.factor", ge=1)
    offsets_segment_bytes: int = Field(default=100 * MEBIBYTE, alias="offsets.topic.segment.bytes", ge=1024)
    offsets_retention_minutes: int = Field(default=10_080, alias="offsets.retention.minutes", ge=1)
    offsets_retention_check_interval_ms: int = Field(default=600_000, alias="offsets.retention.check.interval.ms", ge=1)
    offset_metadata_bytes_max: int = Field(default=4096, alias="offset.metadata.max.bytes", ge=0)
    offsets_commit_timeout_ms: int = Field(default=5000, alias="offsets.commit.timeout.ms", ge=1)
    group_initial_rebalance_delay_ms: int = Field(default=3000, alias="group.initial.rebalance.delay.ms", ge=0)
    group_session_timeout_ms_min: int = Field(default=6000, alias="group.min.session.timeout.ms", ge=1)
    group_session_timeout_ms_max: int = Field(default=1_800_000, alias="group.max.session.timeout.ms", ge=1)
    consumer_session_timeout_ms: int = Field(default=45_000, alias="group.consumer.session.timeout.ms", ge=1)
    consumer_heartbeat_interval_ms: int = Field(default=5000, alias="group.consumer.heartbeat.interval.ms", ge=1)
    consumer_session_timeout_ms_min: int = Field(
        default=45_000, alias="group.consumer.min.session.timeout.ms", ge=1, description="accepted: 1 or more"
    )
    consumer_session_timeout_ms_max: int = Field(
        default=60_000, alias="group.consumer.max.session.timeout.ms", ge=1, description="accepted: 1 or more"
    )
    consumer_heartbeat_interval_ms_min: int = Field(
        default=5000, alias="group.consumer.min.heartbeat.interval.ms", ge=1, description="accepted: 1 or more"
    )
    consumer_heartbeat_interval_ms_max: int = Field(
        default=15_000, alias="group.consumer.max.heartbeat.interval.ms", ge=1, description="accepted: 1 or more"
    )
    consumer_assignors: Annotated[tuple[str, ...], BeforeValidator(parsed_assignors)] = Field(
        default=ASSIGNOR_NAMES, alias="group.consumer.assignors", description=f"accepted: {ASSIGNORS_ACCEPTED}"
    )
    rebalance_protocols: Annotated[tuple[str, ...], BeforeValidator(parsed_protocols)] = Field(
        default=REBALANCE_PROTOCOLS,
        alias="group.coordinator.rebalance.protocols",
        description=f"accepted: {PROTOCOLS_ACCEPTED}",
    )
    consumer_migration_policy: Literal["bidirectional", "upgrade", "downgrade", "disabled"] = Field(
        default="bidirectional",
        alias="group.consumer.migration.policy",
        description="accepted: bidirectional, upgrade, downgrade or disabled",
    )
    consumer_group_size_max: int = Field(default=INT_MAX, alias="group.consumer.max.size", ge=1)
    group_size_max: int = Field(default=INT_MAX, alias="group.max.size", ge=1)
    transaction_state_partition_count: int = Field(default=50, alias="transaction.state.log.num.partitions", ge=1)
    transaction_state_replication_factor: int = Field(default=3, alias="transaction.state.log.replication.factor", ge=1)
    transaction_state_min_isr: int = Field(default=2, alias="transaction.state.log.min.isr", ge=1)
    transaction_state_segment_bytes: int = Field(
        default=100 * MEBIBYTE, alias="transaction.state.log.segment.bytes", ge=1024
    )
    transaction_timeout_ms_max: int = Field(default=900_000, alias="transaction.max.timeout.ms", ge=1)
    transactional_id_expiration_ms: int = Field(default=604_800_000, alias="transactional.id.expiration.ms", ge=1)
    transactional_id_cleanup_interval_ms: int = Field(
        default=3_600_000, alias="transaction.remove.expired.transaction.cleanup.interval.ms", ge=1
    )
    is_transaction_partition_verified: bool = Field(default=True, alias="transaction.partition.verification.enable")
    quota_window_count: int = Field(default=11, alias="quota.window.num", ge=1)
    quota_window_s: int = Field(default=1, alias="quota.window.size.seconds", ge=1)
    controller_quota_window_count: int = Field(default=11, alias="controller.quota.window.num", ge=1)
    controller_quota_window_s: int = Field(default=1, alias="controller.quota.window.size.seconds", ge=1)
    producer_id_expiration_ms: int = Field(default=86_400_000, alias="producer.id.expiration.ms", ge=1)

    properties: dict[str, str] = Field(default={}, exclude=True)
    """All keys as given: core/topic_configs.py finds the site-wide defaults of topic configs in
    them.
    """

    @property
    def log_dir(self) -> str:
        """The first log folder, where the cluster-wide files live."""
        return self.log_dirs[0]

    @property
    def site(self) -> str:
        """The site's name; a broker that was given none is a site of its own."""
        return self.site_name or "local"
