"""A broker with the site's real controller and a real ZooKeeper, in the test's own process."""

from __future__ import annotations

import asyncio
from pathlib import Path

from broker.main import Broker
from broker.settings.loading import load_broker_settings
from broker.site.membership import Membership
from controller.config import ControllerSettings
from controller.main import ControllerCandidate
from runtime.clock import SystemClock
from runtime.configuration import load_settings
from runtime.grpc_server import GrpcServer
from runtime.metrics import new_registry
from runtime.zookeeper.client import ZooKeeper
from tests.support.internal_topics import internal_topic_copies


class SiteBroker:
    """A broker and a controller candidate; several of one ZooKeeper make a site."""

    def __init__(self, connect: str, directory: Path, *, node_id: int = 1, **properties: str) -> None:
        self._properties = {
            "node.id": str(node_id),
            "listeners": "CLIENT://127.0.0.1:0",
            "log.dirs": str(directory),
            "zookeeper.connect": connect,
            "zookeeper.session.timeout.ms": "20000",
            "antipode.site.name": "a",
            "antipode.site.number": "0",
            "offsets.topic.num.partitions": "4",
            **internal_topic_copies(1),
            "group.initial.rebalance.delay.ms": "0",
            **{name.replace("_", "."): value for name, value in properties.items()},
        }

    async def start(self) -> None:
        settings = load_broker_settings(self._properties)
        self.zookeeper = ZooKeeper(settings.zookeeper_connect, session_timeout_ms=settings.zookeeper_session_timeout_ms)
        await self.zookeeper.start()
        self.server = GrpcServer("127.0.0.1", 0)
        registry = new_registry()
        self.membership = Membership(settings, self.zookeeper, SystemClock())
        self.broker = Broker(settings, self.server, self.membership)
        self.candidate = ControllerCandidate(
            load_settings(ControllerSettings, self._properties),
            grpc_server=self.server,
            registry=registry,
            heeds_altered_configs=True,
        )
        port = await self.server.start()
        await self.candidate.start(grpc_address=f"127.0.0.1:{port}")
        await self.broker.start(grpc_port=port)
        await asyncio.wait_for(self.broker.ready.wait(), 60)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.broker.ports['CLIENT']}"

    async def stop(self) -> None:
        await self.broker.stop()
        await self.candidate.stop()
        await self.server.stop()
        await self.zookeeper.stop()
