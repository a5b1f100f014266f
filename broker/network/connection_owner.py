"""What a client's connection needs of the server that has accepted it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol

from broker.network.request_memory import RequestMemory
from runtime.clock import Clock

if TYPE_CHECKING:
    from broker.network.connections import Connection

Frame = memoryview


class FrameHandler(Protocol):
    """The handler of frames (`broker/dispatch.py`)."""

    def handle(self, connection: Connection, frame: Frame) -> None:
        """Handle one request; `connection.answer` is called now or later. MalformedRequest closes
        the connection.
        """
        ...


class Server(Protocol):
    """The `ConnectionServer`, as a connection uses it."""

    handler: FrameHandler
    memory: RequestMemory
    clock: Clock
    loop: asyncio.AbstractEventLoop
    shared_view: memoryview
    request_bytes_max: int

    def connection_closed(self, connection: Connection) -> None:
        """Bookkeeping of a connection that closed itself."""
        ...
