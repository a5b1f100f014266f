"""kazoo's handler for clients with many watches: one system call reads all answers and events that
have arrived, and watches are delivered to the event loop together.

A promotion of ten thousand partitions sends each agent of the site as many events. kazoo makes
three selectors and reads twice for each, and passes each through a queue to another thread. Every
one of these system calls gives up the interpreter's lock, for which a busy event loop lets the
thread wait up to a millisecond.
"""

from __future__ import annotations

import asyncio
import select
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import WatchedEvent
from msgspec import Struct

READ_BYTES: Final = 1 << 16
PASSED_MAX: Final = 64
"""Buffered answers after which the other sockets are looked at again: among them is the one by
which kazoo learns that a request waits to be sent.
"""

Watch = Callable[[WatchedEvent], None]


class BufferedSocket(socket.socket):
    """A connected socket that reads more than is asked for; `pending` bytes of it are here."""

    def __init__(self, connected: socket.socket) -> None:
        timeout = connected.gettimeout()
        super().__init__(connected.family, connected.type, connected.proto, fileno=connected.detach())
        self.settimeout(timeout)
        self._read = b""
        self._position = 0

    def pending(self) -> int:
        """The number of bytes that `recv` returns without a system call."""
        return len(self._read) - self._position

    def recv(self, size: int, flags: int = 0) -> bytes:
        """At most `size` bytes; none at the end of the stream."""
        if not self.pending():
            self._read, self._position = super().recv(max(size, READ_BYTES), flags), 0
        start, self._position = self._position, min(self._position + size, len(self._read))
        return self._read[start : self._position]


class WatchInbox:
    """Events on their way to the watches of one event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._events: deque[tuple[Watch, WatchedEvent]] = deque()
        self._is_scheduled = False

    def put(self, watch: Watch, event: WatchedEvent) -> None:
        """Call `watch` on the loop; for any thread."""
        self._events.append((watch, event))
        if not self._is_scheduled:
            self._schedule()

    def _schedule(self) -> None:
        if not self._loop.is_closed():
            self._is_scheduled = True
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        # before the first event is taken: one that is put later schedules another call
        self._is_scheduled = False
        try:
            while self._events:
                watch, event = self._events.popleft()
                watch(event)
        finally:
            # a watch that fails must not keep the events of the others
            if self._events:
                self._schedule()


class Delivery(Struct, frozen=True):
    """A watch that kazoo calls. Equal watches have equal deliveries, so kazoo keeps a watch once
    although it is set repeatedly.
    """

    inbox: WatchInbox
    watch: Watch

    def __call__(self, event: WatchedEvent) -> None:
        self.inbox.put(self.watch, event)


class PollingHandler(SequentialThreadingHandler):  # type: ignore[misc]  # kazoo has no types
    """A handler that reads all that has arrived at once."""

    def __init__(self) -> None:
        super().__init__()
        self._passed = 0

    def create_connection(self, *args: Any, **kwargs: Any) -> socket.socket:
        """A connected socket; OSError."""
        return BufferedSocket(super().create_connection(*args, **kwargs))

    def select(
        self, rlist: Sequence[Any], wlist: Sequence[Any], xlist: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Like select.select, for any descriptor. A socket with bytes in its buffer is ready: the
        kernel does not know of them.
        """
        buffered = [one for one in rlist if _pending(one)]
        if buffered and (len(rlist) == 1 or self._passed < PASSED_MAX):
            self._passed += 1
            return buffered, [], []
        self._passed = 0
        found = _polled(rlist, wlist, xlist, 0 if buffered else timeout)
        return [*buffered, *(one for one in found[0] if one not in buffered)], *found[1:]

    def dispatch_callback(self, callback: Any) -> None:
        """Call a watch at once: it only passes the event on. Other callbacks may block, so they run
        in kazoo's thread for them.
        """
        if isinstance(callback.func, Delivery):
            callback.func(*callback.args)
        else:
            super().dispatch_callback(callback)


def _pending(one: Any) -> int:
    is_open = isinstance(one, socket.socket) and one.fileno() >= 0
    return one.pending() if is_open and hasattr(one, "pending") else 0


def _polled(
    rlist: Sequence[Any], wlist: Sequence[Any], xlist: Sequence[Any], timeout: float | None
) -> tuple[list[Any], list[Any], list[Any]]:
    poll = select.poll()
    wanted: dict[int, int] = {}
    for ones, mask in ((rlist, select.POLLIN), (wlist, select.POLLOUT), (xlist, select.POLLPRI)):
        for one in ones:
            number = one if isinstance(one, int) else one.fileno()
            if number < 0:
                raise ValueError("a socket is closed")  # as select.select
            wanted[number] = wanted.get(number, 0) | mask
    for number, mask in wanted.items():
        poll.register(number, mask)
    ready = dict(poll.poll(None if timeout is None else max(0.0, timeout * 1000)))
    ended = select.POLLERR | select.POLLHUP | select.POLLNVAL
    return (
        [one for one in rlist if _events(one, ready) & (select.POLLIN | ended)],
        [one for one in wlist if _events(one, ready) & (select.POLLOUT | ended)],
        [one for one in xlist if _events(one, ready) & select.POLLPRI],
    )


def _events(one: Any, ready: dict[int, int]) -> int:
    return ready.get(one if isinstance(one, int) else one.fileno(), 0)
