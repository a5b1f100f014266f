"""SASL of one connection: gives each request to `SaslLogin`, acts on its answers, and keeps the
connection's principal.

It is the gate of its connection (`broker/network/connections.py`) until the client has logged in,
and longer where sessions end. A refusal is answered after
`connection.failed.authentication.delay.ms` so that passwords cannot be tried at a rate; nothing
more of the connection is read meanwhile. A client of an address whose logins failed too often is
disconnected before its login is looked at.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, Protocol

from kio.schema.errors import ErrorCode

from broker.authentication.core.sasl_login import Answer, SaslLogin, SaslOffer
from broker.authentication.refusal_log import RefusalLog
from runtime.clock import Clock
from wire.rules.principals import USER, Principal

MESSAGE_BYTES_MAX: Final = 64 * 1024 - 4
"""An eighth of Kafka's `sasl.server.max.receive.size`: a frame that takes no part of the memory for
large requests (`broker/network/frame_receiver.py`), so that unknown clients use up none of it.
"""
_HEADER_BYTES: Final = 8
_API_KEY: Final = struct.Struct(">h")
_SIZE: Final = struct.Struct(">i")


class Client(Protocol):
    """The connection, as a session uses it."""

    address: str
    listener: str
    principal: Principal

    def answer(self, parts: Sequence[bytes] | None) -> None:
        """End the request in flight."""
        ...

    def close(self, reason: str) -> None:
        """Close now."""
        ...

    def login_failed(self) -> None:
        """The client has shown a wrong password or token."""
        ...

    @property
    def is_login_refused(self) -> bool:
        """True while the client may not log in: too many logins of its address have failed."""
        ...

    def open_gate(self) -> None:
        """Send each later request to the handler."""
        ...

    def shut_gate(self) -> None:
        """Send each later request to this gate first."""
        ...


class LoginCounts:
    """Counts of the logins at one listener, by result, and the log of those that were refused."""

    def __init__(self) -> None:
        self.successful_count = 0
        self.failed_count = 0
        self.refusals = RefusalLog()


class SaslSession:
    """The SASL session of one connection."""

    def __init__(
        self, client: Client, offer: SaslOffer, clock: Clock, counts: LoginCounts, *, frame_bytes_max: int
    ) -> None:
        self._client = client
        self._offer = offer
        self._clock = clock
        self._counts = counts
        self._frame_bytes_max = frame_bytes_max
        self._login = SaslLogin(offer)

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """The offered mechanisms."""
        return tuple(self._offer.mechanisms)

    @property
    def is_by_token(self) -> bool:
        """True if the client has logged in by a delegation token."""
        return self._login.is_by_token

    @property
    def frame_bytes_bounds(self) -> tuple[int, int]:
        """The minimum and maximum size of the next frame."""
        if self._login.is_raw:
            return 0, MESSAGE_BYTES_MAX
        return _HEADER_BYTES, MESSAGE_BYTES_MAX if self._login.login is None else self._frame_bytes_max

    def admits(self, frame: memoryview) -> bool:
        """True if the handler may process the frame; otherwise it is answered here, or the
        connection is closed.
        """
        # a client that has logged in may log in again, even if other clients at its address fail
        if self._login.login is None and self._client.is_login_refused:
            self._client.close("too many logins of its address have failed")
            return False
        if self._login.is_raw:
            # copied: the exchange keeps the message, and the frame's buffer is reused
            self._take_raw(bytes(frame))
            return False
        refusal = self._login.refusal(_API_KEY.unpack_from(frame)[0], self._clock.monotonic_ms())
        if refusal:
            self._client.close(refusal)
        return not refusal

    def handshake(self, mechanism: str, version: int) -> Answer:
        """The answer to SaslHandshake."""
        answer = self._login.handshake(mechanism, version, self._clock.monotonic_ms())
        # a client that logs in again (KIP-368) must pass the gate again
        self._client.shut_gate()
        return answer

    def token_deriving(self, message: bytes) -> Awaitable[None] | None:
        """What has to be awaited before `authenticate` takes this message: the keys of a delegation
        token that is used for the first time; None for nothing.
        """
        return self._login.token_deriving(message)

    def authenticate(self, message: bytes) -> Answer:
        """The answer to SaslAuthenticate, which the caller sends (with `refuse` for a refusal)."""
        answer = self._login.authenticate(message, now_ms=self._clock.now_ms(), monotonic_ms=self._clock.monotonic_ms())
        login = self._login.login
        if login is not None and not answer.is_refused and not self._login.is_exchanging:
            self._counts.successful_count += 1
            self._client.principal = Principal(USER, login.name)
            # a session that ends keeps its gate: the gate checks each request until then
            if self._login.ends_at_ms is None:
                self._client.open_gate()
        return answer

    def refuse(self, answer: Answer, answering: Callable[[], None]) -> None:
        """Answer a refusal by `answering` after the delay, and close the connection."""
        self._counts.failed_count += 1
        # a wrong order of requests tries no password
        if answer.error is ErrorCode.sasl_authentication_failed:
            self._client.login_failed()
        self._counts.refusals.add(client=self._client.address, listener=self._client.listener, reason=answer.reason)

        loop = asyncio.get_running_loop()

        def end() -> None:
            answering()
            # in a turn of its own: in a storm of wrong logins, other clients wait for the longest
            # turn
            loop.call_soon(self._client.close, "its login was refused")

        loop.call_later(self._offer.failure_delay_ms / 1000, end)

    def _take_raw(self, message: bytes) -> None:
        answer = self.authenticate(message)
        if answer.is_refused:
            self.refuse(answer, lambda: None)
        else:
            self._client.answer([_SIZE.pack(len(answer.message)), answer.message])
