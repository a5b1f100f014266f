"""The serving side of one broker: the handlers with the parts that they use, the dispatcher, and
the listeners with their limits.
"""

from __future__ import annotations

from broker.assembly.coordination import Coordination
from broker.assembly.doors import Doors, SiteMembership
from broker.assembly.handler_parts import HandlerParts
from broker.assembly.replication import Replication
from broker.assembly.storage import Storage
from broker.authentication.delegation_tokens import DelegationTokens, read_token_secret
from broker.authentication.entrances import Entrances
from broker.authentication.inter_broker import InterBroker
from broker.authorization.authorizer import Authorizer
from broker.dispatch import Dispatcher
from broker.handlers.configs.config_requests import BrokerConfigChanges
from broker.handlers.configs.group_config_requests import GroupConfigRequests
from broker.handlers.records.role_moves import RoleMoves
from broker.handlers.registry import bind_handlers
from broker.handlers.tokens.token_requests import TokenRequests
from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.metadata_encoding import MetadataCache
from broker.metrics import BrokerMetrics
from broker.network.connection_limits import HostAddresses
from broker.network.connection_server import ConnectionServer
from broker.network.request_memory import RequestMemory
from broker.quotas.client_throttling import Quotas
from broker.replication.core.fetch_sessions import FetchSessions
from broker.replication.report_sessions import ReportSessions
from broker.settings.config import BrokerSettings
from broker.settings.core.broker_configs import is_certificate_property
from broker.settings.dynamic_configs import DynamicConfigs
from broker.settings.loading import listener_security
from broker.site.access_marks import AccessMarks
from broker.site.active_site import ActiveSite
from broker.site.control_service import BrokerControlService
from broker.site.controlled_shutdown import ControlledShutdown
from broker.site.forwarded_writes import ForwardedWrites
from broker.site.suspected_brokers import SuspectedBrokers
from broker.site.topic_change_reports import TopicChangeReports
from broker.site.topic_creation import TopicCreator
from runtime.addresses import HostPort
from runtime.process import OperationalFailure
from wire.control.clients import ControllerClient

FETCH_SESSION_EVICTION_MS = 120_000
SESSION_ID_MAX = (1 << 31) - 1
UNBOUNDED = 1 << 62


class Serving:
    """The handlers and listeners of one broker. Call `bind` before the logs are opened, and `open`
    to accept clients.
    """

    def __init__(
        self,
        configs: DynamicConfigs,
        doors: Doors,
        *,
        metrics: BrokerMetrics,
        cluster: Cluster,
        storage: Storage,
        replication: Replication,
        coordination: Coordination,
        membership: SiteMembership,
        controller: ControllerClient,
        control: BrokerControlService,
        suspected_brokers: SuspectedBrokers,
        inter_broker: InterBroker,
    ) -> None:
        self._settings = settings = configs.current
        self._configs = configs
        self.quotas = Quotas(settings, doors.clock)
        self._tokens = DelegationTokens(read_token_secret(settings.properties), doors.clock)
        self.authorizer = Authorizer(settings, lambda: cluster.image)
        metrics.families.append(self.authorizer.metric_families)
        self._active_site = ActiveSite(inter_broker.secured)
        self._forwarded_writes = ForwardedWrites(inter_broker.secured)
        self._topic_change_reports = TopicChangeReports(inter_broker.secured)
        self.controlled_shutdown = ControlledShutdown()
        self.topic_creator = TopicCreator(settings, controller)
        self.fetch_sessions = _fetch_sessions(settings, doors, replication)
        self._access_marks = AccessMarks(cluster, doors.clock, settings.node_id)
        parts = HandlerParts(
            access_marks=self._access_marks,
            active_site=self._active_site,
            apply_peer_reports=control.apply_peer_reports,
            authorizer=self.authorizer,
            broker_configs=BrokerConfigChanges(configs, membership.configs),
            clock=doors.clock,
            cluster=cluster,
            configs=configs,
            controlled_shutdown=self.controlled_shutdown,
            controller=controller,
            delegation_tokens=self._tokens,
            fetch_sessions=self.fetch_sessions,
            group_configs=GroupConfigRequests(cluster, coordination.groups, controller, self._active_site),
            group_reports=coordination.group_reports,
            groups=coordination.groups,
            logs=storage.logs,
            merged_metadata=MetadataCache(is_merged=True),
            metrics=metrics,
            producer_ids=coordination.producer_ids,
            quotas=self.quotas,
            replicas=replication.replicas,
            report_sessions=_report_sessions(doors, replication),
            role_moves=RoleMoves(cluster, self._forwarded_writes, doors.clock),
            site_metadata=MetadataCache(is_merged=False),
            suspected_brokers=suspected_brokers,
            token_requests=TokenRequests(self._tokens, controller, self._active_site, self.authorizer),
            topic_change_reports=self._topic_change_reports,
            topic_creator=self.topic_creator,
            transaction_admission=coordination.admission,
            transaction_markers=coordination.markers,
            transaction_routing=coordination.routing,
            transactions=coordination.transactions,
        )
        self.dispatcher = Dispatcher(
            bind_handlers(parts), authorizer=self.authorizer, quotas=self.quotas, metrics=metrics, clock=doors.clock
        )
        self.entrances = Entrances(listener_security(settings), inter_broker.read_again, self._tokens, doors.clock)
        self._certificates = {key: value for key, value in settings.properties.items() if is_certificate_property(key)}
        self._host_addresses = HostAddresses()
        self.connections = self._make_connections(doors)

    def _make_connections(self, doors: Doors) -> ConnectionServer:
        settings = self._settings
        bound = settings.queued_request_bytes_max
        return ConnectionServer(
            self.dispatcher,
            self._host_addresses.limits(settings),
            RequestMemory(bound if bound > 0 else UNBOUNDED),
            doors.clock,
            self.quotas.connections,
            # Brokers reach each other even when clients have used up the connections.
            exempt_listener=_listener_between_brokers(settings),
            sockets=doors.sockets,
        )

    async def on_image(self, before: ClusterImage, after: ClusterImage) -> None:
        """Take the users and the tokens of a new image."""
        if before.scram_users is not after.scram_users:
            self.entrances.users.take(after.scram_users)
        if before.delegation_tokens is not after.delegation_tokens:
            self._tokens.take(after.delegation_tokens)

    async def bind(self) -> dict[str, int]:
        """Bind every listener; return the ports by listener name. Raises OperationalFailure when an
        address is taken.
        """
        await self._host_addresses.look_up(self._settings.connections_per_address_overrides)
        self._limit_connections()
        return {listener.name: self._bind(listener.name, listener.address) for listener in self._settings.listeners}

    def _bind(self, name: str, address: HostPort) -> int:
        try:
            entrance = self.entrances.by_listener[name]
            return self.connections.listen(name, address.host, address.port, entrance)
        except OSError as error:
            raise OperationalFailure(
                f"listener {name} cannot be bound to {address} ({error.strerror}): is another process using it?"
            ) from error

    def apply_configs(self, settings: BrokerSettings) -> None:
        """Apply altered certificates and connection limits."""
        certificates = {key: value for key, value in settings.properties.items() if is_certificate_property(key)}
        # Only if their properties have changed: the entrances watch the files by themselves.
        if certificates != self._certificates:
            self._certificates = certificates
            self.entrances.take(listener_security(settings))
        self._limit_connections()
        self._host_addresses.look_up_later(settings.connections_per_address_overrides, self._limit_connections)

    def _limit_connections(self) -> None:
        self.connections.limits = self._host_addresses.limits(self._configs.current)

    def open(self) -> None:
        """Begin to accept clients."""
        self.entrances.start()
        self.connections.start_accepting()

    def close_doors(self) -> None:
        """Stop accepting clients; connected clients are still served."""
        self._host_addresses.stop()
        self.connections.stop_accepting()

    async def drain(self) -> None:
        """Answer waiting requests, then close the connections."""
        self._access_marks.stop()
        await self.connections.stop(grace_s=self._settings.shutdown_grace_ms / 1000)
        await self.entrances.stop()

    async def close_clients(self) -> None:
        """Close the connections to the other site's brokers."""
        await self._active_site.close()
        await self._forwarded_writes.close()
        await self._topic_change_reports.close()


def _report_sessions(doors: Doors, replication: Replication) -> ReportSessions:
    return ReportSessions(replication.replicas, new_id=lambda: doors.chance.randint(1, SESSION_ID_MAX))


def _fetch_sessions(settings: BrokerSettings, doors: Doors, replication: Replication) -> FetchSessions:
    return FetchSessions(
        slots=settings.fetch_session_slots,
        eviction_ms=FETCH_SESSION_EVICTION_MS,
        new_id=lambda: doors.chance.randint(1, SESSION_ID_MAX),
        on_closed=replication.replicas.purgatory.sessions.unwatch,
    )


def _listener_between_brokers(settings: BrokerSettings) -> str:
    """The listener between brokers; "" if clients use it too."""
    own = settings.inter_broker_listener or settings.listeners[0].name
    return own if len(settings.listeners) > 1 else ""
