"""The bytes of one connection; it sends buffers and pieces of files.

`Channel` is a plain socket, `TlsChannel` (tls_channel.py) an encrypted one. If a mirror asks for
compression, `CompressedChannel` wraps either of them. Used by connections.py.
"""

from __future__ import annotations

import contextlib
import os
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeGuard

from wire.protocol.byte_reader import Buffer, Malformed
from wire.protocol.streams.compressed_stream import PLAIN_BYTES_MAX, RECEIVE_BYTES, ChunkPacker, ChunkUnpacker
from wire.protocol.streams.frames import MalformedRequest
from wire.protocol.streams.receive_mark import ReceiveMark

_LAST: Final = int(socket.MSG_NOSIGNAL)
# more follows at once: without the flag the head of a response would be a separate packet
_MORE: Final = int(socket.MSG_NOSIGNAL) | int(socket.MSG_MORE)

NEAR_ROUND_TRIP_US: Final = 1000
NEAR_SEND_BUFFER_BYTES: Final = 256 * 1024
"""The kernel doubles it; 512 KiB in flight fill 4 Gbit/s over the longest round trip that counts as
near.
"""
_TCP_INFO_BYTES: Final = 72
_ROUND_TRIP_US: Final = struct.Struct("=I")
_ROUND_TRIP_AT: Final = 68
"""`tcpi_rtt` in Linux's struct tcp_info (man 7 tcp)."""


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
        """The caller has finished with the file."""
        ...


SendFile = Callable[[int, int, int, int], int]
"""Sends a piece of a file over a socket: both descriptors, position, length; the bytes taken."""
Part = bytes | bytearray | memoryview | FilePart


def send_buffer_for(connected: socket.socket) -> int:
    """The send buffer that suits a connection, by the round trip of its handshake; 0 leaves it to
    the kernel.

    By default, the kernel queues megabytes for a reader on the same machine or in the same rack,
    and each piece of them costs both sides cache misses and wake-ups: three times the CPU of a
    send. A far reader needs those megabytes to fill its link.
    """
    try:
        facts = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    except (OSError, AttributeError):  # no TCP, or no Linux
        return 0
    is_near = (
        len(facts) == _TCP_INFO_BYTES and _ROUND_TRIP_US.unpack_from(facts, _ROUND_TRIP_AT)[0] < NEAR_ROUND_TRIP_US
    )
    return NEAR_SEND_BUFFER_BYTES if is_near else 0


class Channel:
    """The bytes of one plain connection."""

    __slots__ = ("_mark", "_send_file", "_socket", "fd")

    def __init__(self, plain: socket.socket, send_file: SendFile = os.sendfile) -> None:
        self._socket = plain
        self._send_file = send_file
        self._mark = ReceiveMark(plain)
        self.fd = plain.fileno()

    # properties, not attributes: compiled code reads an attribute of this class directly, and never
    # calls a property of a derived class
    @property
    def is_full_after_less(self) -> bool:
        """True if `send_file` takes less than it was given only when the socket's send buffer is
        full: another call at once would fail.
        """
        return True

    @property
    def has_received(self) -> bool:
        """True if bytes can be received although the socket is not readable."""
        return False

    @property
    def receive_waits_for_send(self) -> bool:
        """True if the last receive must wait until bytes are sent."""
        return False

    def expect(self, missing_bytes: int) -> None:
        """Set the number of bytes that a frame still needs: the socket may become readable only
        with all, or a good part, of them.
        """
        self._mark.expect(missing_bytes)

    def receive_into(self, view: memoryview) -> int:
        """Bytes received; 0 at the end of the stream. BlockingIOError when there is nothing yet. A
        channel that holds bytes of its own fills as much of the view as it can.
        """
        return self._socket.recv_into(view)

    def send_buffers(self, buffers: Sequence[bytes | bytearray | memoryview], *, has_more: bool) -> int:
        """Bytes accepted; `has_more` lets the kernel wait for the next bytes before it sends a
        packet.
        """
        flags = _MORE if has_more else _LAST
        if len(buffers) == 1:  # most responses; for one buffer, `send` takes less time
            return self._socket.send(buffers[0], flags)
        return self._socket.sendmsg(buffers, (), flags)

    def send_file(self, fd: int, position: int, length: int) -> int:
        """Bytes of the file taken."""
        return self._send_file(self.fd, fd, position, length)

    def flush(self) -> None:
        """Send what was taken and not sent yet; BlockingIOError if the socket's send buffer is
        full.
        """

    # nothing: a plain socket keeps no bytes of its own
    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class CompressedChannel(Channel):
    """A connection both of whose ends send compressed chunks. Bytes that it accepts may have to be
    sent later: call `flush`.
    """

    __slots__ = ("_below", "_packer", "_received", "_unpacker", "_unsent", "_wire")

    def __init__(self, below: Channel, *, level: int) -> None:
        super().__init__(below._socket)
        self._below = below
        self._packer = ChunkPacker(level)
        self._unpacker = ChunkUnpacker()
        self._wire = memoryview(bytearray(RECEIVE_BYTES))
        self._received: deque[memoryview] = deque()
        self._unsent: deque[Buffer] = deque()

    @property
    def is_full_after_less(self) -> bool:
        return False  # it takes one chunk at a time

    @property
    def has_received(self) -> bool:
        return bool(self._received) or self._below.has_received

    @property
    def receive_waits_for_send(self) -> bool:
        return self._below.receive_waits_for_send

    def expect(self, missing_bytes: int) -> None:
        """The number of bytes on the wire is not known yet."""

    def receive_into(self, view: memoryview) -> int:
        if not self._received and not self._receive():
            return 0
        filled = 0
        while self._received and filled < len(view):
            head = self._received.popleft()
            taken = min(len(head), len(view) - filled)
            view[filled : filled + taken] = head[:taken]
            filled += taken
            if taken < len(head):
                self._received.appendleft(head[taken:])
        return filled

    def send_buffers(self, buffers: Sequence[bytes | bytearray | memoryview], *, has_more: bool) -> int:  # noqa: ARG002
        self.flush()
        taken: list[memoryview] = []
        room = PLAIN_BYTES_MAX
        for buffer in buffers:
            piece = memoryview(buffer)[:room]
            # one chunk a call: its plain size is bounded, so the other side's buffer is too
            taken.append(piece)
            room -= len(piece)
            if not room:
                break
        self._pack(b"".join(taken))
        return PLAIN_BYTES_MAX - room

    def send_file(self, fd: int, position: int, length: int) -> int:
        self.flush()
        plain = os.pread(fd, min(length, PLAIN_BYTES_MAX), position)
        self._pack(plain)
        return len(plain)

    def flush(self) -> None:
        while self._unsent:
            sent = self._below.send_buffers(self._unsent, has_more=False)
            while sent:
                head = self._unsent.popleft()
                if sent < len(head):
                    self._unsent.appendleft(memoryview(head)[sent:])
                    break
                sent -= len(head)
        self._below.flush()

    def close(self) -> None:
        self._below.close()

    def _receive(self) -> bool:
        """True when plain bytes have arrived, False at the end of the stream. BlockingIOError when
        no chunk is whole yet.
        """
        received = self._below.receive_into(self._wire)
        if not received:
            return False
        try:
            # a chunk cannot wait for more: its bytes are compressed already
            self._received.extend(memoryview(plain) for plain in self._unpacker.unpack(self._wire[:received]))
        except Malformed as error:
            raise MalformedRequest(str(error)) from error
        if not self._received:
            raise BlockingIOError
        return True

    def _pack(self, plain: bytes) -> None:
        self._unsent.extend(self._packer.pack(plain))
        # the rest is sent by the next `flush`; the caller's bytes count as accepted
        with contextlib.suppress(BlockingIOError):
            self.flush()


@dataclass(slots=True)
class FileRest:
    """The unsent rest of a file part."""

    whole: FilePart
    position: int
    length: int

    def __init__(self, whole: FilePart, *, position: int, length: int) -> None:
        # a slice of a slice refers to the original memoryview, because only the original can be
        # released
        self.whole = whole.whole if isinstance(whole, FileRest) else whole
        self.position = position
        self.length = length

    @property
    def fd(self) -> int:
        return self.whole.fd

    def release(self) -> None:
        self.whole.release()


_BYTES_TYPES = (bytes, bytearray, memoryview)


def is_file(part: Part) -> TypeGuard[FilePart]:
    """True for a piece of a file."""
    return not isinstance(part, _BYTES_TYPES)


def release_files(parts: Iterable[Part]) -> None:
    """Release the files among the parts, which will not be sent."""
    for part in parts:
        if is_file(part):
            part.release()
