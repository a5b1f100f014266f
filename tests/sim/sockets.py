"""The sockets door in the simulated network: listeners and accepted connections that look like
non-blocking sockets to the broker, and signal the virtual loop when they can be read.

A `Tap` sees the bytes of one connection in both directions.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, cast

from tests.sim.network import End, Network
from tests.sim.stored_logs import slice_behind
from tests.sim.virtual_loop import Process


class Tap(Protocol):
    """Looks on at one connection of a broker."""

    def received(self, data: bytes) -> None:
        """The broker gets these bytes."""
        ...

    def sent(self, data: bytes) -> None:
        """The broker sends these bytes."""
        ...


MakeTap = Callable[[], Tap]


class _Selectable:
    """An object with a descriptor that the loop watches."""

    def __init__(self, process: Process) -> None:
        self._loop = process.loop
        self._descriptor = next(self._loop.descriptors)
        self._loop.selectable[self._descriptor] = self

    @property
    def is_readable(self) -> bool:
        raise NotImplementedError

    def fileno(self) -> int:
        return self._descriptor

    def setsockopt(self, *_: Any) -> None:
        """Nothing to set."""

    def getsockopt(self, *_: Any) -> bytes:
        raise OSError("no facts about a simulated connection")

    def setblocking(self, _: bool) -> None:
        """These sockets never block."""

    def close(self) -> None:
        self._loop.selectable.pop(self._descriptor, None)
        self._descriptor = -1


class SimSocket(_Selectable):
    """An accepted connection."""

    def __init__(self, end: End, tap: Tap | None) -> None:
        super().__init__(end.process)
        self._end = end
        self._tap = tap
        self._received: deque[bytes] = deque()
        end.on_message = self._receive
        end.on_lost = self._signal

    @property
    def is_readable(self) -> bool:
        return bool(self._received) or not self._end.is_open

    def _receive(self, data: bytes) -> None:
        if self._tap is not None:
            self._tap.received(data)
        self._received.append(data)
        self._signal()

    def _signal(self) -> None:
        self._loop.signal(self._descriptor)

    def recv_into(self, view: memoryview) -> int:
        if not self._received:
            if self._end.is_open:
                raise BlockingIOError
            return 0
        data = self._received.popleft()
        count = min(len(data), len(view))
        view[:count] = data[:count]
        if count < len(data):
            self._received.appendleft(data[count:])
        return count

    def sendmsg(self, buffers: Sequence[bytes | bytearray | memoryview], *_: Any) -> int:
        data = b"".join(buffers)
        if self._tap is not None:
            self._tap.sent(data)
        self._end.send(data)
        return len(data)

    def send(self, data: bytes | bytearray | memoryview, *_: Any) -> int:
        return self.sendmsg([data])

    def close(self) -> None:
        super().close()
        self._end.close()


class SimListener(_Selectable):
    """A listening socket: connections wait here until the broker accepts them."""

    def __init__(self, network: Network, process: Process, address: str, make_tap: MakeTap | None) -> None:
        super().__init__(process)
        self._network = network
        self._address = address
        self._make_tap = make_tap
        self._waiting: deque[SimSocket] = deque()
        network.listen(address, process, self._connected)

    @property
    def is_readable(self) -> bool:
        return bool(self._waiting)

    def _connected(self, end: End, _: str) -> None:
        if self._descriptor < 0:
            end.close()
            return
        self._waiting.append(SimSocket(end, None if self._make_tap is None else self._make_tap()))
        self._loop.signal(self._descriptor)

    def accept(self) -> tuple[SimSocket, tuple[str, int]]:
        if not self._waiting:
            raise BlockingIOError
        accepted = self._waiting.popleft()
        return accepted, (accepted._end.other.process.host, accepted.fileno())

    def getsockname(self) -> tuple[str, int]:
        host, _, port = self._address.rpartition(":")
        return host, int(port)

    def close(self) -> None:
        super().close()
        self._network.listeners.pop(self._address, None)
        for waiting in self._waiting:
            waiting.close()


class SimSockets:
    """The sockets of one process."""

    def __init__(self, network: Network, process: Process, make_tap: MakeTap | None = None) -> None:
        self._network = network
        self._process = process
        self._make_tap = make_tap

    def listen(self, host: str, port: int, *, receive_buffer_bytes: int) -> socket.socket:
        del receive_buffer_bytes
        listener = SimListener(self._network, self._process, f"{host}:{port}", self._make_tap)
        return cast("socket.socket", listener)

    def send_file(self, descriptor: int, file: int, position: int, length: int, /) -> int:
        """Send a slice of a log in memory."""
        receiver = self._process.loop.selectable[descriptor]
        assert isinstance(receiver, SimSocket)
        return receiver.sendmsg([slice_behind(file).read_bytes()[position : position + length]])
