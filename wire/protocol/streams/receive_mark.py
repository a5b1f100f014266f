"""Sets how many bytes of a large frame must arrive before its receiver is woken (SO_RCVLOWAT,
socket(7)).

A sender on the same machine or in the same rack fills a frame of megabytes in pieces of a few
packets, and a receiver that is woken for each of them spends as much on waking up, at both ends, as
on the bytes: with the mark a mirror's drain takes an eighth less CPU. The mark never asks for more
than the frame still lacks, so the receiver never waits for bytes that the sender does not have; the
kernel wakes the receiver earlier when the window closes, and at the end of the stream. Plain
connections only: bytes that TLS or compression buffers never reach a mark on the socket.
"""

import socket
from typing import Final

MARK_BYTES_MAX: Final = 1024 * 1024


class ReceiveMark:
    """The low-water mark of one socket; it changes only when it has to."""

    __slots__ = ("_mark_bytes", "_socket")

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._mark_bytes = 1

    def expect(self, missing_bytes: int) -> None:
        """Set the number of bytes that a frame still needs: the kernel wakes the receiver for them,
        or for a megabyte of them.
        """
        mark_bytes = min(max(missing_bytes, 1), MARK_BYTES_MAX)
        # a system call for each frame is saved where neighbours have one size
        if mark_bytes != self._mark_bytes:
            self._mark_bytes = mark_bytes
            try:
                self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, mark_bytes)
            except OSError:
                # A sandbox may know no marks: there receivers are woken for every packet.
                return
