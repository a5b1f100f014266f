"""One node of the site: the real broker's replication and the real controller candidate in one
simulated process.

Replication and coordinators are the broker's own assemblies (`broker/assembly/`) over simulated
doors; links and housekeeping are left out, and coordinators work only where the kind of the seed
asks for them. `Node` outlives its
processes and owns their disk; `kill`, `lose_power`, `pause` and `stop` are what can happen to one.
"""

from __future__ import annotations

import json
import random
import struct
from collections import deque
from types import SimpleNamespace
from typing import Any

from kazoo.exceptions import KazooException
from prometheus_client import CollectorRegistry

from broker.assembly.coordination import Coordination
from broker.assembly.doors import Doors
from broker.assembly.replication import Replication
from broker.dispatch import Dispatcher
from broker.log.log_slice import LogSlice
from broker.metadata.cluster import Cluster
from broker.metadata.core.cluster_image import ClusterImage
from broker.metrics import BrokerMetrics
from broker.network.response_slots import Place, ResponseSlots
from broker.quotas.client_throttling import Quotas
from broker.replication.core.fetch_sessions import FetchSessions
from broker.replication.replicas import Replicas
from broker.settings.config import BrokerSettings, load_broker_settings
from broker.settings.core.topic_configs import LogConfig
from broker.site.control_service import BrokerControlService
from broker.site.controlled_shutdown import ControlledShutdown
from broker.site.membership import Membership
from broker.site.topic_creation import TopicCreator
from controller.config import ControllerSettings
from controller.main import ControllerCandidate
from runtime.configuration import load_settings
from runtime.process import OperationalFailure
from tests.sim.disk import Disk, MemoryLogStore
from tests.sim.ledger import Ledger
from tests.sim.network import End
from tests.sim.rpc import RpcServer
from tests.sim.virtual_loop import Process
from tests.sim.world import VirtualClock, World
from tests.sim.zookeeper_door import SimZooKeeper
from tests.support.memory.no_authorizer import NO_AUTHORIZER
from wire.control import broker_pb2_grpc
from wire.control.broker_pb2 import DescribeGroupOffsetsReply
from wire.control.clients import ControllerClient
from wire.rules.principals import ANONYMOUS
from wire.znodes import layout as znodes

KAFKA_PORT = 9092
RPC_PORT = 9000
HIGH_WATERMARK_CHECKPOINT_S = 1.0
RESTART_S = 1.0
"""After this a process that could not start is started again, as a service is."""
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


class Services:
    """What the handlers that clients here reach use of `BrokerServices`; `reach` adds
    to it.
    """

    def __init__(
        self,
        cluster: Cluster,
        replicas: Replicas,
        settings: BrokerSettings,
        clock: VirtualClock,
        controlled_shutdown: ControlledShutdown,
    ) -> None:
        self.cluster = cluster
        self.controlled_shutdown = controlled_shutdown
        self.replicas = replicas
        self.config = settings
        self.clock = clock
        self.metrics = BrokerMetrics()
        self.quotas = Quotas(settings, clock)
        self.authorizer = NO_AUTHORIZER
        self._sessions = 0
        self.fetch_sessions = FetchSessions(slots=100, eviction_ms=120_000, new_id=self._new_id)

    def _new_id(self) -> int:
        self._sessions += 1
        return self._sessions

    def reach(self, coordination: Coordination, topic_creator: TopicCreator) -> None:
        """Let handlers reach the coordinators."""
        self.groups = coordination.groups
        self.producer_ids = coordination.producer_ids
        self.transactions = coordination.transactions
        self.transaction_routing = coordination.routing
        self.transaction_admission = coordination.admission
        self.transaction_markers = coordination.markers
        self.topic_creator = topic_creator

    @property
    def image(self) -> ClusterImage:
        """The newest image."""
        return self.cluster.image


class ServedConnection:
    """A client's connection as the dispatcher sees it: one request at a time, or those for which a
    place is taken; answers in order.
    """

    listener = "CLIENT"
    address = "simulated"

    def __init__(self, end: End, dispatcher: Dispatcher) -> None:
        self._end = end
        self._dispatcher = dispatcher
        self._frames: deque[bytes] = deque()
        self._is_busy = False
        self._is_handling = False
        self._places = ResponseSlots(self._on_slot_answered)
        self.client_software = ""
        self.principal = ANONYMOUS
        self.is_closed = False
        self.on_close: Any = None
        self.on_end: Any = None
        end.on_message = self._receive
        end.on_lost = lambda: self.close("lost")

    def _receive(self, message: bytes) -> None:
        (size,) = struct.unpack_from(">i", message)
        assert size == len(message) - 4, "a message is a frame"
        self._frames.append(message)
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
        if parts is not None and not self.is_closed:
            self._end.send(b"".join(part.read_bytes() if isinstance(part, LogSlice) else part for part in parts))

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
        self.clock = VirtualClock(world.loop)
        self.rpc = RpcServer(world.network, process, node.rpc_address)
        self.zookeeper = SimZooKeeper(world, process, session_timeout_ms=self.settings.zookeeper_session_timeout_ms)
        self.membership = Membership(self.settings, self.zookeeper, self.clock)
        self.cluster = Cluster(ClusterImage(site="a", node_id=node.node_id))
        self.logs = MemoryLogStore(node.disk, node.ledger.of_node(node.node_id))
        self.controller = ControllerClient(self._controller_addresses)
        doors = Doors(clock=self.clock, chance=random.Random(0))
        self.replication = Replication(
            self.settings,
            doors,
            cluster=self.cluster,
            logs=self.logs,  # type: ignore[arg-type]
            controller=self.controller,
            metrics=BrokerMetrics(),
            broker_epoch=self._broker_epoch,
            on_lost=lambda _: None,
        )
        self.replicas, self.fetchers = self.replication.replicas, self.replication.fetchers
        self.proposals = self.replication.proposals
        self.controlled_shutdown = ControlledShutdown()
        self.services = Services(self.cluster, self.replicas, self.settings, self.clock, self.controlled_shutdown)
        self.dispatcher = Dispatcher(self.services)  # type: ignore[arg-type]
        self.control = BrokerControlService(
            node.node_id,
            self.cluster,
            self.replicas,
            broker_epoch=self._broker_epoch,
            describe_groups=_no_groups,
        )
        self.coordination = Coordination(
            self.settings,
            doors,
            cluster=self.cluster,
            replicas=self.replicas,
            membership=self.membership,
            controller=self.controller,
            broker_epoch=self._broker_epoch,
        )
        self.topic_creator = TopicCreator(self.settings, self.controller)
        self.services.reach(self.coordination, self.topic_creator)
        self.is_open = False
        broker_pb2_grpc.add_BrokerControlServicer_to_server(self.control, self.rpc)  # type: ignore[no-untyped-call]
        self.rpc.add_plain(METADATA_PATH, self._metadata)
        self.candidate = ControllerCandidate(
            load_settings(ControllerSettings, node.properties),
            grpc_server=SimpleNamespace(server=self.rpc, add_service_name=lambda _: None),  # type: ignore[arg-type]
            registry=CollectorRegistry(),
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
        self.control.on_image(self._take_image)
        await self.zookeeper.start()
        await self.membership.cluster_id(known=None)
        await self.candidate.start(grpc_address=self.node.rpc_address)
        await self.membership.register(
            znodes.BrokerRegistration(
                node_id=self.node.node_id,
                endpoints=(znodes.BrokerEndpoint(listener="CLIENT", host=self.node.host, port=KAFKA_PORT),),
                grpc_address=self.node.rpc_address,
            )
        )
        self.proposals.start()
        if self.node.has_coordinators:
            self.coordination.start()
        while True:
            await self.world.pause(HIGH_WATERMARK_CHECKPOINT_S)
            self.logs.save()

    async def _take_image(self, before: ClusterImage, after: ClusterImage) -> None:
        self.node.ledger.image_taken(self.node.node_id, before, after)
        if after.is_complete and not self.is_open:
            self.is_open = True
            self.world.network.listen(self.node.kafka_address, self.process, self._accept)
            self.world.tell("broker accepts clients")

    def _accept(self, end: End, _: str) -> None:
        ServedConnection(end, self.dispatcher)

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


class Node:
    """See the module."""

    def __init__(self, world: World, ledger: Ledger, node_id: int) -> None:
        self.world = world
        self.ledger = ledger
        self.node_id = node_id
        self.host = f"b{node_id}"
        self.kafka_address = f"{self.host}:{KAFKA_PORT}"
        self.rpc_address = f"{self.host}:{RPC_PORT}"
        self.has_coordinators = False
        self.disk = ledger.disks[node_id] = Disk()
        self.properties = PROPERTIES | {"node.id": str(node_id), "listeners": f"CLIENT://{self.kafka_address}"}
        self.process: Process | None = None
        self.running: Running | None = None
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

        self.running = Running(self, process)
        try:
            await self.running.start()
        except (OperationalFailure, KazooException) as error:
            world.tell(f"cannot start: {error!r}")
            world.loop.call_later(RESTART_S, self.start, context=world.network.context)
            process.kill()

    def kill(self) -> None:
        """SIGKILL."""
        if self.process is not None and self.process.is_alive:
            self.world.tell(f"{self.host} is killed")
            self.process.kill()

    def lose_power(self) -> None:
        """The machine is gone without a word, and what it had not flushed with it."""
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


async def _no_groups(_: str, *, is_brief: bool) -> DescribeGroupOffsetsReply:
    return DescribeGroupOffsetsReply()
