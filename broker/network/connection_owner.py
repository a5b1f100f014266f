"""The common part of both halves of a client's connection: the services of the server that accepted
it.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

from broker.network.request_memory import RequestMemory
from runtime.clock import Clock

Frame = memoryview


class ConnectionOwner(Protocol):
    """The `ConnectionServer`, as the halves of a connection use it."""

    memory: RequestMemory
    clock: Clock
    loop: asyncio.AbstractEventLoop
    shared_view: memoryview
    request_bytes_max: int
