"""One broker, put together: logs, replicas, listeners, registration; started and stopped in the right order.

Start: bind the listeners (a taken port is known before anything is written), agree on the cluster id, lock and recover the logs,
register; clients are let in when the controller has sent the first whole image. Stop: no new connections, answer what waits, drain,
flush, checkpoint and mark the logs clean, and only then leave ZooKeeper. Composed by `cli`, which owns the gRPC and metrics servers.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Protocol

from broker.active_site import ActiveSite
from broker.config import BrokerSettings
from broker.connection_server import ConnectionLimits, ConnectionServer
from broker.control_service import BrokerControlService
from broker.controller_client import ControllerClient
from broker.coordinator import GroupCoordinator, group_limits
from broker.core.cluster_image import OFFSETS_TOPIC, ClusterImage
from broker.core.fetch_sessions import FetchSessions
from broker.core.topic_configs import InvalidTopicConfig, LogConfig
from broker.dispatch import Dispatcher
from broker.group_routing import ImageRouting
from broker.hanging_transactions import HangingTransactions
from broker.housekeeping import Housekeeping
from broker.internal_log import InternalLog
from broker.log.checkpoints import META_PROPERTIES, read_meta_properties
from broker.log.errors import StorageError
from broker.log.log_store import LogStore
from broker.log.recovery import RecoveryReport
from broker.marker_sender import MarkerSender
from broker.metadata_encoding import MetadataCache
from broker.metrics import BrokerMetrics
from broker.peer_brokers import PeerBrokers
from broker.producer_id_source import ProducerIdSource
from broker.purgatory import Purgatory
from broker.replicas import Replicas
from broker.request_memory import RequestMemory
from broker.services import BrokerServices, Cluster
from broker.topic_creation import TopicCreator
from broker.transaction_admission import TransactionAdmission
from broker.transaction_coordinator import TransactionCoordinator, transaction_limits
from broker.transaction_markers import TransactionMarkers
from broker.transaction_routing import TransactionRouting
from runtime.addresses import HostPort, reachable_address
from runtime.clock import Clock, SystemClock
from runtime.configuration import ConfigurationError
from runtime.disk import RealDisk
from runtime.grpc_server import GrpcServer
from runtime.logs import get_logger
from runtime.process import OperationalFailure
from wire import znodes
from wire.control import broker_pb2_grpc
from wire.transaction_records import TRANSACTIONS_TOPIC

log = get_logger(__name__)

SERVICE_NAME = "antipode.control.BrokerControl"
FETCH_SESSION_EVICTION_MS = 120_000


class SiteMembership(Protocol):
    """What a broker needs of its site's ZooKeeper (`membership.py`; tests have a lone one)."""

    broker_epoch: int

    async def cluster_id(self, *, known: str | None) -> str:
        """The site's cluster id."""
        ...

    async def register(self, registration: znodes.BrokerRegistration) -> None:
        """Register, now and after every lost session."""
        ...

    async def controller_address(self) -> str:
        """gRPC address of the active controller, empty when none is known."""
        ...

    async def unregister(self) -> None:
        """Leave."""
        ...


class Broker:
    """A broker of one site; make it inside the running loop, before the gRPC server starts."""

    def __init__(
        self, settings: BrokerSettings, grpc_server: GrpcServer, membership: SiteMembership, clock: Clock | None = None
    ) -> None:
        self.settings = settings
        self.metrics = BrokerMetrics()
        self._clock = clock or SystemClock()
        self._membership = membership
        self._disk = RealDisk()
        self._cluster = Cluster(ClusterImage(site=settings.site, node_id=settings.node_id))
        self._logs = LogStore(settings.log_dirs, self._disk, now_ms=self._clock.now_ms, roll_jitter=random.random)
        self._controller = ControllerClient(membership.controller_address)
        self._active_site = ActiveSite()
        self._replicas = Replicas(
            settings,
            self._clock,
            self._logs,
            self.metrics,
            fetches=Purgatory(self._clock),
            produces=Purgatory(self._clock),
        )
        self._groups = GroupCoordinator(
            group_limits(settings),
            InternalLog(OFFSETS_TOPIC, self._replicas, commit_timeout_ms=settings.offsets_commit_timeout_ms),
            ImageRouting(lambda: self._cluster.image),
            self._clock,
            expiry_interval_ms=settings.offsets_retention_check_interval_ms,
        )
        self._producer_ids = ProducerIdSource(
            settings.node_id, self._controller, broker_epoch=lambda: membership.broker_epoch
        )
        self._peers = PeerBrokers(lambda: self._cluster.image, settings.inter_broker_listener)
        self._transaction_routing = TransactionRouting(lambda: self._cluster.image)
        self._transaction_markers = TransactionMarkers(
            lambda: self._cluster.image, self._replicas, self._groups, self._clock
        )
        self._transactions = TransactionCoordinator(
            transaction_limits(settings),
            InternalLog(TRANSACTIONS_TOPIC, self._replicas, commit_timeout_ms=settings.offsets_commit_timeout_ms),
            self._transaction_routing,
            self._clock,
            producer_ids=self._producer_ids,
            markers=MarkerSender(lambda: self._cluster.image, self._transaction_markers, self._peers),
            expiry_interval_ms=settings.transactional_id_cleanup_interval_ms,
        )
        self._hanging = HangingTransactions(self._replicas, self._transaction_markers)
        self._services = self._make_services()
        memory = RequestMemory(settings.queued_request_bytes_max if settings.queued_request_bytes_max > 0 else 1 << 62)
        self._connections = ConnectionServer(Dispatcher(self._services), _limits(settings), memory, self._clock)
        self._control = BrokerControlService(
            settings.node_id, self._cluster, self._replicas, broker_epoch=lambda: membership.broker_epoch
        )
        broker_pb2_grpc.add_BrokerControlServicer_to_server(self._control, grpc_server.server)  # type: ignore[no-untyped-call]
        grpc_server.add_service_name(SERVICE_NAME)
        self._housekeeping = Housekeeping(settings, self._logs, self._cluster)
        self._ports: dict[str, int] = {}
        self._is_open = False
        self.ready = asyncio.Event()
        self._add_gauges()

    def _make_services(self) -> BrokerServices:
        settings = self.settings
        return BrokerServices(
            config=settings,
            clock=self._clock,
            cluster=self._cluster,
            replicas=self._replicas,
            groups=self._groups,
            producer_ids=self._producer_ids,
            transactions=self._transactions,
            transaction_routing=self._transaction_routing,
            transaction_admission=TransactionAdmission(
                settings.node_id, self._transaction_routing, self._transactions, self._peers
            ),
            transaction_markers=self._transaction_markers,
            controller=self._controller,
            active_site=self._active_site,
            metrics=self.metrics,
            fetch_sessions=FetchSessions(
                slots=settings.fetch_session_slots,
                eviction_ms=FETCH_SESSION_EVICTION_MS,
                new_id=lambda: random.randint(1, (1 << 31) - 1),  # noqa: S311  not a secret
            ),
            topic_creator=TopicCreator(settings, self._controller),
            merged_metadata=MetadataCache(is_merged=True),
            site_metadata=MetadataCache(is_merged=False),
        )

    @property
    def ports(self) -> dict[str, int]:
        """Bound port by listener name, once started."""
        return dict(self._ports)

    # --- start

    async def start(self, *, grpc_port: int) -> None:
        """Come up and register; `ready` is set when clients are let in. OperationalFailure says what is in the way."""
        settings = self.settings
        try:
            for listener in settings.listeners:
                self._ports[listener.name] = self._bind(listener.name, listener.address)
            await self._open_logs()
            self._control.on_image(self._groups.on_image)
            self._control.on_image(self._transactions.on_image)
            self._control.on_image(self._hanging.on_image)
            self._control.on_image(self._prepare_coordinators)
            self._control.on_image(self._open_the_doors)
            await self._membership.register(self._registration(grpc_port))
            self._housekeeping.start()
            self._groups.start()
            self._transactions.start()
        except BaseException:
            await self._undo_start()
            raise
        log.info("broker started", node_id=settings.node_id, site=settings.site, ports=self._ports)

    def _bind(self, name: str, address: HostPort) -> int:
        try:
            return self._connections.listen(name, address.host, address.port)
        except OSError as error:
            raise OperationalFailure(
                f"listener {name} cannot be bound to {address} ({error.strerror}): is another process using it?"
            ) from error

    async def _open_logs(self) -> None:
        settings = self.settings
        try:
            defaults = LogConfig.from_topic_configs(settings.properties, {})
        except InvalidTopicConfig as error:
            raise ConfigurationError(error.key, error.value, f"accepted: {error.accepted}") from error
        try:
            known = read_meta_properties(self._disk, f"{settings.log_dir}/{META_PROPERTIES}").get("cluster.id")
            cluster_id = await self._membership.cluster_id(known=known)
            self._logs.open(node_id=settings.node_id, cluster_id=cluster_id)
            self._is_open = True
            reports = await asyncio.to_thread(self._logs.load, lambda _: defaults)
        except StorageError as error:
            raise OperationalFailure(str(error)) from error
        for report in reports:
            _log_recovery(report)

    def _registration(self, grpc_port: int) -> znodes.BrokerRegistration:
        settings = self.settings
        advertised = {listener.name: listener.address for listener in settings.advertised_listeners}
        endpoints = []
        for listener in settings.listeners:
            address = reachable_address(listener.address, advertised.get(listener.name), self._ports[listener.name])
            endpoints.append(znodes.BrokerEndpoint(listener=listener.name, host=address.host, port=address.port))
        grpc = reachable_address(settings.grpc_listener, settings.grpc_advertised, grpc_port)
        return znodes.BrokerRegistration(
            node_id=settings.node_id,
            endpoints=tuple(endpoints),
            grpc_address=str(grpc),
            rack=settings.rack,
            timestamp_ms=self._clock.now_ms(),
        )

    async def _open_the_doors(self, _before: ClusterImage, after: ClusterImage) -> None:
        if after.is_complete and not self.ready.is_set():
            self._connections.start_accepting()
            self.ready.set()
            log.info("clients are let in", topics=len(after.topics), partitions=len(self._replicas))

    async def _prepare_coordinators(self, _before: ClusterImage, after: ClusterImage) -> None:
        """A linked site has coordinators before anybody asks: clients may know only the other site's brokers, which cannot make them."""
        missing = [topic for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC) if topic not in after.topics]
        if after.links and missing:
            self._services.topic_creator.request(missing, after)

    async def _undo_start(self) -> None:
        self._connections.stop_accepting()
        await self._housekeeping.stop()
        await self._controller.close()
        await self._active_site.close()
        await self._peers.close()
        if self._is_open:
            self._is_open = False
            self._logs.abandon()

    # --- stop

    async def stop(self) -> None:
        """Stop cleanly: the next start needs no recovery. Harmless when repeated or when the start failed."""
        self._connections.stop_accepting()
        self._replicas.fetches.stop()
        self._replicas.produces.stop()
        await self._hanging.stop()
        await self._transactions.stop()
        await self._groups.stop()
        await self._producer_ids.stop()
        await self._connections.stop(grace_s=self.settings.shutdown_grace_ms / 1000)
        await self._services.topic_creator.stop()
        await self._housekeeping.stop()
        await self._guarded("logs", self._close_logs)
        await self._guarded("registration", self._membership.unregister)
        await self._controller.close()
        await self._active_site.close()
        await self._peers.close()
        log.info("broker stopped", node_id=self.settings.node_id)

    async def _close_logs(self) -> None:
        if self._is_open:
            self._is_open = False
            await asyncio.to_thread(self._logs.close, broker_epoch=self._membership.broker_epoch)

    async def _guarded(self, what: str, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except StorageError as error:
            log.warning(
                "not everything could be stopped cleanly; the next start will recover", part=what, reason=str(error)
            )

    def _add_gauges(self) -> None:
        add, replicas = self.metrics.add_gauge, self._replicas
        self.metrics.log_sizes = replicas.sizes
        add("kafka_server_replicamanager_partitioncount", "Partitions here", lambda: len(replicas))
        add("kafka_server_replicamanager_leadercount", "Partitions led here", replicas.leader_count)
        add(
            "kafka_server_replicamanager_underreplicatedpartitions",
            "Partitions led here with an incomplete ISR",
            replicas.under_replicated_count,
        )
        add(
            "kafka_server_delayedoperationpurgatory_fetch_size",
            "Fetches that wait for records",
            lambda: len(replicas.fetches),
        )
        add(
            "kafka_server_delayedoperationpurgatory_produce_size",
            "Produces that wait for replicas",
            lambda: len(replicas.produces),
        )
        groups = self._groups
        add(
            "kafka_coordinator_group_groupmetadatamanager_numgroups",
            "Groups coordinated here",
            lambda: groups.group_count,
        )
        add(
            "kafka_coordinator_group_groupmetadatamanager_numoffsets",
            "Offsets of groups coordinated here",
            lambda: groups.offset_count,
        )
        transactions = self._transactions
        add(
            "kafka_coordinator_transaction_transactionalids",
            "Transactional ids coordinated here",
            lambda: transactions.count,
        )
        connections = self._connections
        add(
            "kafka_server_socketservermetrics_connection_count",
            "Open connections",
            lambda: len(connections.connections),
        )
        add(
            "kafka_server_socketservermetrics_request_memory_bytes",
            "Memory of half-received requests",
            lambda: connections.memory.used_bytes,
        )
        add("kafka_server_fetchsessioncache_sessions", "Fetch sessions", lambda: len(self._services.fetch_sessions))


def _limits(settings: BrokerSettings) -> ConnectionLimits:
    return ConnectionLimits(
        request_bytes_max=settings.request_bytes_max,
        connections_max=settings.connections_max,
        connections_per_address_max=settings.connections_per_address_max,
        idle_ms_max=settings.connection_idle_ms_max,
        send_buffer_bytes=settings.send_buffer_bytes,
        receive_buffer_bytes=settings.receive_buffer_bytes,
    )


def _log_recovery(report: RecoveryReport) -> None:
    log.warning("log recovered", report=str(report))
