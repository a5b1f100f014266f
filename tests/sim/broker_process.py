"""The process of one node: a broker, a controller candidate and, where an arbiter is, a site agent,
as `cli/embedding/hosting.py` composes them.

The broker is the whole one (`broker/main.py`) over simulated doors: the clock, chance, small files
and logs in memory, sockets, gRPC and ZooKeeper. Beside it the process answers what the
simulation's clients ask for the leaders.
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from functools import partial
from types import SimpleNamespace
from typing import Any, Final

from msgspec import structs
from prometheus_client import CollectorRegistry

from broker.assembly.doors import Doors
from broker.main import Broker
from broker.metadata.core.cluster_image import ClusterImage
from broker.settings.config import BrokerSettings
from broker.settings.loading import load_broker_settings
from broker.site.membership import Membership
from controller.config import ControllerSettings
from controller.main import ControllerCandidate
from dr.agent.host import SiteAgentHost
from runtime.configuration import load_settings
from runtime.doors import ProcessDoors
from runtime.grpc_server import GrpcServer
from tests.sim.disk import Disk, LogObserver, MemoryLogStore
from tests.sim.doors import process_doors
from tests.sim.rpc import RpcServer
from tests.sim.sockets import MakeTap, SimSockets
from tests.sim.virtual_loop import Process
from tests.sim.world import VirtualClock, World
from tests.sim.zookeeper_door import SimZooKeeper

KAFKA_PORT = 9092
RPC_PORT = 9000
METADATA_PATH = "/simulation/Metadata"

PROPERTIES: Final[Mapping[str, Any]] = {
    "zookeeper.connect": "z1:2181",
    "zookeeper.session.timeout.ms": "2000",
    "antipode.site.name": "a",
    "antipode.site.number": "0",
    "antipode.cluster.id": "simulated-cluster-0001",
    "antipode.controller.deletion.retry.ms": "500",
    "antipode.controller.apply.wait.ms": "1000",
    "leader.imbalance.check.interval.seconds": "5",
    "log.dirs": "memory",
    "log.cleaner.enable": "false",
    "replica.lag.time.max.ms": "1000",
    "replica.fetch.wait.max.ms": "250",
    "replica.socket.timeout.ms": "1000",
    "replica.fetch.backoff.ms": "200",
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "antipode.truncated.records.max.bytes": "0",
    "replica.high.watermark.checkpoint.interval.ms": "1000",
}


class BrokerProcess:
    """The parts of one process, from its start to its end."""

    def __init__(
        self,
        world: World,
        process: Process,
        properties: Mapping[str, Any],
        *,
        clock: VirtualClock,
        disk: Disk,
        observer: LogObserver,
        arbiter_connect: str,
        make_tap: MakeTap | None,
    ) -> None:
        self._settings = settings = load_broker_settings(properties)
        self._rpc_address = str(settings.grpc_listener)
        server = RpcServer(world.network, process, self._rpc_address)
        server.add_plain(METADATA_PATH, self._leaders)
        grpc_server: GrpcServer = SimpleNamespace(server=server, add_service_name=lambda _: None)  # type: ignore[assignment]
        self._zookeeper = SimZooKeeper(
            world,
            process,
            session_timeout_ms=settings.zookeeper_session_timeout_ms,
            connect=settings.zookeeper_connect,
        )
        doors = process_doors(world, process, clock, random.Random(f"{world.seed} {process.name}"))
        self.broker = Broker(
            settings,
            grpc_server,
            Membership(settings, self._zookeeper, clock),
            doors=Doors(
                **structs.asdict(doors),
                disk=disk.files,
                make_logs=partial(_logs_in_memory, disk, observer),
                sockets=SimSockets(world.network, process, make_tap),
            ),
        )
        self._candidate = ControllerCandidate(
            load_settings(ControllerSettings, properties),
            grpc_server=grpc_server,
            registry=CollectorRegistry(),
            doors=doors,
        )
        self._agent = _agent(settings, grpc_server, doors, arbiter_connect=arbiter_connect) if arbiter_connect else None

    @property
    def is_open(self) -> bool:
        """True once the broker serves clients."""
        return self.broker.ready.is_set()

    @property
    def image(self) -> ClusterImage:
        """The broker's image of its site."""
        return self.broker.cluster.image

    def _leaders(self) -> bytes:
        leaders = {
            f"{topic.name}-{part.index}": (part.leader, part.leader_epoch, topic.topic_id.hex())
            for topic in self.image.topics.values()
            for part in topic.partitions.values()
        }
        return json.dumps(leaders).encode()

    async def start(self) -> None:
        """Come up in the order of `cli`."""
        await self._zookeeper.start()
        await self._candidate.start(grpc_address=self._rpc_address)
        await self.broker.start(grpc_port=self._settings.grpc_listener.port)
        if self._agent is not None:
            await self._agent.start(self._rpc_address)

    async def stop(self) -> None:
        """Stop cleanly, in reverse order."""
        if self._agent is not None:
            await self._agent.stop()
        await self.broker.stop()
        await self._candidate.stop()
        await self._zookeeper.stop()


def _agent(
    settings: BrokerSettings, grpc_server: GrpcServer, doors: ProcessDoors, *, arbiter_connect: str
) -> SiteAgentHost:
    return SiteAgentHost(
        site_name=settings.site,
        zookeeper_connect=settings.zookeeper_connect,
        zookeeper_session_timeout_ms=settings.zookeeper_session_timeout_ms,
        arbiter_connect=arbiter_connect,
        arbiter_session_timeout_ms=settings.arbiter_session_timeout_ms,
        grpc_server=grpc_server,
        doors=doors,
    )


def _logs_in_memory(disk: Disk, observer: LogObserver, *_: Any, now_ms: Any, **__: Any) -> MemoryLogStore:
    return MemoryLogStore(disk, observer, now_ms=now_ms)
