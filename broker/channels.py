"""The bytes of one connection, and what can be sent over it: buffers and pieces of files.

`Channel` is a plain socket; one that encrypts would take its place and nothing else would change. Used by connections.py.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeGuard

_LAST: Final = int(socket.MSG_NOSIGNAL)
_MORE: Final = int(socket.MSG_NOSIGNAL) | int(socket.MSG_MORE)


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
        return self._socket.sendmsg(buffers, (), _MORE if has_more else _LAST)

    def send_file(self, fd: int, position: int, length: int) -> int:
        """Bytes of the file taken."""
        return os.sendfile(self.fd, fd, position, length)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


@dataclass(slots=True)
class FileRest:
    """The unsent rest of a file part."""

    whole: FilePart
    position: int
    length: int

    def __init__(self, whole: FilePart, *, position: int, length: int) -> None:
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
    """Let go of the files among the parts, which will not be sent."""
    for part in parts:
        if is_file(part):
            part.release()
