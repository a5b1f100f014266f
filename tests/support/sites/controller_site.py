"""A controller candidate on its own gRPC server, for tests that start several of them in one site,
and a client of them.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any, NamedTuple, Self

from prometheus_client import CollectorRegistry

from controller.config import ControllerSettings
from controller.main import ControllerCandidate
from runtime.configuration import load_settings
from runtime.grpc_server import GrpcServer
from tests.support.memory.scripted_control import ScriptedBroker
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient


class CandidateProcess:
    """`async with` starts it; `crash` ends its session without resigning."""

    def __init__(self, connect: str, node_id: int, **properties: str) -> None:
        mapping: dict[str, Any] = {
            "node.id": str(node_id),
            "zookeeper.connect": connect,
            "zookeeper.session.timeout.ms": "20000",
            "antipode.site.name": "a",
            "antipode.site.number": "1",
            "antipode.replication.factor.max": "3",
            "antipode.controller.deletion.retry.ms": "100",
        }
        mapping |= {key.replace("_", "."): value for key, value in properties.items()}
        self.registry = CollectorRegistry()
        self.settings = load_settings(ControllerSettings, mapping)
        self.server = GrpcServer("127.0.0.1", 0)
        self.candidate = ControllerCandidate(
            self.settings, grpc_server=self.server, registry=self.registry, heeds_altered_configs=True
        )
        self.address = ""

    async def __aenter__(self) -> Self:
        self.address = f"127.0.0.1:{await self.server.start()}"
        await self.candidate.start(grpc_address=self.address)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Resign and leave."""
        await self.candidate.stop()
        await self.server.stop(0)

    @property
    def is_active(self) -> bool:
        """True if the controller is elected and has loaded the cluster."""
        return self.candidate.active is not None

    def metric(self, name: str, *, bean: str = "kafkacontroller") -> float:
        """A value of its metrics."""
        value = self.registry.get_sample_value(f"kafka_controller_{bean}_{name}")
        assert value is not None, name
        return value


class ControllerSite(NamedTuple):
    """A site of one broker that records the batches of its controller."""

    broker: ScriptedBroker
    candidate: CandidateProcess
    client: ControllerClient


def start_client(stack: AsyncExitStack, *candidates: CandidateProcess, timeout_ms: float = 10_000) -> ControllerClient:
    """A client of the candidates that the stack closes."""
    client = ControllerClient(lambda: [candidate.address for candidate in candidates], timeout_ms=timeout_ms)
    stack.push_async_callback(client.close)
    return client


async def create_topic(
    client: ControllerClient, name: str, partitions: int = 1, factor: int = 1, **configs: str
) -> pb.TopicResult:
    """Create a topic; configs with underscores for dots. The result may be an error."""
    topic = pb.NewTopic(
        name=name,
        partition_count=partitions,
        replication_factor=factor,
        configs={key.replace("_", "."): value for key, value in configs.items()},
    )
    reply = await client.create_topics(pb.CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
    result: pb.TopicResult = reply.results[0]
    return result
