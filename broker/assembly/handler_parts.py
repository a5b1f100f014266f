"""The parts of one broker that its handlers may name as their doors."""

from __future__ import annotations

from msgspec import Struct

from broker.authentication.delegation_tokens import DelegationTokens
from broker.authorization.authorizer import Authorizer
from broker.groups.coordinator import GroupCoordinator
from broker.handlers.configs.config_requests import BrokerConfigChanges
from broker.handlers.configs.group_config_requests import GroupConfigRequests
from broker.handlers.links.topics_changed import ApplyPeerReports
from broker.handlers.records.role_moves import RoleMoves
from broker.handlers.tokens.token_requests import TokenRequests
from broker.log.directories.log_store import LogStore
from broker.metadata.cluster import Cluster
from broker.metadata.metadata_encoding import MetadataCache
from broker.metrics import BrokerMetrics
from broker.quotas.client_throttling import Quotas
from broker.replication.core.fetch_sessions import FetchSessions
from broker.replication.replicas import Replicas
from broker.replication.report_sessions import ReportSessions
from broker.settings.dynamic_configs import DynamicConfigs
from broker.site.access_marks import AccessMarks
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
from runtime.clock import Clock
from wire.control.clients import ControllerClient


class HandlerParts(Struct, frozen=True, kw_only=True):
    """All parts that handlers may use. Read once, when the handlers are bound
    (`broker/handlers/registry.py`); a handler keeps only the parts that its `Doors` names.
    """

    access_marks: AccessMarks
    active_site: ActiveSite
    apply_peer_reports: ApplyPeerReports
    authorizer: Authorizer
    broker_configs: BrokerConfigChanges
    clock: Clock
    cluster: Cluster
    configs: DynamicConfigs
    controlled_shutdown: ControlledShutdown
    controller: ControllerClient
    delegation_tokens: DelegationTokens
    fetch_sessions: FetchSessions
    group_configs: GroupConfigRequests
    group_reports: GroupReports
    groups: GroupCoordinator
    logs: LogStore
    merged_metadata: MetadataCache
    metrics: BrokerMetrics
    producer_ids: ProducerIdSource
    quotas: Quotas
    replicas: Replicas
    report_sessions: ReportSessions
    role_moves: RoleMoves
    site_metadata: MetadataCache
    suspected_brokers: SuspectedBrokers
    token_requests: TokenRequests
    topic_change_reports: TopicChangeReports
    topic_creator: TopicCreator
    transaction_admission: TransactionAdmission
    transaction_markers: TransactionMarkers
    transaction_routing: TransactionRouting
    transactions: TransactionCoordinator
