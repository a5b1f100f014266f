"""The sockets of client connections: buffers that are set before they connect, and keep-alive."""

from __future__ import annotations

import asyncio
import socket

from runtime.addresses import HostPort


def keep_alive(transport: asyncio.BaseTransport) -> None:
    """An idle connection through something that forgets it is found out, and not first by the next
    request's timeout.
    """
    connected = transport.get_extra_info("socket")
    if connected is not None:  # a simulated line has none
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


async def connected_socket(address: HostPort, *, receive_buffer_bytes: int, send_buffer_bytes: int) -> socket.socket:
    """A connected socket with buffers of these sizes; -1 leaves one to the system. OSError."""
    loop = asyncio.get_running_loop()
    failure: OSError | None = None
    for family, kind, protocol, _, place in await loop.getaddrinfo(*address, type=socket.SOCK_STREAM):
        connecting = socket.socket(family, kind, protocol)
        try:
            connecting.setblocking(False)
            for name, size in (
                (socket.SO_RCVBUF, receive_buffer_bytes),
                (socket.SO_SNDBUF, send_buffer_bytes),
            ):
                if size >= 0:
                    connecting.setsockopt(socket.SOL_SOCKET, name, size)
            await loop.sock_connect(connecting, place)
        except OSError as error:
            connecting.close()
            failure = error
        except BaseException:
            connecting.close()
            raise
        else:
            return connecting
    raise failure or OSError(f"no address of {address.host}")
