"""A deadline that counts silence: it is extended while bytes move on the connection, in either
direction.

A fetch of four megabytes over a line that carries a hundred kilobytes a second takes longer than
any sensible deadline, and giving it up would only begin it again, for ever. So the kernel is asked
now and then (TCP_INFO) how much it has received, and how much up to the request's own end the other
side has acknowledged; a request fails only when neither moved for its whole time. The first check
comes after a quarter of the time: a broker that reads the request and then stays silent misses the
deadline in any case, even if it reads later requests.

Where the system does not report it (the structure is Linux's), deadlines are not extended.
"""

import asyncio
import socket
import struct
from typing import Final

LOOKS_A_DEADLINE: Final = 4

_MOVED: Final = struct.Struct("=QQ")
_MOVED_AT: Final = 120
"""The position of tcpi_bytes_acked and tcpi_bytes_received in struct tcp_info, tcp(7)."""


class SilenceLimit:
    """Puts off `limit` while bytes move; `end` when the request is over."""

    def __init__(self, limit: asyncio.Timeout, transport: asyncio.BaseTransport, *, timeout_s: float) -> None:
        self._limit = limit
        self._transport = transport
        self._timeout_s = timeout_s
        self._loop = asyncio.get_running_loop()
        self._moved_bytes: int | None = None
        # Where the request ends among the bytes that the connection has sent; None until it has
        # been handed to the transport.
        self.sent_until_bytes: int | None = None
        self._next_look = self._loop.call_later(timeout_s / LOOKS_A_DEADLINE, self._look)

    def end(self) -> None:
        """Stop checking."""
        self._next_look.cancel()

    def _look(self) -> None:
        moved_bytes = _moved_bytes(self._transport, self.sent_until_bytes)
        if moved_bytes is None:
            return
        if self._moved_bytes is not None and moved_bytes > self._moved_bytes and not self._limit.expired():
            self._limit.reschedule(self._loop.time() + self._timeout_s)
        self._moved_bytes = moved_bytes
        self._next_look = self._loop.call_later(self._timeout_s / LOOKS_A_DEADLINE, self._look)


def _moved_bytes(transport: asyncio.BaseTransport, sent_until_bytes: int | None) -> int | None:
    """Bytes received, and bytes sent up to there that were acknowledged, since the connection was
    opened.
    """
    connected = transport.get_extra_info("socket")
    if connected is None:
        return None
    try:
        info = connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _MOVED_AT + _MOVED.size)
    except (OSError, AttributeError):
        return None
    if len(info) < _MOVED_AT + _MOVED.size:
        return None
    acknowledged: int
    received: int
    acknowledged, received = _MOVED.unpack_from(info, _MOVED_AT)
    return received + (acknowledged if sent_until_bytes is None else min(acknowledged, sent_until_bytes))
