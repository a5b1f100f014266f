"""The channels of the control plane, over a line with a delay."""

from __future__ import annotations

import asyncio
import contextlib

from grpc_health.v1 import health_pb2, health_pb2_grpc

from runtime.grpc_server import GrpcServer, open_channel
from tests.support.processes.ports import LOOPBACK

DELAY_S = 0.3
"""The delay of each direction: that of a line between sites whose packets are sent twice."""


async def test_a_channel_connects_over_a_line_with_a_delay() -> None:
    server = GrpcServer(LOOPBACK, 0)
    port = await server.start()

    async def passed_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            asyncio.get_running_loop().call_later(DELAY_S, target.write, data)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            answers, requests = await asyncio.open_connection(LOOPBACK, port)
            with contextlib.closing(requests):
                await asyncio.gather(passed_on(reader, requests), passed_on(answers, writer))

    line = await asyncio.start_server(connected, LOOPBACK, 0)
    address = f"{LOOPBACK}:{line.sockets[0].getsockname()[1]}"
    try:
        async with open_channel(address) as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=30)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
    finally:
        line.close()
        await server.stop()
