"""One broker, put together: logs, replicas, listeners, registration; started and stopped in the
right order.

Start: bind the listeners (a taken port is known before anything is written), agree on the cluster
id, lock and recover the logs, register; clients are let in when the controller has sent the first
whole image. Stop: no new connections, answer what waits, drain, flush, checkpoint and mark the logs
clean, and only then leave ZooKeeper. Composed by `cli`, which owns the gRPC and metrics servers.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

from broker.coordination.internal_log import InternalLog
from broker.coordination.registration_check import RegistrationCheck
from broker.dispatch import Dispatcher
from broker.groups.coordinator import GroupCoordinator, group_limits
from broker.groups.group_routing import ImageRouting
from broker.log.cleaning.cleaner import CleaningPlan, CleaningResult
from broker.log.cleaning.cleaner_process import CleanerProcesses
from broker.log.directories.checkpoints import META_PROPERTIES, read_meta_properties
from broker.log.directories.log_store import DirectoryFailure, LogStore
from broker.log.errors import StorageError
from broker.log.recovery import RecoveryReport
from broker.log.threads import in_thread
from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.metadata_encoding import MetadataCache
from broker.metrics import BrokerMetrics
from broker.network.connection_limits import HostAddresses
from broker.network.connection_server import ConnectionServer
from broker.network.peer_brokers import PeerBrokers
from broker.network.request_memory import RequestMemory
from broker.quotas.client_throttling import Quotas
from broker.replication.core.fetch_sessions import FetchSessions
from broker.replication.follower_fetches import FollowerFetches
from broker.replication.housekeeping import Housekeeping
from broker.replication.isr_proposals import IsrProposals
from broker.replication.offline_reports import OfflineReplicaReports
from broker.replication.purgatory import Purgatory
from broker.replication.replica_fetchers import ReplicaFetchers
from broker.replication.replicas import Replicas
from broker.replication.truncated_records import TruncatedRecords
from broker.services import BrokerServices
from broker.settings.config import BrokerSettings
from broker.settings.config_store import BrokerConfigStore
from broker.settings.core.topic_configs import LogConfig
from broker.settings.dynamic_configs import DynamicConfigs
from broker.site.active_site import ActiveSite
from broker.site.control_service import BrokerControlService
from broker.site.controlled_shutdown import ControlledShutdown
from broker.site.group_reports import GroupReports
from broker.site.suspected_brokers import SuspectedBrokers
from broker.site.topic_change_reports import TopicChangeReports
from broker.site.topic_creation import TopicCreator
from broker.telemetry.gauges import BrokerState, GaugeSources, add_gauges
from broker.telemetry.quota_metrics import QuotaMetrics
from broker.transactions.hanging_transactions import HangingTransactions
from broker.transactions.marker_sender import MarkerSender
from broker.transactions.producer_id_source import ProducerIdSource
from broker.transactions.transaction_admission import TransactionAdmission
from broker.transactions.transaction_coordinator import TransactionCoordinator, transaction_limits
from broker.transactions.transaction_markers import TransactionMarkers
from broker.transactions.transaction_routing import TransactionRouting
from runtime import compiled
from runtime.addresses import HostPort, reachable_address
from runtime.clock import Clock, SystemClock
from runtime.configuration import ConfigurationError
from runtime.disk import RealDisk
from runtime.grpc_server import GrpcServer
from runtime.logs import get_logger
from runtime.process import OperationalFailure
from runtime.zookeeper import SessionState
from wire.batches.group_records import OFFSETS_TOPIC
from wire.batches.transaction_records import TRANSACTIONS_TOPIC
from wire.client.connection import installed_version
from wire.control import broker_pb2_grpc
from wire.control.clients import ControllerClient
from wire.rules.topic_configs import InvalidTopicConfig
from wire.znodes import layout as znodes

log = get_logger(__name__)

SERVICE_NAME = "antipode.control.BrokerControl"
FETCH_SESSION_EVICTION_MS = 120_000


OnLocked = Callable[[Sequence[str]], Awaitable[None]]
"""Is told of the log directories as soon as this process alone has them."""


async def _leave_alone(_directories: Sequence[str]) -> None:
    """Where nothing has to be done about the process that had them before."""


class SiteMembership(Protocol):
    """What a broker needs of its site's ZooKeeper (`broker/site/membership.py`; tests have a lone
    one).
    """

    broker_epoch: int
    session_changes: Counter[SessionState]

    @property
    def configs(self) -> BrokerConfigStore:
        """Broker configs that were altered while brokers run."""
        ...

    async def cluster_id(self, *, known: str | None) -> str:
        """The site's cluster id."""
        ...

    async def register(self, registration: znodes.BrokerRegistration) -> None:
        """Register, now and after every lost session."""
        ...

    async def is_registered(self) -> bool:
        """Whether the newest registration is there now."""
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
        self.metrics = BrokerMetrics(version=installed_version())
        self._clock = clock or SystemClock()
        self._membership = membership
        self.on_locked: OnLocked = _leave_alone
        self._disk = RealDisk()
        self.configs = DynamicConfigs(settings)
        self._cluster = Cluster(ClusterImage(site=settings.site, node_id=settings.node_id))
        self._cleaner = CleanerProcesses()
        self._logs = LogStore(
            settings.log_dirs,
            self._disk,
            now_ms=self._clock.now_ms,
            roll_jitter=random.random,
            recovery_threads=settings.recovery_threads * len(settings.log_dirs),
            clean=self._clean,
            note_flush=self.metrics.log_flush.record,
        )
        self.failed = asyncio.Event()
        self._controller = ControllerClient(self._controller_addresses)
        self._active_site = ActiveSite()
        self._topic_change_reports = TopicChangeReports()
        self._replicas = Replicas(
            settings,
            self._clock,
            self._logs,
            self.metrics,
            fetches=Purgatory(self._clock),
            follower_fetches=FollowerFetches(self._clock),
            mirror_fetches=Purgatory(self._clock),
            produces=Purgatory(self._clock),
            deletes=Purgatory(self._clock),
            cuts=TruncatedRecords(
                self._disk, bytes_max=settings.truncated_bytes_kept_max, remove=self._logs.remove_file
            ),
        )
        self._logs.on_failure(self._lose_directory)
        self._logs.cleaning.threads = settings.log_cleaner_threads
        self._peers = PeerBrokers(lambda: self._cluster.image, settings.inter_broker_listener)
        self._controlled_shutdown = ControlledShutdown()
        self._quotas = Quotas(settings, self._clock)
        self._make_replication(settings)
        self._make_coordinators(settings)
        self._control = self._make_control(grpc_server)
        self._services = self._make_services()
        self._services.fetch_sessions.on_closed = self._replicas.follower_fetches.unwatch
        memory = RequestMemory(settings.queued_request_bytes_max if settings.queued_request_bytes_max > 0 else 1 << 62)
        self._host_addresses = HostAddresses()
        self._connections = ConnectionServer(
            Dispatcher(self._services),
            self._host_addresses.limits(settings),
            memory,
            self._clock,
            self._quotas.connections,
            exempt_listener=_brokers_own_listener(settings),
        )
        self._housekeeping = Housekeeping(
            self.configs, self._logs, self._replicas, self._cluster, on_retained=self._replicas.report_log_starts
        )
        self.configs.on_change(self._apply_configs)
        self._ports: dict[str, int] = {}
        self._is_open = False
        self.ready = asyncio.Event()
        self.state = BrokerState.NOT_RUNNING
        self._add_gauges()

    def _make_control(self, grpc_server: GrpcServer) -> BrokerControlService:
        control = BrokerControlService(
            self.settings.node_id,
            self._cluster,
            self._replicas,
            broker_epoch=self._broker_epoch,
            describe_groups=self._group_reports.describe,
            clock=self._clock,
        )
        broker_pb2_grpc.add_BrokerControlServicer_to_server(control, grpc_server.server)  # type: ignore[no-untyped-call]
        grpc_server.add_service_name(SERVICE_NAME)
        return control

    def _make_replication(self, settings: BrokerSettings) -> None:
        self._suspected_brokers = SuspectedBrokers(self._cluster, self._clock, node_id=settings.node_id)
        self._fetchers = ReplicaFetchers(
            self._replicas,
            self._cluster,
            settings,
            self._clock,
            broker_epoch=self._broker_epoch,
            on_lost=self._suspected_brokers.note_lost,
        )
        self._proposals = IsrProposals(
            self._replicas,
            self._cluster,
            self._controller,
            settings,
            self._clock,
            broker_epoch=self._broker_epoch,
        )
        self._replicas.on_follower_outside = self._proposals.consider
        self._offline_reports = OfflineReplicaReports(
            self._replicas, self._controller, node_id=settings.node_id, broker_epoch=self._broker_epoch
        )
        self._replicas.on_first_reader = self._fetchers.look_again

    def _make_coordinators(self, settings: BrokerSettings) -> None:
        self._standing = RegistrationCheck(
            self._membership,
            self._cluster,
            self._clock,
            node_id=settings.node_id,
            session_timeout_ms=settings.zookeeper_session_timeout_ms,
        )
        self._groups = GroupCoordinator(
            group_limits(settings),
            InternalLog(OFFSETS_TOPIC, self._replicas, commit_timeout_ms=settings.offsets_commit_timeout_ms),
            ImageRouting(lambda: self._cluster.image),
            self._clock,
            may_answer=self._standing.holds,
            expiry_interval_ms=settings.offsets_retention_check_interval_ms,
        )
        self._producer_ids = ProducerIdSource(settings.node_id, self._controller, broker_epoch=self._broker_epoch)
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
            may_answer=self._standing.holds,
            expiry_interval_ms=settings.transactional_id_cleanup_interval_ms,
        )
        self._group_reports = GroupReports(lambda: self._cluster.image, self._groups, self._transactions, self._clock)
        self._hanging = HangingTransactions(self._replicas, self._transaction_markers)

    def _add_gauges(self) -> None:
        self.metrics.families.append(QuotaMetrics(self._quotas, self._connections, self._clock).families)
        add_gauges(
            self.metrics,
            GaugeSources(
                replicas=self._replicas,
                groups=self._groups,
                transactions=self._transactions,
                fetchers=self._fetchers,
                proposals=self._proposals,
                connections=self._connections,
                session_changes=self._membership.session_changes,
                logs=self._logs,
                clock=self._clock,
                fetch_sessions=lambda: self._services.fetch_sessions,
                state=lambda: self.state,
            ),
        )

    def _broker_epoch(self) -> int:
        return self._membership.broker_epoch

    async def _controller_addresses(self) -> list[str]:
        return [await self._membership.controller_address()]

    async def _clean(self, plan: CleaningPlan) -> CleaningResult:
        settings = self.configs.current
        pace = settings.log_cleaner_bytes_per_second_max / settings.log_cleaner_threads
        return await self._cleaner.clean(replace(plan, bytes_per_second_max=pace))

    def _apply_configs(self, settings: BrokerSettings) -> None:
        self._limit_connections()
        self._host_addresses.look_up_later(settings.connections_per_address_overrides, self._limit_connections)
        self._replicas.apply_broker_properties(settings.properties, self._cluster.image)
        self._replicas.apply_throttles(settings)
        self._logs.cleaning.threads = settings.log_cleaner_threads
        self._fetchers.resize(settings.replica_fetcher_count)

    def _limit_connections(self) -> None:
        self._connections.limits = self._host_addresses.limits(self.configs.current)

    def _lose_directory(self, failure: DirectoryFailure) -> None:
        if not self._logs.directories:
            log.error("the last log directory has failed", path=failure.path, reason=failure.reason)
            self.failed.set()

    def _make_services(self) -> BrokerServices:
        settings = self.settings
        return BrokerServices(
            configs=self.configs,
            config_store=self._membership.configs,
            clock=self._clock,
            cluster=self._cluster,
            replicas=self._replicas,
            logs=self._logs,
            groups=self._groups,
            group_reports=self._group_reports,
            producer_ids=self._producer_ids,
            transactions=self._transactions,
            transaction_routing=self._transaction_routing,
            transaction_admission=TransactionAdmission(
                settings.node_id, self._transaction_routing, self._transactions, self._peers
            ),
            transaction_markers=self._transaction_markers,
            controller=self._controller,
            active_site=self._active_site,
            topic_change_reports=self._topic_change_reports,
            apply_peer_reports=self._control.apply_peer_reports,
            metrics=self.metrics,
            quotas=self._quotas,
            fetch_sessions=FetchSessions(
                slots=settings.fetch_session_slots,
                eviction_ms=FETCH_SESSION_EVICTION_MS,
                new_id=lambda: random.randint(1, (1 << 31) - 1),  # noqa: S311  not a secret
            ),
            suspected_brokers=self._suspected_brokers,
            controlled_shutdown=self._controlled_shutdown,
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
        """Come up and register; `ready` is set when clients are let in. OperationalFailure says
        what is in the way.
        """
        settings = self.settings
        self.state = BrokerState.STARTING
        try:
            await self._host_addresses.look_up(settings.connections_per_address_overrides)
            self._limit_connections()
            for listener in settings.listeners:
                self._ports[listener.name] = self._bind(listener.name, listener.address)
            await self._open_logs()
            self._control.on_image(self._quotas.on_image)
            self._control.on_image(self._replicas.on_image)
            self._control.on_image(self._fetchers.on_image)
            self._control.on_image(self._proposals.on_image)
            self._control.on_image(self._suspected_brokers.on_image)
            await self._membership.configs.follow(self.configs.take)
            self._control.on_image(self._groups.on_image)
            self._control.on_image(self._transactions.on_image)
            self._control.on_image(self._hanging.on_image)
            self._control.on_image(self._prepare_coordinators)
            self._control.on_image(self._offline_reports.on_image)
            self._control.on_image(self._open_the_doors)
            await self._membership.register(self._registration(grpc_port))
            self._standing.start()
            self._housekeeping.start()
            self._proposals.start()
            self._offline_reports.start()
            self._groups.start()
            self._transactions.start()
        except BaseException:
            await self._undo_start()
            raise
        log.info(
            "broker started",
            node_id=settings.node_id,
            site=settings.site,
            ports=self._ports,
            compiled=compiled.describe(),
        )

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
            cluster_id = await self._membership.cluster_id(known=self._known_cluster_id())
            self._is_open = True
            await in_thread(partial(self._logs.open, node_id=settings.node_id, cluster_id=cluster_id))
            await self.on_locked([directory.path for directory in self._logs.directories])
            if not all(directory.is_clean for directory in self._logs.directories):
                self.state = BrokerState.RECOVERING
            reports = await asyncio.to_thread(self._logs.load, lambda _: defaults)
        except StorageError as error:
            raise OperationalFailure(str(error)) from error
        for sentence in self._logs.notes:
            log.warning("log directory was not closed cleanly", note=sentence)
        _log_recovery(reports)

    def _known_cluster_id(self) -> str | None:
        """What a log directory says that can be read; the others go offline when they are
        opened.
        """
        for path in self.settings.log_dirs:
            try:
                found = read_meta_properties(self._disk, f"{path}/{META_PROPERTIES}").get("cluster.id")
            except StorageError as error:
                log.warning("log directory cannot be read", path=path, reason=str(error))
                continue
            if found is not None:
                return found
        return None

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
            self.state = BrokerState.RUNNING
            self.ready.set()
            log.info("broker accepts clients", topics=len(after.topics), partitions=len(self._replicas))

    async def _prepare_coordinators(self, _before: ClusterImage, after: ClusterImage) -> None:
        """A linked site has coordinators before anybody asks: clients may know only the other
        site's brokers, which cannot make them.
        """
        missing = [topic for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC) if topic not in after.topics]
        if after.links and missing:
            self._services.topic_creator.request(missing, after)

    async def _undo_start(self) -> None:
        self.state = BrokerState.NOT_RUNNING
        self._host_addresses.stop()
        self._connections.stop_accepting()
        await self._stop_replication()
        await self._housekeeping.stop()
        await self._cleaner.stop()
        await self._controller.close()
        await self._active_site.close()
        await self._topic_change_reports.close()
        await self._peers.close()
        if self._is_open:
            self._is_open = False
            self._logs.abandon()

    # --- stop

    async def stop(self) -> None:
        """Stop cleanly: others lead first, the next start needs no recovery. Harmless when repeated
        or when the start failed.
        """
        if self._is_open and self.ready.is_set() and self.settings.is_shutdown_controlled:
            self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
            await self._controlled_shutdown.run(
                self._controller,
                self.settings,
                broker_epoch=self._membership.broker_epoch,
                replicas=self._replicas,
                image=lambda: self._cluster.image,
            )
        self.state = BrokerState.SHUTTING_DOWN
        self._host_addresses.stop()
        self._connections.stop_accepting()
        self._replicas.produces.stop()
        await self._hanging.stop()
        await self._transactions.stop()
        await self._stop_replication()
        await self._groups.stop()
        await self._producer_ids.stop()
        self._end_waits()
        await self._connections.stop(grace_s=self.settings.shutdown_grace_ms / 1000)
        await self._services.topic_creator.stop()
        await self._housekeeping.stop()
        await self._cleaner.stop()
        await self._guarded("logs", self._close_logs)
        await self._guarded("registration", self._membership.unregister)
        await self._controller.close()
        await self._active_site.close()
        await self._topic_change_reports.close()
        await self._peers.close()
        self.state = BrokerState.NOT_RUNNING
        log.info("broker stopped", node_id=self.settings.node_id)

    def _end_waits(self) -> None:
        """Nobody waits any more for what others do: not who asks only now, either."""
        replicas = self._replicas
        for waits in (
            replicas.fetches,
            replicas.follower_fetches,
            replicas.mirror_fetches,
            replicas.produces,
            replicas.deletes,
        ):
            waits.close()

    async def _stop_replication(self) -> None:
        await self._standing.stop()
        await self._control.stop()
        await self._suspected_brokers.stop()
        await self._proposals.stop()
        await self._offline_reports.stop()
        await self._fetchers.stop()

    async def _close_logs(self) -> None:
        if self._is_open:
            self._is_open = False
            await asyncio.to_thread(self._logs.close, broker_epoch=self._membership.broker_epoch)

    async def _guarded(self, what: str, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except StorageError as error:
            log.warning("unclean stop of a part; the next start recovers it", part=what, reason=str(error))


def _brokers_own_listener(settings: BrokerSettings) -> str:
    """The listener between brokers, "" when clients use it too."""
    own = settings.inter_broker_listener or settings.listeners[0].name
    return own if len(settings.listeners) > 1 else ""


def _log_recovery(reports: list[RecoveryReport]) -> None:
    """A line for each log from which something was dropped or in which something was mended, and
    one for all that were checked.
    """
    for report in reports:
        if report.dropped or report.notes:
            log.warning("log recovered", report=str(report))
    checked = [report for report in reports if not report.is_clean]
    if checked:
        log.warning(
            "recovered logs after unclean shutdown",
            logs=len(checked),
            segments=sum(report.scanned_segments for report in checked),
            scanned_bytes=sum(report.scanned_bytes for report in checked),
        )
