"""Connections of Kafka clients on non-blocking sockets: frames in, responses out in request order.

asyncio's transports copy too much for this work (measured: sendfile on a plain socket moves 3.8
GB/s at 0.12 CPU-seconds a GB, transport writes 2.6 GB/s at 0.35), so readiness callbacks drive
`recv_into`, `sendmsg` and `sendfile` directly.

Order and bounds. A connection has one request in flight, or several of one API whose handler says
so (`reserve_slot`); the next frame is handled when the answer is handed to the kernel (answers to
pipelined small requests that are there already go out together), so answers keep request order and
a slow reader stops its own requests. Small frames are handled in a buffer that all connections
share (a callback never yields while using it); a larger frame is received into a buffer of its own,
whose bound holds across connections. A frame is valid only until `handle` returns.

Encryption is another `Channel`. Where clients log in, `gate` sees each frame first, and passes to
the handler what this client may ask now (`broker/authentication/sasl_session.py`).
"""

from __future__ import annotations

import asyncio
import errno
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from broker.authentication.sasl_session import SaslSession
from broker.network.channels import Channel, CompressedChannel, FilePart, FileRest, Part, is_file, release_files
from broker.network.request_memory import RequestMemory
from broker.network.response_slots import Place, ResponseSlots, Sent
from runtime.clock import Clock
from runtime.logs import get_logger
from wire.protocol.frames import MalformedRequest
from wire.rules.principals import ANONYMOUS

log = get_logger(__name__)

SHARED_BUFFER_BYTES: Final = 128 * 1024
FIRST_LOOK_BYTES: Final = 4096
"""Read first from a connection whose last frame was large, so that little of the next one has to be
moved.
"""
BUFFERS_PER_SEND_MAX: Final = 512
HELD_ANSWERS_BYTES_MAX: Final = 16 * 1024
"""Answers to pipelined requests that are sent together."""
QUIET_WITHIN_MS: Final = 500
"""Time (ms) for which a closing connection still answers a client that never pauses."""
TIMER_SLACK_S: Final = 0.01
FRAME_BYTES_MIN: Final = 8
SIZE: Final = struct.Struct(">i")

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


class Connection:
    """One client: cuts frames, hands them over one at a time, sends answers."""

    __slots__ = (
        "_channel",
        "_held",
        "_held_answers_bytes",
        "_is_answering",
        "_is_busy",
        "_is_draining",
        "_is_handling",
        "_is_reading",
        "_is_resting",
        "_is_writing",
        "_large",
        "_large_filled",
        "_outgoing",
        "_places",
        "_quiet_until_ms",
        "_send_began_ms",
        "_server",
        "_unsent",
        "_waking",
        "_wanted_bytes",
        "_was_large",
        "address",
        "client_software",
        "gate",
        "is_closed",
        "listener",
        "on_close",
        "on_end",
        "opened_at_ms",
        "principal",
        "progress_bytes",
        "sasl",
        "used_at_ms",
    )

    def __init__(self, server: Server, channel: Channel, *, listener: str, address: str) -> None:
        self._server = server
        self._channel = channel
        self._held = b""
        self._large: memoryview | None = None
        self._large_filled = 0
        self._wanted_bytes = 0
        self._was_large = False
        self._outgoing: deque[Part] = deque()
        self._held_answers_bytes = 0
        self._unsent: list[Sent] = []
        self._places = ResponseSlots(self._on_slot_answered)
        self._is_answering = False
        self._send_began_ms = -1.0
        self._is_busy = False
        self._is_handling = False
        self._is_draining = False
        self._quiet_until_ms = 0.0
        self._is_reading = False
        self._is_resting = False
        self._is_writing = False
        self._waking: asyncio.TimerHandle | None = None
        self.listener = listener
        self.address = address
        self.client_software = ""
        self.gate: SaslSession | None = None
        self.sasl: SaslSession | None = None
        """The SASL session; None at a listener whose clients do not log in."""
        self.principal = ANONYMOUS
        self.is_closed = False
        self.on_close: Callable[[], None] | None = None
        """Called if the connection closes while the current request is in flight."""
        self.on_end: Callable[[], None] | None = None
        """Called when the connection closes, at any time."""
        self.opened_at_ms = server.clock.monotonic_ms()
        self.used_at_ms = server.clock.monotonic_ms()
        self.progress_bytes = 0
        self._read(is_wanted=True)

    # --- reading

    def _read(self, *, is_wanted: bool) -> None:
        if is_wanted is self._is_reading:
            return
        self._is_reading = is_wanted
        if is_wanted:
            self._server.loop.add_reader(self._channel.fd, self._on_readable)
            if self._channel.has_received:
                self._server.loop.call_soon(self._on_received_before)
        else:
            self._server.loop.remove_reader(self._channel.fd)

    def _on_readable(self) -> None:
        try:
            if self._large is not None:
                self._receive_large(self._large)
            else:
                self._receive_small()
        except BlockingIOError:
            if self._channel.receive_waits_for_send:
                self._read(is_wanted=False)  # until `_on_writable` goes on
                self._write(is_wanted=True)
            return
        except MalformedRequest as error:
            self.close(f"malformed request: {error}", is_fault=True)
        except OSError as error:
            self.close(f"connection failed: {error.strerror}")
        if self._channel.has_received and self._is_reading:
            self._server.loop.call_soon(self._on_received_before)

    def _on_received_before(self) -> None:
        """The channel holds bytes that no readiness event will announce."""
        if self._is_reading and not self.is_closed and self._channel.has_received:
            self._on_readable()

    def _receive_small(self) -> None:
        shared = self._server.shared_view
        held = len(self._held)
        if held:
            shared[:held] = self._held
        end = held + FIRST_LOOK_BYTES if self._was_large else SHARED_BUFFER_BYTES
        received = self._channel.receive_into(shared[held : min(end, SHARED_BUFFER_BYTES)])
        if not received:
            self.close("closed by the client")
            return
        self.progress_bytes += received
        self._held = b""
        self._receive_frames(shared[: held + received])

    def _receive_frames(self, data: memoryview) -> None:
        """Handle whole frames of `data`, a view of the shared buffer, and keep what is left."""
        position = 0
        try:
            position = self._handle_frames(data)
        finally:
            self._send_held()
        if position < len(data) and not self.is_closed:
            self._held = bytes(data[position:])
            if self._is_busy or self._is_writing or self._is_resting or self._places.must_wait(self._held):
                self._read(is_wanted=False)

    def _handle_frames(self, data: memoryview) -> int:
        """Handle frames until one is incomplete or must wait; how far `data` is used up."""
        position, length = 0, len(data)
        while length - position >= SIZE.size and not (
            self._is_busy or self._is_writing or self._is_resting or self.is_closed
        ):
            size: int = SIZE.unpack_from(data, position)[0]
            gate = self.gate
            least, most = (FRAME_BYTES_MIN, self._server.request_bytes_max) if gate is None else gate.frame_bytes_bounds
            if not least <= size <= most:
                raise MalformedRequest(f"frame size {size}, accepted: {least} to {most}")
            if self._places and not self._places.may_follow(data, position):
                break
            if length - position - SIZE.size < size:
                if size + SIZE.size > SHARED_BUFFER_BYTES // 2:
                    self._begin_large(size, data[position + SIZE.size :])
                    return length
                break
            begin = position + SIZE.size
            position = begin + size
            self._was_large = False
            self._handle(data[begin:position])
        return position

    def _begin_large(self, size: int, first: memoryview) -> None:
        buffer = self._server.memory.take(size)
        if buffer is None:
            self._held = SIZE.pack(size) + bytes(first)
            self._wanted_bytes = size
            self._read(is_wanted=False)
            self._server.memory.wait(self)
            return
        self._wanted_bytes = 0
        self._was_large = True
        buffer[: len(first)] = first
        self._large = buffer
        self._large_filled = len(first)
        self._channel.expect(size - len(first))
        self._read(is_wanted=True)

    def receive_now(self) -> None:
        """Receive the arrived part of a large frame, also when it is below the socket's low-water
        mark.
        """
        if self._large is not None and self._is_reading:
            self._on_readable()

    def memory_freed(self) -> None:
        """`RequestMemory` has room again, perhaps."""
        self._server.loop.call_soon(self._continue)

    def _receive_large(self, buffer: memoryview) -> None:
        received = self._channel.receive_into(buffer[self._large_filled :])
        if not received:
            self.close("closed by the client within a request")
            return
        self.progress_bytes += received
        self._large_filled += received
        self._channel.expect(len(buffer) - self._large_filled)
        if self._large_filled == len(buffer):
            self._large = None
            try:
                self._handle(buffer)
            finally:
                self._server.memory.give_back(buffer)
                self._send_held()

    def _handle(self, frame: memoryview) -> None:
        self._is_busy = True
        self._is_handling = True
        try:
            if self.gate is None or self.gate.admits(frame):
                self._server.handler.handle(self, frame.toreadonly())
        finally:
            self._is_handling = False

    def _continue(self) -> None:
        """Take up what was held back while a request or its answer was under way."""
        if self._is_busy or self._outgoing or self.is_closed:
            return
        if self._is_resting:
            if self._is_draining and not self._places:
                self.close("the broker stops")
            return
        try:
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

    # --- writing

    def answer(
        self, parts: Sequence[Part] | None, *, throttle_time_ms: float = 0.0, on_sent: Sent | None = None
    ) -> None:
        """End the request in flight: send the parts, a whole response with its size, or nothing at
        all (acks=0: there is no response).

        Nothing more is read for `throttle_time_ms` (KIP-219: the client is answered first, then its
        connection rests).
        """
        self._is_busy = False
        self.on_close = None
        if self._places:
            self._places.take_behind().answer(parts, throttle_time_ms=throttle_time_ms, on_sent=on_sent)
        else:
            self._accept_response(parts, throttle_time_ms, on_sent)
            if parts is not None and not self.is_closed and not self._may_hold(parts):
                self._begin_sending()
                self._send()
        if not self._is_handling:
            self._server.loop.call_soon(self._continue)

    def _accept_response(self, parts: Sequence[Part] | None, throttle_time_ms: float, on_sent: Sent | None) -> None:
        """Queue the response; it goes out with the next send."""
        self.used_at_ms = self._server.clock.monotonic_ms()
        if self.is_closed:
            release_files(parts or ())
            if on_sent is not None and parts is not None:
                on_sent.sent(0.0, self.used_at_ms)
            return
        if throttle_time_ms > 0:
            self._rest(throttle_time_ms)
        if parts is not None:
            self._outgoing.extend(parts)
            if on_sent is not None:
                self._unsent.append(on_sent)

    def reserve_slot(self, api_key: int, frame_bytes: int, on_close: Callable[[], None] | None = None) -> Place:
        """Keep the place of the answer to the request in flight (`ResponseSlots.take`); more of its
        API may be handled meanwhile.
        """
        self._is_busy = False
        self.on_close = None
        if not self._is_handling:
            self._server.loop.call_soon(self._continue)
        return self._places.take(api_key, frame_bytes, on_close)

    def _on_slot_answered(self, place: Place) -> None:
        if self.is_closed:
            self._accept_response(place.parts, place.throttle_time_ms, place.on_sent)
        elif not self._is_answering:
            self._is_answering = True
            self._server.loop.call_soon(self._answer_in_order)

    def _answer_in_order(self) -> None:
        self._is_answering = False
        for place in self._places.answered():
            self._accept_response(place.parts, place.throttle_time_ms, place.on_sent)
        self._send_held()
        self._continue()

    def open_gate(self) -> None:
        """Each request goes to the handler from now on."""
        self.gate = None

    def shut_gate(self) -> None:
        """Each request goes to the session of SASL first."""
        self.gate = self.sasl

    def compress(self, level: int) -> None:
        """Both ways in compressed chunks from here on; call it right after the answer that says
        so.
        """
        self._send_held()
        if self._outgoing and not self.is_closed:
            self.close("the response before compression could not be sent")
        if not self.is_closed:
            self._channel = CompressedChannel(self._channel, level=level)

    def _rest(self, throttle_time_ms: float) -> None:
        self._is_resting = True
        self._read(is_wanted=False)
        self._waking = self._server.loop.call_later(throttle_time_ms / 1000, self._wake)

    def _wake(self) -> None:
        self._is_resting, self._waking = False, None
        self.used_at_ms = self._server.clock.monotonic_ms()
        self._continue()

    def _may_hold(self, parts: Sequence[Part]) -> bool:
        """True for a small answer while more requests may be at hand: `_receive_frames` sends it
        with the next ones.
        """
        if not self._is_handling:
            return False
        for part in parts:
            if not isinstance(part, bytes | bytearray | memoryview):
                return False
            self._held_answers_bytes += len(part)
        return self._held_answers_bytes < HELD_ANSWERS_BYTES_MAX

    def _send_held(self) -> None:
        if self._outgoing and not self._is_writing and not self.is_closed:
            self._begin_sending()
            self._send()

    def _begin_sending(self) -> None:
        """Note when sending begins. A lone response never queued, so it costs no look at the
        clock.
        """
        if self._send_began_ms < 0:
            self._send_began_ms = self._server.clock.monotonic_ms() if len(self._unsent) > 1 else 0.0

    def _send(self) -> None:
        self._held_answers_bytes = 0
        try:
            self._send_some()
        except BlockingIOError:
            self._write(is_wanted=True)
            return
        except OSError as error:
            self.close(f"connection failed: {error.strerror}")
            return
        self._write(is_wanted=False)
        self._note_sent()

    def _note_sent(self) -> None:
        began_ms, self._send_began_ms = self._send_began_ms, -1.0
        if self._unsent:
            ended_ms = self._server.clock.monotonic_ms()
            for answer in self._unsent:
                answer.sent(began_ms, ended_ms)
            self._unsent.clear()

    def _on_writable(self) -> None:
        self._send()
        if not self._outgoing:
            self._continue()

    def _write(self, *, is_wanted: bool) -> None:
        if is_wanted is self._is_writing or self.is_closed:
            return
        self._is_writing = is_wanted
        if is_wanted:
            self._server.loop.add_writer(self._channel.fd, self._on_writable)
        else:
            self._server.loop.remove_writer(self._channel.fd)

    def _send_some(self) -> None:
        """Send until nothing is left; BlockingIOError when the kernel takes no more."""
        outgoing = self._outgoing
        while outgoing:
            head = outgoing[0]
            if is_file(head):
                self._send_file_part(head)
                continue
            buffers: list[bytes | bytearray | memoryview] = []
            for part in outgoing:
                if not isinstance(part, bytes | bytearray | memoryview) or len(buffers) == BUFFERS_PER_SEND_MAX:
                    break
                buffers.append(part)
            sent = self._channel.send_buffers(buffers, has_more=len(buffers) < len(outgoing))
            self._drop_sent(buffers, sent)
        self._channel.flush()

    def _drop_sent(self, buffers: Sequence[bytes | bytearray | memoryview], sent: int) -> None:
        self.progress_bytes += sent
        for buffer in buffers:
            if sent < len(buffer):
                if sent:
                    self._outgoing[0] = memoryview(buffer)[sent:]
                return
            sent -= len(buffer)
            self._outgoing.popleft()

    def _send_file_part(self, part: FilePart) -> None:
        position, left = part.position, part.length
        try:
            while left:
                sent = self._channel.send_file(part.fd, position, left)
                if not sent:
                    raise OSError(errno.EIO, "the log file ends before the end of its records")
                position += sent
                left -= sent
                self.progress_bytes += sent
        except BlockingIOError:
            if left != part.length:
                self._outgoing[0] = FileRest(part, position=position, length=left)
            raise
        self._outgoing.popleft()
        part.release()

    # --- ending

    def close(self, reason: str, *, is_fault: bool = False) -> None:
        """Close now; what was held for the request in flight is given up."""
        if self.is_closed:
            return
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
        self._server.connection_closed(self)
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
        self._server.loop.call_later(QUIET_WITHIN_MS / 1000 + TIMER_SLACK_S, self._close_when_quiet)
        self._close_when_quiet()

    def _close_when_quiet(self) -> None:
        if self._is_resting and not (self._is_busy or self._places or self._outgoing):
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
        """True when no request is in flight, nothing waits to be sent, and the client is not held
        back.
        """
        return not (self._is_busy or self._places or self._outgoing or self._is_writing or self._is_resting)

    @property
    def is_between_requests(self) -> bool:
        """True when it is idle and nothing of the next request has come."""
        return self.is_idle and self._large is None and not self._held

    @property
    def holds_memory(self) -> bool:
        """True while a large frame is half received."""
        return self._large is not None
