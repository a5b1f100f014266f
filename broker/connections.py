"""Connections of Kafka clients on plain non-blocking sockets: frames in, responses out in request order.

asyncio's transports copy too much for this work (measured: sendfile on a plain socket moves 3.8 GB/s at 0.12 CPU-seconds a GB,
transport writes 2.6 GB/s at 0.35), so readiness callbacks drive `recv_into`, `sendmsg` and `sendfile` directly.

Order and bounds. A connection has one request in flight; the next frame is handled when the answer is fully handed to the kernel, so
answers keep request order, a slow reader stops its own requests, and output is at most one response. Small frames are handled in a
buffer that all connections of a broker share (a callback never yields while using it); a larger frame is received into a buffer of
its own, taken from `RequestMemory`, whose bound holds across connections. A frame is valid only until `handle` returns.

TLS would wrap `Channel`, SASL would live in `Connection.authentication`; nothing else here would change.
"""

from __future__ import annotations

import asyncio
import enum
import errno
import mmap
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from runtime.clock import Clock
from runtime.logs import get_logger
from wire.frames import MalformedRequest

log = get_logger(__name__)

SHARED_BUFFER_BYTES = 128 * 1024
FIRST_LOOK_BYTES = 4096
"""Read first from a connection whose last frame was large, so that little of the next one has to be moved."""
POOLED_BUFFER_BYTES_MAX = 4 * 1024 * 1024
POOLED_BYTES_MAX = 24 * 1024 * 1024
ACCEPTS_PER_CALLBACK_MAX = 64
BUFFERS_PER_SEND_MAX = 512
ACCEPT_PAUSE_S = 0.1
MEMORY_CHECK_INTERVAL_MS = 5_000
PROGRESS_BYTES_MIN = 64 * 1024
"""A half-received frame must grow this much per check while other connections wait for memory."""
FRAME_BYTES_MIN = 8
SIZE = struct.Struct(">i")


class FilePart(Protocol):
    """A piece of an open file to send; `release` once it has been sent or will not be."""

    @property
    def fd(self) -> int:
        """Open descriptor."""
        ...

    @property
    def position(self) -> int:
        """First byte in the file."""
        ...

    @property
    def length(self) -> int:
        """Bytes to send."""
        ...

    def release(self) -> None:
        """The file is not needed any more."""
        ...


Part = bytes | bytearray | memoryview | FilePart
Frame = memoryview


class Authentication(enum.Enum):
    """Where a connection stands; only plain listeners exist, which ask for nothing."""

    NOT_REQUIRED = "not required"


class Channel:
    """The bytes of one plain connection."""

    __slots__ = ("_socket", "fd")

    def __init__(self, plain: socket.socket) -> None:
        self._socket = plain
        self.fd = plain.fileno()

    def receive_into(self, view: memoryview) -> int:
        """Bytes received; 0 at the end of the stream. BlockingIOError when there is nothing yet."""
        return self._socket.recv_into(view)

    def send_buffers(self, buffers: Sequence[bytes | bytearray | memoryview], *, has_more: bool) -> int:
        """Bytes taken; `has_more` lets the kernel wait for what follows before it fills a packet."""
        flags = socket.MSG_NOSIGNAL | (socket.MSG_MORE if has_more else 0)
        return self._socket.sendmsg(buffers, (), flags)

    def send_file(self, fd: int, position: int, length: int) -> int:
        """Bytes of the file taken."""
        return os.sendfile(self.fd, fd, position, length)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class RequestMemory:
    """Buffers for large frames under one bound; connections that find no room wait for it, first come first served."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used_bytes = 0
        self._pool: dict[int, list[bytearray]] = {}
        self._pooled_bytes = 0
        self._waiting: deque[Connection] = deque()

    @property
    def waiting_count(self) -> int:
        """Connections that wait for room."""
        return len(self._waiting)

    def take(self, size: int) -> memoryview | None:
        """A buffer of exactly `size` bytes, None when the bound is reached (one frame is always admitted)."""
        if self.used_bytes and self.used_bytes + size > self.bytes_max:
            return None
        self.used_bytes += size
        if size > POOLED_BUFFER_BYTES_MAX:
            # Anonymous memory costs nothing until bytes arrive: a claimed size is not yet memory.
            return memoryview(mmap.mmap(-1, size))[:size]
        capacity = 1 << (size - 1).bit_length()
        free = self._pool.get(capacity)
        if free:
            self._pooled_bytes -= capacity
            return memoryview(free.pop())[:size]
        return memoryview(bytearray(capacity))[:size]

    def wait(self, connection: Connection) -> None:
        """Call the connection's `memory_freed` when there may be room."""
        self._waiting.append(connection)

    def give_back(self, view: memoryview) -> None:
        """A buffer is not used any more; nobody may hold a view of it."""
        size, owner = view.nbytes, view.obj
        view.release()
        self.used_bytes -= size
        if isinstance(owner, bytearray) and self._pooled_bytes + len(owner) <= POOLED_BYTES_MAX:
            self._pool.setdefault(len(owner), []).append(owner)
            self._pooled_bytes += len(owner)
        for _ in range(len(self._waiting)):
            self._waiting.popleft().memory_freed()

    def forget(self, connection: Connection) -> None:
        """The connection closed while waiting."""
        if connection in self._waiting:
            self._waiting.remove(connection)


class FrameHandler(Protocol):
    """Who understands frames (`dispatch.py`)."""

    def handle(self, connection: Connection, frame: Frame) -> None:
        """Handle one request; `connection.answer` is called now or later. MalformedRequest closes the connection."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """The named bounds of a listener's connections; see `config.py` for Kafka's keys."""

    request_bytes_max: int
    connections_max: int
    connections_per_address_max: int
    idle_ms_max: int
    send_buffer_bytes: int
    receive_buffer_bytes: int


class Connection:
    """One client: cuts frames, hands them over one at a time, sends answers."""

    __slots__ = (
        "_channel",
        "_held",
        "_is_busy",
        "_is_draining",
        "_is_handling",
        "_is_reading",
        "_is_writing",
        "_large",
        "_large_filled",
        "_outgoing",
        "_server",
        "_wanted_bytes",
        "_was_large",
        "address",
        "authentication",
        "client_software",
        "is_closed",
        "listener",
        "on_close",
        "progress_bytes",
        "used_at_ms",
    )

    def __init__(self, server: ConnectionServer, channel: Channel, *, listener: str, address: str) -> None:
        self._server = server
        self._channel = channel
        self._held = b""
        self._large: memoryview | None = None
        self._large_filled = 0
        self._wanted_bytes = 0
        self._was_large = False
        self._outgoing: deque[Part] = deque()
        self._is_busy = False
        self._is_handling = False
        self._is_draining = False
        self._is_reading = False
        self._is_writing = False
        self.listener = listener
        self.address = address
        self.authentication = Authentication.NOT_REQUIRED
        self.client_software = ""
        self.is_closed = False
        self.on_close: Callable[[], None] | None = None
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
        else:
            self._server.loop.remove_reader(self._channel.fd)

    def _on_readable(self) -> None:
        try:
            if self._large is not None:
                self._receive_large(self._large)
            else:
                self._receive_small()
        except BlockingIOError:
            return
        except MalformedRequest as error:
            self.close(f"malformed request: {error}", is_fault=True)
        except OSError as error:
            self.close(f"connection failed: {error.strerror}")

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
        self._take_frames(shared[: held + received])

    def _take_frames(self, data: memoryview) -> None:
        """Handle whole frames of `data`, a view of the shared buffer, and keep what is left."""
        position, length = 0, len(data)
        while length - position >= SIZE.size and not self._is_busy and not self._outgoing and not self.is_closed:
            size: int = SIZE.unpack_from(data, position)[0]
            if not FRAME_BYTES_MIN <= size <= self._server.limits.request_bytes_max:
                raise MalformedRequest(f"frame size {size}, accepted: {FRAME_BYTES_MIN} to {self._server.limits.request_bytes_max}")
            if length - position - SIZE.size < size:
                if size + SIZE.size > SHARED_BUFFER_BYTES // 2:
                    self._begin_large(size, data[position + SIZE.size :])
                    return
                break
            begin = position + SIZE.size
            position = begin + size
            self._was_large = False
            self._handle(data[begin:position])
        if self.is_closed:
            return
        if position < length:
            self._held = bytes(data[position:])
            if self._is_busy or self._outgoing:
                self._read(is_wanted=False)

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
        self._read(is_wanted=True)

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
        if self._large_filled == len(buffer):
            self._large = None
            try:
                self._handle(buffer)
            finally:
                self._server.memory.give_back(buffer)

    def _handle(self, frame: memoryview) -> None:
        self._is_busy = True
        self._is_handling = True
        try:
            self._server.handler.handle(self, frame.toreadonly())
        finally:
            self._is_handling = False

    def _continue(self) -> None:
        """Take up what was held back while a request or its answer was under way."""
        if self._is_busy or self._outgoing or self.is_closed:
            return
        if self._is_draining:
            self.close("the broker stops")
            return
        try:
            if self._held:
                held, self._held = self._held, b""
                shared = self._server.shared_view
                shared[: len(held)] = held
                self._take_frames(shared[: len(held)])
        except MalformedRequest as error:
            self.close(f"malformed request: {error}", is_fault=True)
            return
        if not self.is_closed and not self._wanted_bytes and not (self._held and (self._is_busy or self._outgoing)):
            self._read(is_wanted=True)

    # --- writing

    def answer(self, parts: Sequence[Part] | None) -> None:
        """End the request in flight: send the parts, a whole response with its size, or nothing at all (acks=0)."""
        self._is_busy = False
        self.on_close = None
        self.used_at_ms = self._server.clock.monotonic_ms()
        if self.is_closed:
            _release(parts or ())
            return
        if parts is not None:
            self._outgoing.extend(parts)
            self._send()
        if not self._is_handling:
            self._server.loop.call_soon(self._continue)

    def _send(self) -> None:
        try:
            self._send_some()
        except BlockingIOError:
            self._write(is_wanted=True)
            return
        except OSError as error:
            self.close(f"connection failed: {error.strerror}")
            return
        self._write(is_wanted=False)

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
            if _is_file(head):
                self._send_file_part(head)  # type: ignore[arg-type]
                continue
            buffers: list[bytes | bytearray | memoryview] = []
            for part in outgoing:
                if _is_file(part) or len(buffers) == BUFFERS_PER_SEND_MAX:
                    break
                buffers.append(part)  # type: ignore[arg-type]
            sent = self._channel.send_buffers(buffers, has_more=len(buffers) < len(outgoing))
            self._drop_sent(buffers, sent)

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
                    raise OSError(errno.EIO, "the log file ended before the records that it must hold")
                position += sent
                left -= sent
                self.progress_bytes += sent
        except BlockingIOError:
            if left != part.length:
                self._outgoing[0] = _FileRest(part, position=position, length=left)
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
        if self._large is not None:
            large, self._large = self._large, None
            self._server.memory.give_back(large)
        _release(self._outgoing)
        self._outgoing.clear()
        self._held = b""
        self._channel.close()
        self._server.connection_closed(self)
        on_close, self.on_close = self.on_close, None
        if on_close is not None:
            on_close()
        write_log = log.warning if is_fault else log.debug
        write_log("connection closed", client=self.address, listener=self.listener, reason=reason)

    def drain(self) -> None:
        """Close as soon as the request in flight has been answered; at once when there is none."""
        self._is_draining = True
        if not self._is_busy and not self._outgoing:
            self.close("the broker stops")

    @property
    def is_idle(self) -> bool:
        """True when no request is in flight and nothing waits to be sent."""
        return not self._is_busy and not self._outgoing

    @property
    def holds_memory(self) -> bool:
        """True while a large frame is half received."""
        return self._large is not None


@dataclass(slots=True)
class _FileRest:
    """The unsent rest of a file part."""

    whole: FilePart
    position: int
    length: int

    def __init__(self, whole: FilePart, *, position: int, length: int) -> None:
        self.whole = whole.whole if isinstance(whole, _FileRest) else whole
        self.position = position
        self.length = length

    @property
    def fd(self) -> int:
        return self.whole.fd

    def release(self) -> None:
        self.whole.release()


_BYTES_TYPES = (bytes, bytearray, memoryview)


def _is_file(part: Part) -> bool:
    return not isinstance(part, _BYTES_TYPES)


def _release(parts: Sequence[Part] | deque[Part]) -> None:
    for part in parts:
        if _is_file(part):
            part.release()  # type: ignore[union-attr]


class ConnectionServer:
    """The listeners of one broker and all their connections."""

    def __init__(self, handler: FrameHandler, limits: ConnectionLimits, memory: RequestMemory, clock: Clock) -> None:
        self.handler = handler
        self.limits = limits
        self.memory = memory
        self.clock = clock
        self.loop = asyncio.get_running_loop()
        self.shared_view = memoryview(bytearray(SHARED_BUFFER_BYTES))
        self.connections: set[Connection] = set()
        self.refused_count = 0
        self._counts: dict[str, int] = {}
        self._listening: list[socket.socket] = []
        self._sweep: asyncio.TimerHandle | None = None
        self._checked_at_ms = 0.0

    def listen(self, name: str, host: str, port: int) -> int:
        """Bind a listener and return its port; connections are taken from `start_accepting` on. OSError when it is taken."""
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self.limits.receive_buffer_bytes > 0:
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self.limits.receive_buffer_bytes)
            listening.setblocking(False)
            listening.bind((host, port))
            listening.listen(1024)
        except OSError:
            listening.close()
            raise
        self._listening.append(listening)
        self._names = {**getattr(self, "_names", {}), listening.fileno(): name}
        return int(listening.getsockname()[1])

    def start_accepting(self) -> None:
        """Take connections on all listeners."""
        for listening in self._listening:
            self.loop.add_reader(listening.fileno(), self._accept, listening)
        self._schedule_sweep()

    def _accept(self, listening: socket.socket) -> None:
        for _ in range(ACCEPTS_PER_CALLBACK_MAX):
            try:
                plain, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                log.warning("connections cannot be accepted for a moment", reason=error.strerror)
                self.loop.remove_reader(listening.fileno())
                self.loop.call_later(ACCEPT_PAUSE_S, self._accept_again, listening)
                return
            self._admit(plain, host=str(address[0]), port=int(address[1]), listener=self._names[listening.fileno()])

    def _accept_again(self, listening: socket.socket) -> None:
        if listening.fileno() >= 0 and listening in self._listening:
            self.loop.add_reader(listening.fileno(), self._accept, listening)

    def _admit(self, plain: socket.socket, *, host: str, port: int, listener: str) -> None:
        limits = self.limits
        count = self._counts.get(host, 0)
        if len(self.connections) >= limits.connections_max or count >= limits.connections_per_address_max:
            self.refused_count += 1
            log.warning("connection refused: too many", client=host, from_address=count, all=len(self.connections))
            plain.close()
            return
        plain.setblocking(False)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if limits.send_buffer_bytes > 0:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, limits.send_buffer_bytes)
        self._counts[host] = count + 1
        self.connections.add(Connection(self, Channel(plain), listener=listener, address=f"{host}:{port}"))

    def connection_closed(self, connection: Connection) -> None:
        """Bookkeeping of a connection that closed itself."""
        self.connections.discard(connection)
        host = connection.address.rpartition(":")[0]
        left = self._counts.get(host, 0) - 1
        if left > 0:
            self._counts[host] = left
        else:
            self._counts.pop(host, None)

    # --- reaping

    def _schedule_sweep(self) -> None:
        interval_s = min(max(self.limits.idle_ms_max / 4000, 0.05), MEMORY_CHECK_INTERVAL_MS / 1000)
        self._sweep = self.loop.call_later(interval_s, self._sweep_connections)

    def _sweep_connections(self) -> None:
        now_ms = self.clock.monotonic_ms()
        is_memory_check = now_ms - self._checked_at_ms >= MEMORY_CHECK_INTERVAL_MS
        if is_memory_check:
            self._checked_at_ms = now_ms
        for connection in tuple(self.connections):
            if is_memory_check:
                self._check_progress(connection)
            if now_ms - connection.used_at_ms > self.limits.idle_ms_max and (
                connection.is_idle or not connection.progress_bytes
            ):
                connection.close("idle for too long")
        self._schedule_sweep()

    def _check_progress(self, connection: Connection) -> None:
        progress, connection.progress_bytes = connection.progress_bytes, 0
        if connection.holds_memory and self.memory.waiting_count and progress < PROGRESS_BYTES_MIN:
            connection.close("a half-sent request kept memory that others wait for", is_fault=True)

    # --- ending

    def stop_accepting(self) -> None:
        """Close the listeners; connections go on."""
        for listening in self._listening:
            self.loop.remove_reader(listening.fileno())
            listening.close()
        self._listening.clear()

    async def stop(self, *, grace_s: float) -> None:
        """Stop accepting, answer what is in flight for up to `grace_s`, close everything."""
        self.stop_accepting()
        if self._sweep is not None:
            self._sweep.cancel()
        deadline = self.loop.time() + grace_s
        for connection in tuple(self.connections):
            connection.drain()
        while self.connections and self.loop.time() < deadline:
            await asyncio.sleep(0.01)
        for connection in tuple(self.connections):
            connection.close("the broker stops")
