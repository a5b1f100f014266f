"""The sockets door of a broker: listening sockets, whose connections are sockets of the same kind.

`RealSockets` uses the operating system's sockets; the simulation passes its own. The loop that a
door belongs to signals when one of its sockets can be read (`add_reader`).

Caller: broker/network/connection_server.py.
"""

from __future__ import annotations

import os
import socket
from typing import Final, Protocol

BACKLOG: Final = 1024


class Sockets(Protocol):
    """The network calls that a broker makes below its connections."""

    def listen(self, host: str, port: int, *, receive_buffer_bytes: int) -> socket.socket:
        """A non-blocking socket that listens; port 0 lets the system choose. 0 or less leaves the
        receive buffer to the system. OSError if the address is taken.
        """
        ...

    def send_file(self, descriptor: int, file: int, position: int, length: int, /) -> int:
        """Send up to `length` bytes of the open file over the socket with this descriptor; the
        bytes taken. BlockingIOError if the socket takes none.
        """
        ...


class RealSockets:
    """The operating system's TCP sockets."""

    send_file = staticmethod(os.sendfile)

    def listen(self, host: str, port: int, *, receive_buffer_bytes: int) -> socket.socket:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            # a broker that restarts must get its port although old connections linger
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if receive_buffer_bytes > 0:
                # before listen: the kernel fixes the window scale when a connection is made
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
            listening.setblocking(False)
            listening.bind((host, port))
            listening.listen(BACKLOG)
        except OSError:
            listening.close()
            raise
        return listening
