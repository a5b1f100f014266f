"""Connections of Kafka clients on non-blocking sockets: frames in, responses out in request order.

asyncio's transports copy too much for this work (measured: sendfile on a plain socket moves 3.8
GB/s at 0.12 CPU-seconds a GB, transport writes 2.6 GB/s at 0.35), so readiness callbacks drive
`recv_into`, `sendmsg` and `sendfile` directly.

Order and bounds. A connection has one request in flight, or several of one API whose handler allows
it (`reserve_slot`). The next frame is handled when the kernel has the response; finished responses
of small pipelined requests are sent together. So responses keep the order of requests, and a slow
reader stops its own requests. A frame is valid only until `handle` returns.

Encryption is another `Channel`. Where clients log in, `gate` sees each frame first, and passes
allowed requests to the handler (`broker/authentication/sasl_session.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from broker.authentication.sasl_session import SaslSession
from broker.network.channels import Channel, CompressedChannel, Part, release_files
from broker.network.connection_owner import ConnectionOwner, Frame
from broker.network.frame_receiver import FrameReceiver
from broker.network.response_slots import Place, Sent
from runtime.logs import get_logger
from wire.protocol.streams.frames import MalformedRequest
from wire.rules.principals import ANONYMOUS

log = get_logger(__name__)

HELD_ANSWERS_BYTES_MAX: Final = 16 * 1024
"""Answers to pipelined requests that are sent together."""
QUIET_WITHIN_MS: Final = 500
"""Time (ms) for which a closing connection still answers a client that never pauses."""
TIMER_SLACK_S: Final = 0.01


class FrameHandler(Protocol):
    """The handler of frames (`broker/dispatch.py`)."""

    def handle(self, connection: Connection, frame: Frame) -> None:
        """Handle one request; `connection.answer` is called now or later. MalformedRequest closes
        the connection.
        """
        ...


class Server(ConnectionOwner, Protocol):
    """The `ConnectionServer`, as a connection uses it."""

    handler: FrameHandler

    def connection_closed(self, connection: Connection) -> None:
        """Bookkeeping of a connection that closed itself."""
        ...

    def login_failed(self, host: str, listener: str) -> None:
        """A client of this address has shown a wrong password, token or certificate."""
        ...

    def refuses_login(self, host: str, listener: str) -> bool:
        """True while clients of this address may not log in."""
        ...


class Connection(FrameReceiver):
    """One client: splits the stream into frames, passes them on one at a time, and sends
    answers.
    """

    __slots__ = (
        "_connections",
        "_is_answering",
        "_is_draining",
        "_is_handling",
        "_quiet_until_ms",
        "_waking",
        "address",
        "client_software",
        "listener",
        "on_close",
        "on_end",
        "opened_at_ms",
        "principal",
        "sasl",
        "used_at_ms",
    )

    def __init__(self, server: Server, channel: Channel, *, listener: str, address: str) -> None:
        super().__init__(server, channel)
        self._connections = server
        self._is_answering = False
        self._is_handling = False
        self._is_draining = False
        self._quiet_until_ms = 0.0
        self._waking: asyncio.TimerHandle | None = None
        self.listener = listener
        self.address = address
        self.client_software = ""
        self.sasl: SaslSession | None = None
        """The SASL session; None at a listener whose clients do not log in."""
        self.principal = ANONYMOUS
        self.on_close: Callable[[], None] | None = None
        """Called if the connection closes while the current request is in flight."""
        self.on_end: Callable[[], None] | None = None
        """Called when the connection closes, at any time."""
        self.opened_at_ms = server.clock.monotonic_ms()
        self.used_at_ms = server.clock.monotonic_ms()
        self._read(is_wanted=True)

    # --- requests

    def _handle(self, frame: memoryview) -> None:
        self._is_busy = True
        # while a request is handled, `answer` must not schedule `_continue`: the receiving loop
        # goes on itself
        self._is_handling = True
        try:
            if self.gate is None or self.gate.admits(frame):
                self._connections.handler.handle(self, frame.toreadonly())
        finally:
            self._is_handling = False

    def _continue(self) -> None:
        """Continue what was delayed while a request or its answer was in progress."""
        # reading stops while responses wait: a client that does not read stops its own requests
        if self._is_busy or self._outgoing or self.is_closed:
            return
        if self._is_muted:
            if self._is_draining and not self._places:
                self.close("the broker stops")
            return
        try:
            # frames that arrived behind the request in flight come before new bytes from the socket
            if self._held:
                held, self._held = self._held, b""
                shared = self._server.shared_view
                shared[: len(held)] = held
                self._receive_frames(shared[: len(held)])
        except MalformedRequest as error:
            self.close(f"malformed request: {error}", is_fault=True)
            return
        if self._is_draining:
            self._close_when_quiet()
        elif (
            not self.is_closed
            and not self._wanted_bytes
            and not (self._held and (self._is_busy or self._outgoing or self._places.must_wait(self._held)))
        ):
            self._read(is_wanted=True)

    # --- responses

    def answer(
        self, parts: Sequence[Part] | None, *, throttle_time_ms: float = 0.0, on_sent: Sent | None = None
    ) -> None:
        """End the request in flight: send the parts, a whole response with its size, or nothing at
        all (acks=0: there is no response).

        Nothing more is read for `throttle_time_ms` (KIP-219: the client is answered first, then
        throttled).
        """
        self._is_busy = False
        self.on_close = None
        # responses leave in the order of requests, also if a later request was answered first
        if self._places:
            self._places.take_behind().answer(parts, throttle_time_ms=throttle_time_ms, on_sent=on_sent)
        else:
            self._accept_response(parts, throttle_time_ms, on_sent)
            if parts is not None and not self.is_closed and not self._may_hold(parts):
                self._begin_sending()
                self._send()
        # in the next turn of the loop: many small requests would otherwise nest as deep as there
        # are requests
        if not self._is_handling:
            self._server.loop.call_soon(self._continue)

    def _accept_response(self, parts: Sequence[Part] | None, throttle_time_ms: float, on_sent: Sent | None) -> None:
        """Queue the response; it goes out with the next send."""
        self.used_at_ms = self._server.clock.monotonic_ms()
        if self.is_closed:
            # the slices hold file descriptors, which a dropped response must release
            release_files(parts or ())
            if on_sent is not None and parts is not None:
                on_sent.sent(0.0, self.used_at_ms)
            return
        if throttle_time_ms > 0:
            self._mute(throttle_time_ms)
        if parts is not None:
            self._outgoing.extend(parts)
            if on_sent is not None:
                self._unsent.append(on_sent)

    def reserve_slot(self, api_key: int, frame_bytes: int, on_close: Callable[[], None] | None = None) -> Place:
        """Reserve the position of the response to the request in flight (`ResponseSlots.take`);
        further requests of its API may be handled in the meantime.
        """
        self._is_busy = False
        self.on_close = None
        if not self._is_handling:
            self._server.loop.call_soon(self._continue)
        return self._places.take(api_key, frame_bytes, on_close)

    def _on_slot_answered(self, place: Place) -> None:
        if self.is_closed:
            self._accept_response(place.parts, place.throttle_time_ms, place.on_sent)
        # one pass for all responses that are finished in this turn of the loop
        elif not self._is_answering:
            self._is_answering = True
            self._server.loop.call_soon(self._answer_in_order)

    def _answer_in_order(self) -> None:
        self._is_answering = False
        for place in self._places.answered():
            self._accept_response(place.parts, place.throttle_time_ms, place.on_sent)
        self._send_held()
        self._continue()

    @property
    def _host(self) -> str:
        return self.address.rpartition(":")[0]

    def login_failed(self) -> None:
        """The client has shown a wrong password or token."""
        self._connections.login_failed(self._host, self.listener)

    @property
    def is_login_refused(self) -> bool:
        """True while the client may not log in: too many logins of its address have failed."""
        return self._connections.refuses_login(self._host, self.listener)

    def open_gate(self) -> None:
        """Pass each later request to the handler."""
        self.gate = None

    def shut_gate(self) -> None:
        """Pass each later request to the SASL session first."""
        self.gate = self.sasl

    def compress(self, level: int) -> None:
        """Send and receive compressed chunks from here on; call it right after the response that
        announces it.
        """
        # the uncompressed response must be on its way before the first compressed chunk
        self._send_held()
        if self._outgoing and not self.is_closed:
            self.close("the response before compression could not be sent")
        if not self.is_closed:
            self._channel = CompressedChannel(self._channel, level=level)

    def _mute(self, throttle_time_ms: float) -> None:
        self._is_muted = True
        # muted as in Kafka: the response is sent at once, and the next request waits for the
        # throttle time
        self._read(is_wanted=False)
        self._waking = self._server.loop.call_later(throttle_time_ms / 1000, self._wake)

    def _wake(self) -> None:
        self._is_muted, self._waking = False, None
        self.used_at_ms = self._server.clock.monotonic_ms()
        self._continue()

    def _may_hold(self, parts: Sequence[Part]) -> bool:
        """True for a small response while more requests may be waiting: `_receive_frames` sends it
        with the next ones.
        """
        # outside of the receiving loop no later request would send the held response
        if not self._is_handling:
            return False
        for part in parts:
            if not isinstance(part, bytes | bytearray | memoryview):
                return False
            self._held_answers_bytes += len(part)
        return self._held_answers_bytes < HELD_ANSWERS_BYTES_MAX

    # --- ending

    def close(self, reason: str, *, is_fault: bool = False) -> None:
        """Close now; drop what was kept for the request in flight."""
        if self.is_closed:
            return
        # set first: the callbacks below may call `close` again
        self.is_closed = True
        self._server.loop.remove_reader(self._channel.fd)
        self._server.loop.remove_writer(self._channel.fd)
        self._server.memory.forget(self)
        if self._waking is not None:
            self._waking.cancel()
        if self._large is not None:
            large, self._large = self._large, None
            self._server.memory.give_back(large)
        release_files(self._outgoing)
        self._outgoing.clear()
        self._note_sent()
        for place in self._places.give_up():
            self._accept_response(place.parts, place.throttle_time_ms, place.on_sent)
        self._held = b""
        self._channel.close()
        self._connections.connection_closed(self)
        # taken out before the calls: a callback may set or call them again
        endings, self.on_close, self.on_end = (self.on_close, self.on_end), None, None
        for on_close in endings:
            if on_close is not None:
                on_close()
        write_log = log.warning if is_fault else log.debug
        write_log("connection closed", client=self.address, listener=self.listener, reason=reason)

    def drain(self) -> None:
        """Close as soon as all requests that have come are answered: a client backs off from those
        that are lost.
        """
        self._is_draining = True
        self._quiet_until_ms = self._server.clock.monotonic_ms() + QUIET_WITHIN_MS
        # an idle client gives no event at the end of its grace period
        self._server.loop.call_later(QUIET_WITHIN_MS / 1000 + TIMER_SLACK_S, self._close_when_quiet)
        self._close_when_quiet()

    def _close_when_quiet(self) -> None:
        if self._is_muted and not (self._is_busy or self._places or self._outgoing):
            self.close("the broker stops")
        if self.is_closed or not self.is_idle:
            return
        before = self.progress_bytes
        if self._server.clock.monotonic_ms() < self._quiet_until_ms:
            if self._large is not None:
                return  # the rest of the frame is read, and answered
            if not self._wanted_bytes:
                self._on_readable()
        if self.is_closed or not self.is_idle:
            return
        if self.progress_bytes == before:
            self.close("the broker stops")
        else:
            self._server.loop.call_soon(self._continue)

    @property
    def is_idle(self) -> bool:
        """True if no request is in flight, nothing waits to be sent, and the client is not
        throttled.
        """
        return not (self._is_busy or self._places or self._outgoing or self._is_writing or self._is_muted)

    @property
    def is_between_requests(self) -> bool:
        """True if the connection is idle and no part of the next request has arrived."""
        return self.is_idle and self._large is None and not self._held
