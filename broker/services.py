"""The services that every handler may use, in one value.

Built once by `main.py`. The image is the only thing here that changes; `services.image` is always
the newest, and a handler that must see one image throughout reads it once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage, TopicImage
from broker.metadata.metadata_encoding import MetadataCache
from broker.replication.core.fetch_sessions import FetchSessions
from broker.settings.config import BrokerSettings
from runtime.clock import Clock

if TYPE_CHECKING:
    from broker.authentication.delegation_tokens import DelegationTokens
    from broker.authorization.authorizer import Authorizer
    from broker.groups.coordinator import GroupCoordinator
    from broker.log.directories.log_store import LogStore
    from broker.metrics import BrokerMetrics
    from broker.quotas.client_throttling import Quotas
    from broker.replication.replicas import Replicas
    from broker.settings.config_store import BrokerConfigStore
    from broker.settings.dynamic_configs import DynamicConfigs
    from broker.site.active_site import ActiveSite
    from broker.site.controlled_shutdown import ControlledShutdown
    from broker.site.group_reports import GroupReports
    from broker.site.suspected_brokers import SuspectedBrokers
    from broker.site.topic_change_reports import TopicChangeReports
    from broker.site.topic_creation import TopicCreator
    from broker.transactions.producer_id_source import ProducerIdSource
    from broker.transactions.transaction_admission import TransactionAdmission
    from broker.transactions.transaction_coordinator import TransactionCoordinator
    from broker.transactions.transaction_markers import TransactionMarkers
    from broker.transactions.transaction_routing import TransactionRouting
    from wire.control.clients import ControllerClient


ApplyPeerReports = Callable[[str, "Sequence[tuple[TopicImage, bool]]"], Awaitable[None]]
"""Takes over topics that a broker of a peer site reports, each with whether it was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerServices:
    """The parts of one broker."""

    configs: DynamicConfigs
    config_store: BrokerConfigStore
    clock: Clock
    cluster: Cluster
    replicas: Replicas
    logs: LogStore
    groups: GroupCoordinator
    group_reports: GroupReports
    producer_ids: ProducerIdSource
    transactions: TransactionCoordinator
    transaction_routing: TransactionRouting
    transaction_admission: TransactionAdmission
    transaction_markers: TransactionMarkers
    controller: ControllerClient
    authorizer: Authorizer
    delegation_tokens: DelegationTokens
    active_site: ActiveSite
    topic_change_reports: TopicChangeReports
    apply_peer_reports: ApplyPeerReports
    metrics: BrokerMetrics
    quotas: Quotas
    fetch_sessions: FetchSessions
    suspected_brokers: SuspectedBrokers
    controlled_shutdown: ControlledShutdown
    topic_creator: TopicCreator
    merged_metadata: MetadataCache
    site_metadata: MetadataCache

    @property
    def config(self) -> BrokerSettings:
        """The settings in force."""
        return self.configs.current

    @property
    def image(self) -> ClusterImage:
        """The newest image."""
        return self.cluster.image
