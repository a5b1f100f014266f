"""Connection servers on loopback with no broker behind them, and a handler that answers when the
test says so.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from msgspec.structs import replace

from broker.network.connection_limits import ConnectionLimits
from broker.network.connection_owner import Frame
from broker.network.connection_server import UNLIMITED, ConnectionServer
from broker.network.connections import Connection
from broker.network.request_memory import RequestMemory
from broker.quotas.core.connection_rates import ConnectionRates
from runtime.clock import SystemClock

LIMITS = ConnectionLimits(
    request_bytes_max=1 << 20,
    connections_max=100,
    connections_per_address_max=100,
    connections_per_address_overrides={},
    connection_creation_rate_max=UNLIMITED,
    idle_ms_max=60_000,
    send_buffer_bytes=8192,
    receive_buffer_bytes=8192,
    failed_logins_max=0,
    failed_logins_window_ms=60_000,
)

Starter = Callable[..., tuple[ConnectionServer, int]]


class Held:
    """Answers each frame with its own bytes when the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Connection, bytes]] = []
        self.is_prompt = False

    def handle(self, connection: Connection, frame: Frame) -> None:
        """Take a frame, as a connection's handler."""
        content = bytes(frame)
        if self.is_prompt:
            connection.answer([framed(content)])
        else:
            self.waiting.append((connection, content))

    def answer_next(self) -> None:
        """Answer the one that has waited longest."""
        connection, content = self.waiting.pop(0)
        connection.answer([framed(content)])


@asynccontextmanager
async def connection_servers() -> AsyncIterator[Starter]:
    """Starts servers for a handler, with other limits where given, or another clock, rates, memory
    or entrance; the server and its port.
    """
    servers = []

    def begin(handler: Any, **limits: Any) -> tuple[ConnectionServer, int]:
        memory = RequestMemory(limits.pop("memory_bytes", 1 << 24))
        rates = limits.pop("rates", ConnectionRates(samples=11, window_ms=1000))
        exempt, host = limits.pop("exempt_listener", ""), limits.pop("host", "127.0.0.1")
        clock, entrance = limits.pop("clock", SystemClock()), limits.pop("entrance", None)
        server = ConnectionServer(handler, replace(LIMITS, **limits), memory, clock, rates, exempt_listener=exempt)
        port = server.listen("CLIENT", host, 0, entrance)
        if exempt:
            server.listen(exempt, "127.0.0.1", 0)
        server.start_accepting()
        servers.append(server)
        return server, port

    yield begin
    for server in servers:
        await server.stop(grace_s=0.1)


def framed(content: bytes) -> bytes:
    """The content with its size before it."""
    return struct.pack(">i", len(content)) + content
