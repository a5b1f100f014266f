"""One node of a site: the broker's own assemblies and the real controller candidate in one
simulated process.

Replication, coordinators and the services that handlers use are the broker's own assemblies
(`broker/assembly/`) over simulated doors. Storage is `disk.py`, connections are `ServedConnection`.
The only part of the housekeeping is the watch over silent standbys; coordinators and the site's
agent run only if the kind of the seed needs them. `Node` outlives its processes and owns their
disk; `kill`, `lose_power`, `pause` and `stop` are what can happen to one.
"""

from __future__ import annotations

import json
import random
import struct
import traceback
from collections import deque
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any, Protocol

from kazoo.exceptions import KazooException
from prometheus_client import CollectorRegistry

from broker.assembly.coordination import Coordination
from broker.assembly.doors import Doors
from broker.assembly.replication import Replication
from broker.assembly.serving import Serving
from broker.authentication.inter_broker import InterBroker
from broker.dispatch import Dispatcher
from broker.log.segments.log_slice import LogSlice
from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.metrics import BrokerMetrics
from broker.network.response_slots import Place, ResponseSlots
from broker.replication.housekeeping import STANDBY_INTERVAL_MS
from broker.settings.core.topic_configs import LogConfig
from broker.settings.dynamic_configs import DynamicConfigs
from broker.settings.loading import listener_security, load_broker_settings
from broker.site.control_service import BrokerControlService
from broker.site.membership import Membership
from broker.site.suspected_brokers import SuspectedBrokers
from controller.config import ControllerSettings
from controller.main import ControllerCandidate
from dr.agent.host import SiteAgentHost
from runtime.configuration import load_settings
from runtime.grpc_server import GrpcServer
from runtime.process import OperationalFailure
from tests.sim.disk import Disk, LogObserver, MemoryLogStore
from tests.sim.network import End
from tests.sim.rpc import RpcServer
from tests.sim.virtual_loop import Process
from tests.sim.world import VirtualClock, World
from tests.sim.zookeeper_door import SimZooKeeper
from wire.batches.group_records import OFFSETS_TOPIC
from wire.batches.transaction_records import TRANSACTIONS_TOPIC
from wire.control import broker_pb2_grpc
from wire.control.clients import ControllerClient
from wire.protocol.messages import produce_codec
from wire.protocol.messages.private import CLIENT_SOFTWARE_NAME
from wire.rules.principals import ANONYMOUS
from wire.znodes.broker_znodes import BrokerEndpoint, BrokerRegistration

CLIENT_HOST = "c1"
KAFKA_PORT = 9092
RPC_PORT = 9000
HIGH_WATERMARK_CHECKPOINT_S = 1.0
RESTART_S = 1.0
"""After this a process that could not start is started again, as a service is."""
PRODUCE_FLEXIBLE_VERSION = 9
"""From this version on the header of an answer has tagged fields."""
OnProduced = Callable[[produce_codec.ProduceResponse], object]
METADATA_PATH = "/simulation/Metadata"

PROPERTIES: dict[str, Any] = {
    "zookeeper.connect": "z1:2181",
    "zookeeper.session.timeout.ms": "2000",
    "antipode.site.name": "a",
    "antipode.site.number": "0",
    "antipode.cluster.id": "simulated-cluster-0001",
    "antipode.controller.deletion.retry.ms": "500",
    "antipode.controller.apply.wait.ms": "1000",
    "leader.imbalance.check.interval.seconds": "5",
    "log.dirs": "memory",
    "replica.lag.time.max.ms": "1000",
    "replica.fetch.wait.max.ms": "250",
    "replica.socket.timeout.ms": "1000",
    "replica.fetch.backoff.ms": "200",
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "antipode.truncated.records.max.bytes": "0",
}


class ServedConnection:
    """A client's connection as the dispatcher sees it: one request at a time, or those for which a
    place is taken; answers in order.
    """

    listener = "CLIENT"
    address = "simulated"

    def __init__(self, end: End, dispatcher: Dispatcher, on_produced: OnProduced | None = None) -> None:
        """`on_produced` is called with each answer to a Produce that leaves."""
        self._end = end
        self._dispatcher = dispatcher
        self._on_produced = on_produced
        self._versions: dict[int, int] = {}
        """Of the Produce requests without an answer, by correlation id."""
        self._frames: deque[bytes] = deque()
        self._is_busy = False
        self._is_handling = False
        self._places = ResponseSlots(self._on_slot_answered)
        # what ApiVersions would say, which no client here asks for
        self.client_software = "" if end.other.process.host == CLIENT_HOST else CLIENT_SOFTWARE_NAME
        self.principal = ANONYMOUS
        self.sasl = None
        self.is_closed = False
        self.on_close: Any = None
        self.on_end: Any = None
        end.on_message = self._receive
        end.on_lost = lambda: self.close("lost")

    def _receive(self, message: bytes) -> None:
        (size,) = struct.unpack_from(">i", message)
        assert size == len(message) - 4, "a message is a frame"
        self._frames.append(message)
        if self._on_produced is not None:
            api_key, version, correlation_id = struct.unpack_from(">hhi", message, 4)
            if api_key == produce_codec.API_KEY:
                self._versions[correlation_id] = version
        self._next()

    def _next(self) -> None:
        while self._frames and not self._is_busy and not self.is_closed and self._places.may_follow(self._frames[0], 0):
            self._is_busy = self._is_handling = True
            self.on_close = None
            self._dispatcher.handle(self, memoryview(self._frames.popleft())[4:])  # type: ignore[arg-type]
            self._is_handling = False

    def answer(self, parts: Any, *, throttle_time_ms: float = 0.0, on_sent: Any = None) -> None:
        """Send the parts, or nothing."""
        self.on_close = None
        self._is_busy = False
        if self._places:
            self._places.take_behind().answer(parts)
            return
        self._send(parts)
        self._end.process.call(self._next)

    def reserve_slot(self, api_key: int, frame_bytes: int, on_close: Any = None) -> Place:
        """Let requests of the same API that follow be handled before this one is answered."""
        self._is_busy = False
        self.on_close = None
        if not self._is_handling:
            self._end.process.call(self._next)
        return self._places.take(api_key, frame_bytes, on_close)

    def _on_slot_answered(self, _: Place) -> None:
        for place in self._places.answered():
            self._send(place.parts)
        self._end.process.call(self._next)

    def _send(self, parts: Any) -> None:
        if parts is None or self.is_closed:
            return
        frame = b"".join(part.read_bytes() if isinstance(part, LogSlice) else part for part in parts)
        version = self._versions.pop(struct.unpack_from(">i", frame, 4)[0], None)
        if version is not None and self._on_produced is not None:
            header_bytes = 8 + (version >= PRODUCE_FLEXIBLE_VERSION)
            self._on_produced(produce_codec.parse_produce_response(frame, header_bytes, version))
        self._end.send(frame)

    def close(self, _: str) -> None:
        """Close it."""
        if not self.is_closed:
            self.is_closed = True
            self._end.close()
            tuple(self._places.give_up())
            if self.on_close is not None:
                self.on_close()


class Running:
    """The parts of one process, from its start to its end."""

    def __init__(self, node: Node, process: Process) -> None:
        world, self.node, self.process = node.world, node, process
        self.world = world
        self.settings = load_broker_settings(node.properties)
        self.clock = node.clock
        self.rpc = RpcServer(world.network, process, node.rpc_address)
        self.zookeeper = SimZooKeeper(
            world,
            process,
            session_timeout_ms=self.settings.zookeeper_session_timeout_ms,
            connect=self.settings.zookeeper_connect,
        )
        self.membership = Membership(self.settings, self.zookeeper, self.clock)
        self.cluster = Cluster(ClusterImage(site=self.settings.site, node_id=node.node_id))
        self.logs = MemoryLogStore(node.disk, node.ledger.of_node(node.node_id))
        self.controller = ControllerClient(self._controller_addresses)
        self.agent = self._make_agent() if node.arbiter_connect else None
        doors = Doors(clock=self.clock, chance=random.Random(0), disk=node.disk.files)
        metrics = BrokerMetrics()
        self.replication = Replication(
            self.settings,
            doors,
            cluster=self.cluster,
            logs=self.logs,  # type: ignore[arg-type]
            controller=self.controller,
            metrics=metrics,
            broker_epoch=self._broker_epoch,
            on_lost=lambda _: None,
        )
        self.replicas, self.fetchers = self.replication.replicas, self.replication.fetchers
        self.proposals = self.replication.proposals
        self.coordination = Coordination(
            self.settings,
            doors,
            cluster=self.cluster,
            replicas=self.replicas,
            membership=self.membership,
            controller=self.controller,
            broker_epoch=self._broker_epoch,
        )
        self.control = BrokerControlService(
            node.node_id,
            self.cluster,
            self.replicas,
            broker_epoch=self._broker_epoch,
            describe_groups=self.coordination.group_reports.describe,
            handover=self.coordination.handover,
            clock=self.clock,
        )
        self.serving = self._make_serving(doors, metrics)
        self.topic_creator, self.controlled_shutdown = self.serving.topic_creator, self.serving.controlled_shutdown
        self.dispatcher = self.serving.dispatcher
        self.is_open = False
        broker_pb2_grpc.add_BrokerControlServicer_to_server(self.control, self.rpc)  # type: ignore[no-untyped-call]
        self.rpc.add_plain(METADATA_PATH, self._metadata)
        self.candidate = ControllerCandidate(
            load_settings(ControllerSettings, node.properties),
            grpc_server=self._grpc_server(),
            registry=CollectorRegistry(),
            clock=self.clock,
        )

    def _make_serving(self, doors: Doors, metrics: BrokerMetrics) -> Serving:
        return Serving(
            DynamicConfigs(self.settings),
            doors,
            metrics=metrics,
            cluster=self.cluster,
            storage=SimpleNamespace(logs=self.logs),  # type: ignore[arg-type]
            replication=self.replication,
            coordination=self.coordination,
            membership=self.membership,
            controller=self.controller,
            control=self.control,
            suspected_brokers=SuspectedBrokers(self.cluster, self.clock, node_id=self.node.node_id),
            inter_broker=InterBroker(
                listener_security(self.settings)[self.settings.listeners[0].name], lambda: self.cluster.image
            ),
        )

    def _grpc_server(self) -> GrpcServer:
        return SimpleNamespace(server=self.rpc, add_service_name=lambda _: None)  # type: ignore[return-value]

    def _make_agent(self) -> SiteAgentHost:
        settings = self.settings
        return SiteAgentHost(
            site_name=settings.site,
            zookeeper_connect=settings.zookeeper_connect,
            zookeeper_session_timeout_ms=settings.zookeeper_session_timeout_ms,
            arbiter_connect=self.node.arbiter_connect,
            arbiter_session_timeout_ms=settings.arbiter_session_timeout_ms,
            grpc_server=self._grpc_server(),
            clock=self.clock,
        )

    def _broker_epoch(self) -> int:
        return self.membership.broker_epoch

    async def _controller_addresses(self) -> list[str]:
        return [await self.membership.controller_address()]

    def _metadata(self) -> bytes:
        topics = self.cluster.image.topics.values()
        leaders = {
            f"{topic.name}-{part.index}": (part.leader, part.leader_epoch, topic.topic_id.hex())
            for topic in topics
            for part in topic.partitions.values()
        }
        return json.dumps(leaders).encode()

    async def start(self) -> None:
        """Come up as a broker does."""
        self.logs.load(LogConfig.from_topic_configs(self.settings.properties, {}))
        self.control.on_image(self.fetchers.on_image)
        self.control.on_image(self.proposals.on_image)
        if self.node.has_coordinators:
            self.control.on_image(self.coordination.groups.on_image)
            self.control.on_image(self.coordination.transactions.on_image)
        if self.agent is not None:
            self.control.on_image(self._prepare_coordinators)
        self.control.on_image(self._take_image)
        await self.zookeeper.start()
        await self.membership.cluster_id(known=None)
        await self.candidate.start(grpc_address=self.node.rpc_address)
        await self.membership.register(
            BrokerRegistration(
                node_id=self.node.node_id,
                endpoints=(BrokerEndpoint(listener="CLIENT", host=self.node.host, port=KAFKA_PORT),),
                grpc_address=self.node.rpc_address,
            )
        )
        self.proposals.start()
        if self.node.has_coordinators:
            self.coordination.start()
        if self.agent is not None:
            await self.agent.start(self.node.rpc_address)
            self.process.spawn(self._check_standbys(), name="standbys")
        while True:
            await self.world.pause(HIGH_WATERMARK_CHECKPOINT_S)
            self.logs.save()

    async def _check_standbys(self) -> None:
        """The part of the broker's housekeeping on which sync links depend."""
        while True:
            await self.world.pause(STANDBY_INTERVAL_MS / 1000)
            self.replicas.standbys.check()

    async def _prepare_coordinators(self, _before: ClusterImage, after: ClusterImage) -> None:
        missing = [topic for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC) if topic not in after.topics]
        if after.links and missing:
            self.topic_creator.request(missing, after)

    async def _take_image(self, before: ClusterImage, after: ClusterImage) -> None:
        self.node.ledger.image_taken(self.node.node_id, before, after)
        if after.is_complete and not self.is_open:
            self.is_open = True
            self.world.network.listen(self.node.kafka_address, self.process, self._accept)
            self.world.tell("broker accepts clients")

    def _accept(self, end: End, _: str) -> None:
        ServedConnection(end, self.dispatcher, self.node.on_produced)

    async def _stop_coordinators(self) -> None:
        await self.coordination.transactions.stop()
        await self.coordination.registration.stop()
        await self.coordination.groups.stop()
        await self.coordination.producer_ids.stop()
        await self.topic_creator.stop()
        await self.coordination.peers.close()

    async def stop(self) -> None:
        """A controlled shutdown."""
        await self.controlled_shutdown.run(
            self.controller,
            self.settings,
            broker_epoch=self.membership.broker_epoch,
            replicas=self.replicas,
            image=lambda: self.cluster.image,
        )
        self.world.network.listeners.pop(self.node.kafka_address, None)
        if self.agent is not None:
            await self.agent.stop()
        if self.node.has_coordinators:
            await self._stop_coordinators()
        await self.proposals.stop()
        await self.fetchers.stop()
        for log in self.logs:
            log.stored.flushed = log.log_end_offset
        self.logs.save()
        await self.membership.unregister()
        await self.candidate.stop()
        await self.zookeeper.stop()


class NodesLedger(Protocol):
    """What checks the nodes of a site or of two."""

    disks: dict[int, Disk]

    def of_node(self, node: int) -> LogObserver:
        """The checks of one node's logs."""
        ...

    def image_taken(self, node: int, before: ClusterImage, after: ClusterImage) -> None:
        """A broker has taken an image."""
        ...

    def lost_power(self, node: int) -> None:
        """A host has lost its power."""
        ...


class Node:
    """See the module."""

    def __init__(
        self,
        world: World,
        ledger: NodesLedger,
        node_id: int,
        *,
        properties: Mapping[str, Any] | None = None,
        arbiter_connect: str = "",
        clock: VirtualClock | None = None,
    ) -> None:
        """A node of one site; with `arbiter_connect` a site agent works in its process."""
        self.world = world
        self.ledger = ledger
        self.node_id = node_id
        self.host = f"b{node_id}"
        self.kafka_address = f"{self.host}:{KAFKA_PORT}"
        self.rpc_address = f"{self.host}:{RPC_PORT}"
        self.has_coordinators = False
        self.disk = ledger.disks[node_id] = Disk()
        self.arbiter_connect = arbiter_connect
        self.clock = clock or VirtualClock(world.loop)
        self.properties = {
            **PROPERTIES,
            "node.id": str(node_id),
            "listeners": f"CLIENT://{self.kafka_address}",
            **(properties or {}),
        }
        self.process: Process | None = None
        self.running: Running | None = None
        self.on_produced: OnProduced | None = None
        self._starts = 0
        self._has_lost_power = False
        self._is_stopping = False

    @property
    def is_running(self) -> bool:
        """Whether a process is alive, paused or not."""
        return self.process is not None and self.process.is_alive

    @property
    def is_stopping(self) -> bool:
        """Whether the process was asked to stop and has not yet."""
        return self.is_running and self._is_stopping

    def start(self) -> None:
        """A new process over the disk that the last one left."""
        if self.is_running:
            return
        world = self.world
        self._starts += 1
        world.network.powerless.discard(self.host)
        self.disk.recover(world.chance, has_lost_power=self._has_lost_power)
        self._has_lost_power = self._is_stopping = False
        process = self.process = Process(world.loop, f"{self.host}.{self._starts}", self.host)
        process.on_death.append(lambda: world.network.process_ended(process))
        world.network.changed()
        process.spawn(self._run(process), name=process.name)

    async def _run(self, process: Process) -> None:
        world = self.world
        world.tell("starts")

        try:
            self.running = Running(self, process)
            await self.running.start()
        except (OperationalFailure, KazooException) as error:
            world.tell(f"cannot start: {error!r}")
            world.loop.call_later(RESTART_S, self.start, context=world.network.context)
            process.kill()
        except Exception as error:
            world.violate("no-defect", f"{self.host} does not start: {error!r} {traceback.format_exc(limit=-3)}")

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None and self.process.is_alive:
            self.world.tell(f"{self.host} is killed")
            self.process.kill()

    def lose_power(self) -> None:
        """The machine loses power without notice, and its unflushed bytes with it."""
        if self.process is not None and self.process.is_alive:
            self.world.tell(f"{self.host} loses power")
            self._has_lost_power = True
            self.world.network.powerless.add(self.host)
            self.ledger.lost_power(self.node_id)
            self.process.kill()

    def stop(self) -> None:
        """SIGTERM."""
        running, process = self.running, self.process
        if running is not None and process is not None and process.is_alive and running.is_open:
            self.world.tell(f"{self.host} is asked to stop")
            self._is_stopping = True
            process.spawn(self._stop(running, process), name="stop")

    async def _stop(self, running: Running, process: Process) -> None:
        await running.stop()
        self.world.tell("has stopped")
        process.kill()
