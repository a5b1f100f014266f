"""The receiving half of a client's connection: it splits arriving bytes into frames.

Small frames are handled in a buffer that all connections share (a callback never yields while using
it); a larger frame is received into a separate buffer; the total size of these buffers is bounded
across connections.

Caller: broker/network/connections.py.
"""

from __future__ import annotations

import struct
from typing import Final

from broker.authentication.sasl_session import SaslSession
from broker.network.channels import Channel
from broker.network.connection_owner import ConnectionOwner, Frame
from broker.network.response_sender import ResponseSender
from broker.network.response_slots import Place, ResponseSlots
from wire.protocol.streams.frames import MalformedRequest

SHARED_BUFFER_BYTES: Final = 128 * 1024
FIRST_LOOK_BYTES: Final = 4096
"""Read first from a connection whose last frame was large, so that little of the next one has to be
moved.
"""
FRAME_BYTES_MIN: Final = 8
SIZE: Final = struct.Struct(">i")


class FrameReceiver(ResponseSender):
    """Splits the stream into frames and passes them on one at a time. A subclass handles them."""

    __slots__ = (
        "_held",
        "_is_busy",
        "_is_muted",
        "_is_reading",
        "_large",
        "_large_filled",
        "_places",
        "_wanted_bytes",
        "_was_large",
        "gate",
    )

    def __init__(self, server: ConnectionOwner, channel: Channel) -> None:
        super().__init__(server, channel)
        self._held = b""
        self._large: memoryview | None = None
        self._large_filled = 0
        self._wanted_bytes = 0
        self._was_large = False
        self._places = ResponseSlots(self._on_slot_answered)
        self._is_busy = False
        self._is_reading = False
        self._is_muted = False
        self.gate: SaslSession | None = None

    def _handle(self, frame: Frame) -> None:
        """Handle one frame."""
        raise NotImplementedError

    def _on_slot_answered(self, place: Place) -> None:
        """The response in the slot is there."""
        raise NotImplementedError

    def _read(self, *, is_wanted: bool) -> None:
        if is_wanted is self._is_reading:
            return
        self._is_reading = is_wanted
        if is_wanted:
            self._server.loop.add_reader(self._channel.fd, self._on_readable)
            if self._channel.has_received:
                # no readiness event comes for bytes that the channel holds, so the receiver is
                # called here
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
        # Two names: in compiled code a name takes exceptions of the first class alone.
        except MalformedRequest as malformed:
            self.close(f"malformed request: {malformed}", is_fault=True)
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
        # little of a large frame is read first: bytes that land here are copied again
        end = held + FIRST_LOOK_BYTES if self._was_large else SHARED_BUFFER_BYTES
        room = shared[held : min(end, SHARED_BUFFER_BYTES)]
        received = self._channel.receive_into(room)
        if not received:
            self.close("closed by the client")
            return
        self.progress_bytes += received
        self._held = b""
        self._receive_frames(shared[: held + received])
        if self._large is not None and self._is_reading:
            self._receive_begun(self._large)

    def _receive_frames(self, data: memoryview) -> None:
        """Handle whole frames of `data`, a view of the shared buffer, and keep what is left."""
        position = 0
        try:
            position = self._handle_frames(data)
        finally:
            self._send_held()
        if position < len(data) and not self.is_closed:
            self._held = bytes(data[position:])
            # not read while no request can be handled, so that the kernel's full buffer slows the
            # client down
            if self._is_busy or self._is_writing or self._is_muted or self._places.must_wait(self._held):
                self._read(is_wanted=False)

    def _handle_frames(self, data: memoryview) -> int:
        """Handle frames until one is incomplete or must wait; return how much of `data` is used."""
        position, length = 0, len(data)
        # one frame at a time: the next may depend on this one's outcome
        while length - position >= SIZE.size and not (
            self._is_busy or self._is_writing or self._is_muted or self.is_closed
        ):
            size: int = SIZE.unpack_from(data, position)[0]
            gate = self.gate
            least, most = (FRAME_BYTES_MIN, self._server.request_bytes_max) if gate is None else gate.frame_bytes_bounds
            if not least <= size <= most:
                raise MalformedRequest(f"frame size {size}, accepted: {least} to {most}")
            # a request of another API must not overtake answers that still wait
            if self._places and not self._places.may_follow(data, position):
                break
            if length - position - SIZE.size < size:
                # half of the shared buffer: a frame above it would leave no room to gather the next
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

    def _receive_begun(self, buffer: memoryview) -> None:
        """Receive what has arrived of a large frame. A busy producer's whole frame has usually
        arrived: the loop then need not wait for it, and the socket need not be registered.
        """
        try:
            self._receive_large(buffer)
        except BlockingIOError:
            self._channel.expect(len(buffer) - self._large_filled)
            raise

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

    @property
    def holds_memory(self) -> bool:
        """True while a large frame is half received."""
        return self._large is not None
