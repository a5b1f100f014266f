"""The login of one connection: before its first request, and again before the session ends
(KIP-368). Other requests wait while it is under way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Protocol

from runtime.addresses import HostPort
from runtime.chance import jitter
from runtime.supervision import in_background, to_its_end
from wire.client.client_errors import KafkaClientError
from wire.protocol import schemas
from wire.protocol.byte_reader import Buffer
from wire.protocol.entity_building import build_entity
from wire.protocol.streams import frames

RENEWED_AFTER: Final = (0.85, 0.95)
"""The part of a session after which a client logs in again: a random one between these, as Kafka's
clients do.
"""


class Line(Protocol):
    """The `Connection`, as its login uses it."""

    address: HostPort

    @property
    def request_timeout_ms(self) -> float:
        """Deadline of a request."""
        ...

    async def send_in_order(
        self, api_key: int, version: int, body: Sequence[Buffer], body_size: int
    ) -> asyncio.Future[memoryview]:
        """Send a request; its caller holds the order of requests."""
        ...

    def trusting(self) -> AbstractContextManager[None]:
        """Bytes that contradict their version's schema end the connection."""
        ...

    def close(self, reason: str) -> None:
        """Close at once."""
        ...


class LoginExchange:
    """A connection as a handshake sees it: no other request comes between."""

    def __init__(self, line: Line) -> None:
        self.address = line.address
        self.asked_at_s = asyncio.get_running_loop().time()
        """When the last request was written, in s of the event loop's clock."""
        self._line = line

    async def call(self, api_key: int, values: Mapping[str, Any], *, version: int) -> Any:
        """Send a request with these field values; the response entity. Raises Unreachable."""
        body = schemas.encode(build_entity(schemas.request_type(api_key, version), values))
        answered = await self._line.send_in_order(api_key, version, [body], len(body))
        self.asked_at_s = asyncio.get_running_loop().time()
        frame = await answered
        with self._line.trusting():
            position = frames.response_body_position(frame, api_key, version)
            return schemas.decode(schemas.response_type(api_key, version), frame, position)


Handshake = Callable[[LoginExchange], Awaitable[float]]
"""A login. Returns how long its session lasts (ms), 0 without an end. Raises Unreachable."""


class LoginSession:
    """The logins of one connection, which calls `end` when it is lost.

    A login is renewed by a timer, or by the next request if that comes first: on a busy machine a
    timer is late, and many requests may wait for the order already. A request that the broker reads
    after the end of a session costs the connection.
    """

    def __init__(self, line: Line, order: asyncio.Lock, handshake: Handshake) -> None:
        """`order` is held by the caller that writes the next request."""
        self._line = line
        self._order = order
        self._handshake = handshake
        self._timer: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None

    @property
    def is_renewed(self) -> bool:
        """True if the session has an end."""
        return self._timer is not None

    async def begin(self) -> None:
        """Log in; the caller holds the order of requests. Raises Unreachable."""
        exchange = LoginExchange(self._line)
        session_ms = await self._handshake(exchange)
        self.end()
        self._timer = None
        if session_ms > 0:
            # counted from the request, because the broker began the session before its answer came
            due_at_s = exchange.asked_at_s + session_ms / 1000 * jitter().uniform(*RENEWED_AFTER)
            self._timer = asyncio.get_running_loop().call_at(due_at_s, self._on_timer)

    async def renew_if_due(self) -> None:
        """Log in again if it is time; the caller holds the order of requests. A login that fails
        closes the connection.
        """
        if self._timer is not None and self._timer.when() <= asyncio.get_running_loop().time():
            # to its end, because half a login before the next request would cost the connection
            await to_its_end(in_background("login of a connection", self._log_in_again()))

    def end(self) -> None:
        """Stop logging in again."""
        if self._timer is not None:
            self._timer.cancel()

    def _on_timer(self) -> None:
        self._renewing = in_background("login of a connection", self._renew_in_order())

    async def _renew_in_order(self) -> None:
        due = self._timer
        async with self._order:
            # a request may have renewed the login meanwhile
            if self._timer is due:
                await self._log_in_again()

    async def _log_in_again(self) -> None:
        try:
            async with asyncio.timeout(self._line.request_timeout_ms / 1000):
                await self.begin()
        except KafkaClientError as error:
            self._line.close(f"the login could not be renewed: {error}")
        except TimeoutError:
            self._line.close("the login could not be renewed in time")
