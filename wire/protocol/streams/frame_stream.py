"""Splits size-prefixed frames out of a byte stream with at most one copy of a few kilobytes per
frame.

Small frames are received together into a scratch buffer and copied out. A frame that does not fit
is received straight into a buffer of its own, so the records of a large Fetch response are written
once by the kernel and never moved: the frame's owner may keep slices of it. A buffer whose frame is
no longer referenced is reused.

An asyncio BufferedProtocol: the same code runs on plain and on TLS transports. Called by
wire/client/connection.py only.
"""

import asyncio
import struct
from collections.abc import Callable
from typing import Final, cast

from wire.protocol.streams.receive_mark import ReceiveMark

SCRATCH_BYTES: Final = 16 * 1024
POOLED_BUFFERS_MAX: Final = 8
POOLED_BUFFER_BYTES_MAX: Final = 16 * 1024 * 1024

_SIZE: Final = struct.Struct(">i")


class FrameBuffers:
    """Buffers for large frames. A frame is a view, and its buffer cannot be resized as long as any
    slice of it lives.

    For one connection, or for all connections of one event loop: an owner that queues frames of
    many connections in one bounded queue needs only as many buffers as fit there.
    """

    def __init__(self, *, kept_max: int = POOLED_BUFFERS_MAX) -> None:
        self._pool: list[bytearray] = []
        self._kept_max = kept_max

    def take(self, size: int) -> bytearray:
        """A buffer of at least `size` bytes of which no view lives; the caller's view keeps it from
        the next one.
        """
        for buffer in self._pool:
            if size <= len(buffer) <= 4 * size and _has_no_views(buffer):
                return buffer
        capacity = max(64 * 1024, 1 << (size - 1).bit_length())
        if capacity > POOLED_BUFFER_BYTES_MAX:
            return bytearray(size)
        created = bytearray(capacity)
        if len(self._pool) == self._kept_max:
            del self._pool[0]
        self._pool.append(created)
        return created


def _has_no_views(buffer: bytearray) -> bool:
    """True if no view of the buffer exists. Every version of Python promises that a bytearray with
    a view refuses to be resized. Reference counts prove it only as long as the interpreter counts
    all references, and since 3.14 it leaves some out.
    """
    try:
        last = buffer.pop()
    except BufferError:
        return False
    buffer.append(last)  # reuse the same memory: one byte less does not justify a move
    return True


class FrameStream(asyncio.BufferedProtocol):
    """Frames in order to `on_frame`; the end of the stream, with its reason, to `on_lost`, once."""

    def __init__(
        self,
        *,
        frame_bytes_max: int,
        on_frame: Callable[[memoryview], None],
        on_lost: Callable[[str], None],
        buffers: FrameBuffers | None = None,
    ) -> None:
        self._frame_bytes_max = frame_bytes_max
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._scratch_filled = 0
        self._large: memoryview | None = None
        self._large_filled = 0
        self._buffers = buffers or FrameBuffers()
        self._transport: asyncio.Transport | None = None
        self._mark: ReceiveMark | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    @property
    def transport(self) -> asyncio.Transport:
        """The transport below; there is one as soon as `create_connection` has returned."""
        assert self._transport is not None, "not connected"
        return self._transport

    async def writable(self) -> None:
        """Wait until the transport's send buffer has room."""
        await self._writable.wait()

    async def emptied(self) -> None:
        """Wait until the system has everything that was written. From then on `writable` does so,
        too.
        """
        self.transport.set_write_buffer_limits(high=0)
        await self._writable.wait()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: the connection is open."""
        self._transport = cast("asyncio.Transport", transport)
        connected = transport.get_extra_info("socket")
        if connected is not None and transport.get_extra_info("sslcontext") is None:  # a simulated line has no socket
            self._mark = ReceiveMark(connected)

    def connection_lost(self, exc: Exception | None) -> None:
        """asyncio: the connection is gone."""
        self._large = None  # frees its buffer at once, before the stream itself is collected
        self._writable.set()
        self._on_lost(str(exc) if exc else "closed by the other side")

    def pause_writing(self) -> None:
        """asyncio: the send buffer is full."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """asyncio: the send buffer has room again."""
        self._writable.set()

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """asyncio: where to receive to."""
        if self._large is not None:
            return self._large[self._large_filled :]
        return self._scratch[self._scratch_filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """asyncio: bytes have arrived there."""
        if self._large is None:
            self._scratch_filled += nbytes
            self._cut_scratch()
            return
        self._large_filled += nbytes
        self._expect(len(self._large) - self._large_filled)
        if self._large_filled == len(self._large):
            frame, self._large = self._large, None
            self._on_frame(frame)

    def receive_by_feed(self) -> None:
        """Take bytes by `feed` alone from here on, not from the transport."""
        self._mark = None

    def feed(self, data: bytes) -> None:
        """Take bytes that came another way than from the transport: decompressed ones."""
        rest = memoryview(data)
        while rest:
            room = self.get_buffer(-1)
            taken = min(len(room), len(rest))
            room[:taken] = rest[:taken]
            self.buffer_updated(taken)
            rest = rest[taken:]

    def _cut_scratch(self) -> None:
        """Deliver the frames in the scratch buffer; the remaining bytes are the start of the next
        frame.
        """
        start = 0
        while self._scratch_filled - start >= _SIZE.size:
            (size,) = _SIZE.unpack_from(self._scratch, start)
            if not 0 <= size <= self._frame_bytes_max:
                self._refuse(size)
                return
            end = start + _SIZE.size + size
            if end > self._scratch_filled:
                break
            self._on_frame(memoryview(bytes(self._scratch[start + _SIZE.size : end])))
            start = end
        self._keep_rest(start)

    def _keep_rest(self, start: int) -> None:
        rest = self._scratch[start : self._scratch_filled]
        self._scratch_filled = 0
        if len(rest) >= _SIZE.size:
            (size,) = _SIZE.unpack_from(rest)
            if size + _SIZE.size > SCRATCH_BYTES:
                self._large = memoryview(self._buffers.take(size))[:size]
                self._large_filled = len(rest) - _SIZE.size
                self._large[: self._large_filled] = rest[_SIZE.size :]
                self._expect(size - self._large_filled)
                return
        # Overlapping when start is small: copy out first.
        self._scratch[: len(rest)] = bytes(rest)
        self._scratch_filled = len(rest)

    def _expect(self, missing_bytes: int) -> None:
        if self._mark is not None:
            self._mark.expect(missing_bytes)

    def _refuse(self, size: int) -> None:
        self._scratch_filled = 0
        self._on_lost(f"a frame of {size} bytes; at most {self._frame_bytes_max} are accepted")
        self.transport.abort()
