"""A daemon's health over gRPC, over HTTP and among its figures: one and the same, also before its
link is opened.
"""

from __future__ import annotations

import asyncio
from typing import Any, Self

import grpc
import requests
from grpc_health.v1 import health_pb2, health_pb2_grpc

from mirror.admin.service import SERVICE_NAME
from mirror.flow.core.flow_state import FlowState
from mirror.main import MirrorDaemon
from mirror.settings.config import load_config
from tests.support.eventually import eventually
from tests.support.memory.memory_mirror import mirroring, states, world_with
from tests.support.memory.memory_world import MemoryWorld
from tests.support.processes.ports import LOOPBACK, free_port

SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING


class Pages:
    """A daemon whose link's agents do not answer; `show` gives it a mirror all the same."""

    async def __aenter__(self) -> Self:
        properties = {
            "link.name": "a-b",
            "site.agents": f"{LOOPBACK}:{free_port()}",
            "antipode.grpc.listener": f"{LOOPBACK}:0",
            "antipode.metrics.listener": f"{LOOPBACK}:0",
        }
        self.daemon = MirrorDaemon(load_config(properties))
        await self.daemon.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.daemon.stop()

    async def grpc(self, service: str = "") -> int:
        async with grpc.aio.insecure_channel(f"{LOOPBACK}:{self.daemon.grpc_port}") as channel:
            request = health_pb2.HealthCheckRequest(service=service)
            return int((await health_pb2_grpc.HealthStub(channel).Check(request, timeout=30)).status)

    async def http(self) -> tuple[int, dict[str, Any]]:
        answer = await asyncio.to_thread(self._get, "health")
        return answer.status_code, answer.json()["a-b"]

    async def figure(self) -> str:
        page = (await asyncio.to_thread(self._get, "metrics")).text
        (line,) = [line for line in page.splitlines() if line.startswith("antipode_mirror_serving{")]
        return line.removeprefix("antipode_mirror_serving")

    def _get(self, path: str) -> requests.Response:
        with requests.Session() as session:
            session.trust_env = False
            return session.get(f"http://{LOOPBACK}:{self.daemon.metrics_port}/{path}", timeout=30)


async def test_a_daemon_whose_link_is_not_opened_does_not_serve() -> None:
    async with Pages() as pages:
        assert await pages.grpc() == NOT_SERVING
        assert await pages.grpc(SERVICE_NAME) == SERVING, "its commands are answered all the same"
        status, document = await pages.http()
        assert (status, document["state"], document["is_serving"]) == (503, "PREPARING", False)
        assert await pages.figure() == '{link="a-b",state="PREPARING"} 0.0'


async def test_a_daemon_serves_while_a_partition_is_mirrored_and_not_when_all_are_refused() -> None:
    world = world_with(partitions=2)
    async with Pages() as pages, mirroring(world) as mirror:
        pages.daemon._admin.show(mirror)
        await eventually(lambda: states(mirror) == {FlowState.MIRRORING})

        async def serves() -> bool:
            return await pages.grpc() == SERVING

        await eventually(serves)
        assert (await pages.http())[0] == 200
        assert await pages.figure() == '{link="a-b",state="MIRRORING"} 1.0'
    refusing = world_with(partitions=2)
    refusing.target.refusal = "invalid_replication_factor"
    async with Pages() as pages, mirroring(refusing) as mirror:
        pages.daemon._admin.show(mirror)
        await eventually(lambda: states(mirror) == {FlowState.REFUSED})
        assert await pages.grpc() == NOT_SERVING
        status, document = await pages.http()
        assert (status, document["state"]) == (503, "REFUSED")
        assert "invalid_replication_factor" in document["reason"]


async def test_a_mirror_without_a_topic_is_idle() -> None:
    async with Pages() as pages, mirroring(MemoryWorld()) as mirror:
        pages.daemon._admin.show(mirror)

        async def is_idle() -> bool:
            status, document = await pages.http()
            return (status, document["state"]) == (503, "IDLE")

        await eventually(is_idle)
        assert await pages.figure() == '{link="a-b",state="IDLE"} 0.0'
