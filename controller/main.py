"""A controller candidate as a part of a process: `cli` hosts one inside a broker process or runs
one alone.

    # adds the service
    candidate = ControllerCandidate(settings, grpc_server=server, registry=registry)
    port = await server.start()
    await candidate.start(grpc_address=f"{host}:{port}")  # takes part in elections from here on
    ...
    await candidate.stop()  # resigns; before server.stop()
"""

from __future__ import annotations

import asyncio
import base64
from functools import partial

from kazoo.exceptions import KazooException, NodeExistsError
from prometheus_client import CollectorRegistry

from controller.config import ControllerSettings
from controller.election.candidacy import Candidacy
from controller.election.site_rules import rules_step, warn_of_other_rules
from controller.event_loop import ActiveController
from controller.metrics import ControllerMetrics
from controller.requests.service import Controller
from controller.stored.cluster_reader import ClusterReader
from controller.stored.cluster_writer import ClusterWriter
from controller.stored.tenure import Deposed, Tenure
from runtime.chance import new_uuid
from runtime.configuration import ConfigurationError
from runtime.doors import ProcessDoors
from runtime.grpc_server import GrpcServer
from runtime.logs import get_logger
from runtime.supervision import Supervisor, note_death
from runtime.zookeeper.client import ZooKeeper, until_answered
from runtime.zookeeper.sessions import NoteSession, note_no_session
from wire.control import controller_pb2, controller_pb2_grpc
from wire.znodes import layout as znodes
from wire.znodes.cluster_znodes import ControllerRegistration, decode_cluster_id, encode_cluster_id
from wire.znodes.documents import MalformedZnode

PAUSE_AFTER_FAILED_TENURE_S = 0.5

_log = get_logger(__name__)


class ControllerCandidate:
    """Takes part in elections as long as it runs, and is the active controller while elected. It
    has its own ZooKeeper session.
    """

    def __init__(
        self,
        settings: ControllerSettings,
        *,
        grpc_server: GrpcServer,
        registry: CollectorRegistry,
        doors: ProcessDoors | None = None,
        note_session: NoteSession = note_no_session,
        heeds_altered_configs: bool = False,
    ) -> None:
        """With `heeds_altered_configs`, the controller follows broker configs that are altered at
        runtime.
        """
        self._settings = settings
        self._heeds_altered_configs = heeds_altered_configs
        self._note_session = note_session
        self._doors = doors or ProcessDoors()
        self._metrics = ControllerMetrics(registry)
        self._zookeeper: ZooKeeper | None = None
        self._candidacy: Candidacy | None = None
        self._active: ActiveController | None = None
        self._cluster_id = ""
        self._loops = Supervisor()
        service = Controller(settings, office=lambda: self._active, known_controller=self._known_controller)
        controller_pb2_grpc.add_ControllerServicer_to_server(service, grpc_server.server)  # type: ignore[no-untyped-call]
        grpc_server.add_service_name(controller_pb2.DESCRIPTOR.services_by_name["Controller"].full_name)

    @property
    def active(self) -> ActiveController | None:
        """The active controller while this candidate is elected."""
        return self._active

    @property
    def controller_epoch(self) -> int:
        """The controller epoch of this candidate; 0 when it is not elected."""
        return 0 if self._active is None else self._active.tenure.epoch

    def _known_controller(self) -> ControllerRegistration | None:
        return None if self._candidacy is None else self._candidacy.active_controller

    async def start(self, *, grpc_address: str) -> None:
        """Connect and take part in elections. `grpc_address` is the address of this process's gRPC
        server for others. OperationalFailure if ZooKeeper does not answer, or the stored cluster id
        differs from the configured one.
        """
        settings = self._settings
        zookeeper = self._doors.open_zookeeper(
            settings.zookeeper_connect,
            session_timeout_ms=settings.zookeeper_session_timeout_ms,
            note_session=self._note_session,
        )
        self._zookeeper = zookeeper
        await zookeeper.start(timeout_ms=settings.zookeeper_connection_timeout_ms)
        try:
            self._cluster_id = await until_answered(lambda: self._settle_cluster_id(zookeeper))
        except BaseException:
            await zookeeper.stop()
            raise
        self._candidacy = Candidacy(
            zookeeper,
            node_id=settings.node_id,
            cluster_id=self._cluster_id,
            grpc_address=grpc_address,
            session_timeout_ms=settings.zookeeper_session_timeout_ms,
            clock=self._doors.clock,
        )
        await until_answered(lambda: warn_of_other_rules(zookeeper, settings))
        self._loops.start("controller candidate", partial(self._stand, zookeeper, self._candidacy))

    async def stop(self) -> None:
        """Resign if elected, and leave."""
        await self._loops.stop()
        if self._zookeeper is not None:
            await self._zookeeper.stop()

    async def _settle_cluster_id(self, zookeeper: ZooKeeper) -> str:
        """The stored id, or the configured or a random one stored now."""
        wanted = self._settings.cluster_id
        found = await zookeeper.get_or_none(znodes.CLUSTER_ID)
        if found is None:
            fresh = wanted or base64.urlsafe_b64encode(new_uuid().bytes).rstrip(b"=").decode()
            try:
                await zookeeper.create(znodes.CLUSTER_ID, encode_cluster_id(fresh), make_path=True)
            except NodeExistsError:
                return await self._settle_cluster_id(zookeeper)
            return fresh
        stored = decode_cluster_id(found[0])
        if wanted and wanted != stored:
            raise ConfigurationError(
                "antipode.cluster.id",
                wanted,
                f"the site's ZooKeeper holds {stored!r}; accepted: the same id, or an empty value",
            )
        return stored

    async def _stand(self, zookeeper: ZooKeeper, candidacy: Candidacy) -> None:
        while True:
            tenure = await candidacy.win()
            reason = "the process stops"
            try:
                reason = await self._govern(zookeeper, candidacy, tenure)
            except (Deposed, KazooException, MalformedZnode) as error:
                reason = str(error) or repr(error)
                _log.error("controller tenure failed", controller_epoch=tenure.epoch, problem=reason)
            except Exception as error:
                reason = f"internal error of the controller: {error!r}"
                # the next tenure loads the stored state
                note_death("controller tenure", controller_epoch=tenure.epoch)
            finally:
                self._active = None
                self._metrics.record_resignation()
                await asyncio.shield(candidacy.resign(tenure, reason))
            await asyncio.sleep(PAUSE_AFTER_FAILED_TENURE_S)

    async def _govern(self, zookeeper: ZooKeeper, candidacy: Candidacy, tenure: Tenure) -> str:
        """Load the cluster and act as controller until deposed; returns the reason for the end."""
        await warn_of_other_rules(zookeeper, self._settings)
        writer = ClusterWriter(zookeeper, tenure)
        await writer.write([await rules_step(zookeeper, self._settings)])
        reader = ClusterReader(zookeeper)
        cluster = await reader.load(rules=self._settings.rules(), tenure=tenure)
        cluster.cluster_id = self._cluster_id
        if self._heeds_altered_configs:
            cluster.altered_unclean_election = await reader.unclean_election(tenure.controller_id)
        active = ActiveController(
            tenure=tenure,
            cluster=cluster,
            zookeeper=zookeeper,
            metrics=self._metrics,
            deletion_retry_ms=self._settings.deletion_retry_ms,
            apply_timeout_ms=self._settings.apply_timeout_ms,
            token_expiry_check_ms=self._settings.token_expiry_check_ms,
            balance=self._settings.balance(),
            doors=self._doors,
            heeds_altered_configs=self._heeds_altered_configs,
        )
        self._active = active
        self._metrics.record_tenure(tenure.epoch)
        serving = asyncio.create_task(active.run(), name=f"controller epoch {tenure.epoch}")
        deposed = asyncio.create_task(candidacy.until_deposed(tenure), name="controller node watch")
        try:
            await asyncio.wait((serving, deposed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            serving.cancel()
            deposed.cancel()
            await asyncio.gather(serving, deposed, return_exceptions=True)
        if not serving.cancelled() and (error := serving.exception()) is not None:
            raise error
        return "" if deposed.cancelled() else deposed.result()
