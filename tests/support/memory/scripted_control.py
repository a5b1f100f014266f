"""Brokers for controller tests: registered in a real ZooKeeper, served over real gRPC, that
remember every batch they were given.

A scripted broker can refuse batches, answer with failures, be slow, vanish and come back. It keeps
no logs.
"""

from __future__ import annotations

import asyncio
from typing import Any, Self

import grpc

from runtime.grpc_server import GrpcServer
from runtime.zookeeper.client import ZooKeeper
from wire.control import broker_pb2_grpc
from wire.control.broker_pb2 import ControlBatch, ControlReply, PartitionFailure
from wire.control.cluster_pb2 import PartitionState
from wire.znodes import layout as znodes
from wire.znodes.acl_znodes import ACL_PATHS
from wire.znodes.broker_znodes import BrokerEndpoint, BrokerRegistration, encode_broker
from wire.znodes.token_znodes import TOKEN_PATHS


class ScriptedBroker(broker_pb2_grpc.BrokerControlServicer):
    """One broker of a site; `async with` registers it."""

    def __init__(self, connect: str, node_id: int, *, rack: str = "") -> None:
        self.node_id = node_id
        self.rack = rack
        self.batches: list[ControlBatch] = []
        self.partitions: dict[tuple[str, int], PartitionState] = {}
        self.topic_configs: dict[str, dict[str, str]] = {}
        self.links: dict[str, Any] = {}
        self.live: list[int] = []
        self.is_refusing = False
        self.failing_topics: set[str] = set()
        self.gate = asyncio.Event()
        self.gate.set()
        self._connect = connect
        self._zookeeper: ZooKeeper | None = None
        self._server = GrpcServer("127.0.0.1", 0)
        broker_pb2_grpc.add_BrokerControlServicer_to_server(self, self._server.server)  # type: ignore[no-untyped-call]
        self._port = 0

    async def __aenter__(self) -> Self:
        self._port = await self._server.start()
        await self.register()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.gate.set()
        await self.unregister()
        await self._server.stop(0)

    async def register(self) -> None:
        """Come (back) to the site."""
        self._zookeeper = ZooKeeper(self._connect, session_timeout_ms=20_000)
        await self._zookeeper.start()
        for path in (*znodes.PERSISTENT_PATHS, *ACL_PATHS, *TOKEN_PATHS):
            await self._zookeeper.ensure_path(path)
        registration = BrokerRegistration(
            node_id=self.node_id,
            endpoints=(BrokerEndpoint(listener="CLIENT", host="127.0.0.1", port=9092),),
            grpc_address=f"127.0.0.1:{self._port}",
            rack=self.rack,
        )
        await self._zookeeper.create(znodes.broker_path(self.node_id), encode_broker(registration), is_ephemeral=True)

    async def unregister(self) -> None:
        """Leave the site; the process continues to answer."""
        if self._zookeeper is not None:
            await self._zookeeper.stop()
            self._zookeeper = None

    async def Apply(self, request: ControlBatch, context: Any) -> ControlReply:
        """Remember and obey."""
        await self.gate.wait()
        if self.is_refusing:
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, "refused by the test")
        self.batches.append(request)
        if request.is_full:
            self.partitions.clear()
            self.topic_configs.clear()
            self.links.clear()
        for deleted in request.deleted_topics:
            self.partitions = {key: state for key, state in self.partitions.items() if key[0] != deleted.name}
            self.topic_configs.pop(deleted.name, None)
        for topic in request.topics:
            self.topic_configs[topic.name] = dict(topic.configs)
            for state in topic.partitions:
                self.partitions[topic.name, state.partition] = state
        for link in request.links:
            self.links[link.name] = link
        for name in request.deleted_links:
            self.links.pop(name, None)
        self.live = [broker.node_id for broker in request.brokers]
        failures = [
            PartitionFailure(topic=deleted.name, partition=0, error_code=56)
            for deleted in request.deleted_topics
            if deleted.name in self.failing_topics
        ]
        return ControlReply(node_id=self.node_id, failures=failures)

    def leader_of(self, topic: str, partition: int = 0) -> int | None:
        """Leader as this broker was informed; None for an unknown partition."""
        state = self.partitions.get((topic, partition))
        return None if state is None else state.leader
