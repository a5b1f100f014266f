"""Settings of a controller candidate, by Kafka's names where Kafka has one.

The same properties file configures a whole broker process; keys for other parts are left alone.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from controller.balance_rule import BalanceRule
from controller.core.state.site_values import SiteRules
from runtime.addresses import HostPort, checked_zookeeper_connect, parse_host_port
from runtime.configuration import Settings
from wire.rules.delegation_tokens import EXPIRY_CHECK_INTERVAL_MS
from wire.rules.producer_ids import PRODUCER_IDS_PER_SITE

Address = Annotated[
    HostPort, BeforeValidator(lambda value: parse_host_port(value) if isinstance(value, str) else value)
]


class ControllerSettings(Settings):
    """The settings of a controller candidate."""

    node_id: int = Field(alias="node.id", ge=0, description="a whole number from 0; unique among the sites' nodes")
    zookeeper_connect: Annotated[str, AfterValidator(checked_zookeeper_connect)] = Field(
        alias="zookeeper.connect", min_length=1, description="host:port[,host:port...] of the site's own ZooKeeper"
    )
    zookeeper_session_timeout_ms: int = Field(
        6000, alias="zookeeper.session.timeout.ms", ge=500, le=120_000, description="500 to 120000 ms"
    )
    zookeeper_connection_timeout_ms: int = Field(
        10_000, alias="zookeeper.connection.timeout.ms", ge=100, description="at least 100 ms"
    )
    site_name: str = Field(
        alias="antipode.site.name", pattern=r"^[A-Za-z0-9_-]+$", description="letters, digits, - and _"
    )
    site_number: int = Field(
        0, alias="antipode.site.number", ge=0, le=1023, description="0 to 1023; unique among the sites"
    )
    cluster_id: str = Field(
        "",
        alias="antipode.cluster.id",
        description="shared by the sites of a link; empty: the stored id, or a new one",
    )
    grpc_listener: Address = Field(
        HostPort("127.0.0.1", 0),
        alias="antipode.grpc.listener",
        description="host:port; used only by a separate controller process",
    )
    grpc_advertised: Address | None = Field(
        None, alias="antipode.grpc.advertised", description="host:port at which brokers reach it"
    )
    metrics_listener: Address | None = Field(
        None, alias="antipode.metrics.listener", description="host:port; empty: no metrics"
    )
    default_partition_count: int = Field(1, alias="num.partitions", ge=1, description="at least 1")
    default_replication_factor: int = Field(1, alias="default.replication.factor", ge=1, description="at least 1")
    replication_factor_max: int = Field(
        32_767,
        alias="antipode.replication.factor.max",
        ge=1,
        description="at least 1; topics with more replicas are refused",
    )
    may_elect_unclean: bool = Field(default=False, alias="unclean.leader.election.enable", description="true or false")
    may_delete_topics: bool = Field(default=True, alias="delete.topic.enable", description="true or false")
    apply_wait_ms: int = Field(
        5000,
        alias="antipode.controller.apply.wait.ms",
        ge=0,
        description="ms that a reply to a client waits until the brokers apply the change; at most the client's own timeout",
    )
    apply_timeout_ms: int = Field(
        30_000,
        alias="controller.socket.timeout.ms",
        ge=100,
        description="at least 100 ms; a broker that takes longer to apply a batch gets a full image",
    )
    deletion_retry_ms: int = Field(
        10_000, alias="antipode.controller.deletion.retry.ms", ge=100, description="at least 100 ms"
    )

    token_expiry_check_ms: int = Field(3_600_000, alias=EXPIRY_CHECK_INTERVAL_MS, ge=1, description="at least 1 ms")
    is_balancing: bool = Field(default=True, alias="auto.leader.rebalance.enable", description="true or false")
    imbalance_check_interval_s: int = Field(
        300, alias="leader.imbalance.check.interval.seconds", ge=1, description="at least 1 s"
    )
    imbalance_percentage: int = Field(
        10, alias="leader.imbalance.per.broker.percentage", ge=0, le=100, description="0 to 100"
    )

    def balance(self) -> BalanceRule | None:
        """The rule by which leaderships return to preferred brokers; None when they never do."""
        if not self.is_balancing:
            return None
        return BalanceRule(interval_s=self.imbalance_check_interval_s, imbalance_percentage=self.imbalance_percentage)

    def rules(self) -> SiteRules:
        """The settings that decisions need."""
        return SiteRules(
            site=self.site_name,
            default_partition_count=self.default_partition_count,
            default_replication_factor=self.default_replication_factor,
            replication_factor_max=self.replication_factor_max,
            may_elect_unclean=self.may_elect_unclean,
            may_delete_topics=self.may_delete_topics,
        )

    @property
    def first_producer_id(self) -> int:
        """The start of the site's range of producer ids."""
        return self.site_number * PRODUCER_IDS_PER_SITE
