"""One broker: storage, replication, coordination and serving, started and stopped in the right
order.

Start: bind the listeners (a taken port is known before anything is written), agree on the cluster
id, lock and recover the logs, register; clients are let in when the controller has sent the first
whole image. Stop: accept no connections, answer waiting requests, drain, flush, checkpoint and mark
the logs clean, and only then leave ZooKeeper. Composed by `cli`, which owns the gRPC and metrics
servers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from broker.assembly.coordination import Coordination
from broker.assembly.doors import Doors, SiteMembership
from broker.assembly.replication import Replication
from broker.assembly.serving import Serving
from broker.assembly.storage import OnLocked, Storage
from broker.authentication.inter_broker import InterBroker
from broker.log.directories.log_placement import DirectoryFailure
from broker.log.errors import StorageError
from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.metrics import BrokerMetrics
from broker.replication.core.wake_ups import DelayedOperation
from broker.replication.housekeeping import Housekeeping
from broker.settings.config import BrokerSettings
from broker.settings.dynamic_configs import DynamicConfigs
from broker.settings.loading import listener_security
from broker.site.control_service import BrokerControlService
from broker.site.image_changes import ImageListener
from broker.site.suspected_brokers import SuspectedBrokers
from broker.telemetry.gauge_sources import BrokerState, GaugeSources
from broker.telemetry.gauges import add_gauges
from broker.telemetry.login_metrics import LoginMetrics
from broker.telemetry.quota_metrics import QuotaMetrics
from runtime import compiled
from runtime.addresses import reachable_address
from runtime.grpc_server import GrpcServer
from runtime.logs import get_logger
from wire.access.settings import load_control_settings
from wire.batches.group_records import OFFSETS_TOPIC
from wire.batches.transaction_records import TRANSACTIONS_TOPIC
from wire.client.connection import installed_version
from wire.control import broker_pb2_grpc
from wire.control.clients import ControllerClient
from wire.znodes.broker_znodes import BrokerEndpoint, BrokerRegistration

log = get_logger(__name__)

SERVICE_NAME = "antipode.control.BrokerControl"


async def _leave_alone(_directories: Sequence[str]) -> None:
    """The previous process with these directories left nothing that must be ended."""


class Broker:
    """A broker of one site; make it inside the running loop, before the gRPC server starts."""

    def __init__(
        self,
        settings: BrokerSettings,
        grpc_server: GrpcServer,
        membership: SiteMembership,
        *,
        doors: Doors | None = None,
        on_locked: OnLocked = _leave_alone,
    ) -> None:
        self._doors = doors = doors or Doors()
        self.settings = settings
        self.metrics = BrokerMetrics(version=installed_version())
        self.configs = DynamicConfigs(settings)
        self.cluster = Cluster(ClusterImage(site=settings.site, node_id=settings.node_id))
        self.controller = ControllerClient(self._controller_addresses, dial=doors.dial)
        self.failed, self.ready = asyncio.Event(), asyncio.Event()
        self.state = BrokerState.NOT_RUNNING
        self._membership = membership
        self._on_locked = on_locked
        self._ports: dict[str, int] = {}
        self.storage = Storage(self.configs, doors, self.metrics)
        self._suspected_brokers = SuspectedBrokers(self.cluster, doors.clock, node_id=settings.node_id)
        self._inter_broker = self._make_inter_broker()
        self.replication = Replication(
            settings,
            doors,
            cluster=self.cluster,
            logs=self.storage.logs,
            controller=self.controller,
            metrics=self.metrics,
            broker_epoch=self._broker_epoch,
            on_lost=self._suspected_brokers.note_lost,
            secured=self._inter_broker.secured,
        )
        self.storage.logs.on_failure(self._lose_directory)
        self.coordination = Coordination(
            settings,
            doors,
            cluster=self.cluster,
            replicas=self.replication.replicas,
            membership=membership,
            controller=self.controller,
            broker_epoch=self._broker_epoch,
            secured=self._inter_broker.secured,
        )
        self.control = self._make_control(grpc_server)
        self.serving = Serving(
            self.configs,
            doors,
            metrics=self.metrics,
            cluster=self.cluster,
            storage=self.storage,
            replication=self.replication,
            coordination=self.coordination,
            membership=membership,
            controller=self.controller,
            control=self.control,
            suspected_brokers=self._suspected_brokers,
            inter_broker=self._inter_broker,
        )
        self._housekeeping = Housekeeping(
            self.configs,
            self.storage.logs,
            self.replication.replicas,
            self.cluster,
            on_expired=self.replication.replicas.report_log_start,
            clock=self._doors.clock,
        )
        self.configs.on_change(self._apply_configs)
        self._add_gauges()

    def _make_inter_broker(self) -> InterBroker:
        settings = self.settings
        listener = settings.inter_broker_listener or settings.listeners[0].name
        may_be_plaintext = load_control_settings(settings.properties).may_be_plaintext
        security = listener_security(settings)[listener]
        return InterBroker(security, lambda: self.cluster.image, may_be_plaintext=may_be_plaintext)

    def _make_control(self, grpc_server: GrpcServer) -> BrokerControlService:
        control = BrokerControlService(
            self.settings.node_id,
            self.cluster,
            self.replication.replicas,
            broker_epoch=self._broker_epoch,
            describe_groups=self.coordination.group_reports.describe,
            handover=self.coordination.handover,
            clock=self._doors.clock,
        )
        broker_pb2_grpc.add_BrokerControlServicer_to_server(control, grpc_server.server)  # type: ignore[no-untyped-call]
        grpc_server.add_service_name(SERVICE_NAME)
        return control

    def _add_gauges(self) -> None:
        serving, clock = self.serving, self._doors.clock
        self.metrics.families.append(QuotaMetrics(serving.quotas, serving.connections, clock).families)
        self.metrics.families.append(LoginMetrics(serving.entrances).families)
        add_gauges(
            self.metrics,
            GaugeSources(
                replicas=self.replication.replicas,
                groups=self.coordination.groups,
                transactions=self.coordination.transactions,
                fetchers=self.replication.fetchers,
                proposals=self.replication.proposals,
                connections=serving.connections,
                session_changes=self._membership.session_changes,
                logs=self.storage.logs,
                scrubber=self._housekeeping.scrubber,
                clock=clock,
                fetch_sessions=lambda: serving.fetch_sessions,
                state=lambda: self.state,
            ),
        )

    def _broker_epoch(self) -> int:
        return self._membership.broker_epoch

    async def _controller_addresses(self) -> list[str]:
        return [await self._membership.controller_address()]

    def _apply_configs(self, settings: BrokerSettings) -> None:
        self.serving.apply_configs(settings)
        self.replication.replicas.assigned.apply_broker_properties(settings.properties, self.cluster.image)
        self.replication.replicas.apply_throttles(settings)
        self.storage.logs.cleaning.threads = settings.log_cleaner_threads
        self.replication.fetchers.resize(settings.replica_fetcher_count)

    def _lose_directory(self, failure: DirectoryFailure) -> None:
        if not self.storage.logs.directories:
            log.error("the last log directory has failed", path=failure.path, reason=failure.reason)
            self.failed.set()

    @property
    def ports(self) -> dict[str, int]:
        """Bound port by listener name, once started."""
        return dict(self._ports)

    # --- start

    async def start(self, *, grpc_port: int) -> None:
        """Start and register; `ready` is set when clients are accepted. Raises OperationalFailure,
        which names the obstacle.
        """
        self.state = BrokerState.STARTING
        try:
            self._ports = await self.serving.bind()
            await self.storage.open(
                agree_on_cluster_id=lambda known: self._membership.cluster_id(known=known),
                on_locked=self._on_locked,
                on_recovery=self._note_recovery,
            )
            await self._follow_images()
            await self._membership.register(self._registration(grpc_port))
            self._housekeeping.start()
            self.replication.start()
            self.coordination.start()
        except BaseException:
            await self._undo_start()
            raise
        log.info(
            "broker started",
            node_id=self.settings.node_id,
            site=self.settings.site,
            ports=self._ports,
            compiled=compiled.describe(),
        )

    def _note_recovery(self) -> None:
        self.state = BrokerState.RECOVERING

    async def _follow_images(self) -> None:
        """Each image is passed to the parts in this order: quotas and replicas before the parts
        that use them, the listeners last.
        """
        replication, coordination = self.replication, self.coordination
        first: list[ImageListener] = [
            self.serving.quotas.on_image,
            self.serving.on_image,
            replication.replicas.on_image,
            replication.fetchers.on_image,
            replication.proposals.on_image,
            self._suspected_brokers.on_image,
        ]
        for listener in first:
            self.control.on_image(listener)
        await self._membership.configs.follow(self.configs.take)
        then: list[ImageListener] = [
            coordination.groups.on_image,
            coordination.transactions.on_image,
            coordination.hanging.on_image,
            self._prepare_coordinators,
            replication.offline_reports.on_image,
            self._let_clients_in,
        ]
        for listener in then:
            self.control.on_image(listener)

    def _registration(self, grpc_port: int) -> BrokerRegistration:
        settings = self.settings
        advertised = {listener.name: listener.address for listener in settings.advertised_listeners}
        endpoints = []
        for listener in settings.listeners:
            address = reachable_address(listener.address, advertised.get(listener.name), self._ports[listener.name])
            protocol = self.serving.entrances.by_listener[listener.name].security.protocol.value
            endpoints.append(
                BrokerEndpoint(listener=listener.name, host=address.host, port=address.port, security_protocol=protocol)
            )
        grpc = reachable_address(settings.grpc_listener, settings.grpc_advertised, grpc_port)
        return BrokerRegistration(
            node_id=settings.node_id,
            endpoints=tuple(endpoints),
            grpc_address=str(grpc),
            rack=settings.rack,
            timestamp_ms=self._doors.clock.now_ms(),
        )

    async def _let_clients_in(self, _before: ClusterImage, after: ClusterImage) -> None:
        if after.is_complete and not self.ready.is_set():
            self.serving.open()
            self.state = BrokerState.RUNNING
            self.ready.set()
            log.info("broker accepts clients", topics=len(after.topics), partitions=len(self.replication.replicas))

    async def _prepare_coordinators(self, _before: ClusterImage, after: ClusterImage) -> None:
        """Create the internal topics of a linked site before a client needs them: clients may know
        only the other site's brokers, which cannot create them.
        """
        missing = [topic for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC) if topic not in after.topics]
        if after.links and missing:
            self.serving.topic_creator.request(missing, after)

    async def _undo_start(self) -> None:
        self.state = BrokerState.NOT_RUNNING
        self.serving.close_doors()
        await self._stop_replication()
        await self._housekeeping.stop()
        await self.storage.cleaner.stop()
        await self._close_clients()
        self.storage.abandon()

    # --- stop

    async def stop(self) -> None:
        """Stop cleanly: move leaderships first, and leave logs that need no recovery. Harmless when
        repeated or when the start failed.
        """
        coordination = self.coordination
        if self.storage.is_open and self.ready.is_set() and self.settings.is_shutdown_controlled:
            self.state = BrokerState.PENDING_CONTROLLED_SHUTDOWN
            await self.serving.controlled_shutdown.run(
                self.controller,
                self.settings,
                broker_epoch=self._membership.broker_epoch,
                replicas=self.replication.replicas,
                image=lambda: self.cluster.image,
            )
        self.state = BrokerState.SHUTTING_DOWN
        self.serving.close_doors()
        self.replication.replicas.purgatory.stop(DelayedOperation.PRODUCE)
        await coordination.hanging.stop()
        await coordination.transactions.stop()
        await self._stop_replication()
        await coordination.groups.stop()
        await coordination.producer_ids.stop()
        self.replication.end_waits()
        await self.serving.drain()
        await self.serving.topic_creator.stop()
        await self._housekeeping.stop()
        await self.storage.cleaner.stop()
        await self._guarded("logs", self._close_logs)
        await self._guarded("registration", self._membership.unregister)
        await self._close_clients()
        self.state = BrokerState.NOT_RUNNING
        log.info("broker stopped", node_id=self.settings.node_id)

    async def _stop_replication(self) -> None:
        await self.coordination.registration.stop()
        await self.control.stop()
        await self._suspected_brokers.stop()
        await self.replication.stop()

    async def _close_logs(self) -> None:
        await self.storage.close(broker_epoch=self._membership.broker_epoch)

    async def _close_clients(self) -> None:
        await self.controller.close()
        await self.serving.close_clients()
        await self.coordination.peers.close()

    async def _guarded(self, what: str, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await step()
        except StorageError as error:
            log.warning("unclean stop of a part; the next start recovers it", part=what, reason=str(error))
