"""Connections between processes: delay, interruptions in one or both directions, resets, refusals
and silence.

Bytes of one connection arrive in their order, those of two connections in any. During an
interruption, sent bytes wait, as TCP repeats them, until the interruption ends or the connection is
reset; a reset loses the bytes on their way. A killed process refuses and resets, a host without
power says nothing at all. Serves asyncio's `create_connection` and, through `rpc.py`, gRPC's stubs.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

from tests.sim.virtual_loop import CURRENT, Process, VirtualLoop

Receive = Callable[[Any], None]
Lost = Callable[[], None]


class End:
    """One end of a connection: sends to the other one."""

    def __init__(self, network: Network, process: Process) -> None:
        self.network = network
        self.process = process
        self.other: End = self
        self.on_message: Receive = _ignore
        self.on_lost: Lost = _nothing
        self.is_open = True
        self._under_way: deque[Any] = deque()
        self._last_arrival_s = 0.0
        self.stalled = 0

    def send(self, message: Any) -> None:
        """Have the other end receive it, some time."""
        if not self.is_open:
            return
        network = self.network
        self._under_way.append(message)
        delay_s = network.delay_s(self.process.host, self.other.process.host)
        self._last_arrival_s = max(self._last_arrival_s, network.loop.now_s + delay_s)
        network.loop.call_at(self._last_arrival_s, self.arrive, context=network.context)

    def arrive(self) -> None:
        """The oldest message under way reaches the other end, or waits at a cut."""
        if not self._under_way:
            return
        if self.stalled or self.network.is_cut(self.process.host, self.other.process.host):
            self.stalled += 1
            self.network.stalled[id(self)] = self
            return
        message = self._under_way.popleft()
        if self.other.is_open:
            self.other.process.call(self.other._receive, message)

    def _receive(self, message: Any) -> None:
        if self.is_open:
            self.on_message(message)

    def repeat(self) -> None:
        """Deliver the stalled messages again: the cut may have healed."""
        count, self.stalled = self.stalled, 0
        for _ in range(count):
            self.arrive()

    def close(self, *, is_abrupt: bool = False) -> None:
        """Close the connection; the other end gets the close after the bytes that were sent before,
        which an abrupt end loses.
        """
        if not self.is_open:
            return
        self.is_open = False
        if is_abrupt:
            self._under_way.clear()
            self.stalled = 0
        self.network.tell_lost(self)

    def lose(self) -> None:
        """The other end has gone."""
        if self.is_open:
            self.is_open = False
            self.on_lost()


class Listener:
    """A process that listens at an address."""

    def __init__(self, process: Process, accept: Callable[[End, str], None]) -> None:
        self.process = process
        self.accept = accept


class Network:
    """All hosts and the network partitions between them."""

    def __init__(self, loop: VirtualLoop, chance: Random) -> None:
        self.loop = loop
        self.chance = chance
        self.context = Process(loop, "network", "network").context
        self.listeners: dict[str, Listener] = {}
        self.cuts: set[tuple[str, str]] = set()
        self.slow: dict[tuple[str, str], float] = {}
        self.powerless: set[str] = set()
        self.stalled: dict[int, End] = {}
        self._ends: list[End] = []
        self._unknown: list[End] = []

    def is_cut(self, source: str, target: str) -> bool:
        """True while nothing gets from one host to the other."""
        if source == target:
            return False
        return (source, target) in self.cuts or source in self.powerless or target in self.powerless

    def delay_s(self, source: str, target: str) -> float:
        """The delay of a message, in seconds."""
        if source == target:
            return 0.00005
        slowness_s = self.slow.get((source, target), 0.0)
        return self.chance.uniform(0.0002, 0.003) + (self.chance.uniform(0, slowness_s) if slowness_s else 0.0)

    def changed(self) -> None:
        """Network partitions have healed, or hosts have their power back: the messages that waited
        for that go on.
        """
        stalled, self.stalled = list(self.stalled.values()), {}
        for end in stalled:
            end.repeat()
        unheard, self._unknown = self._unknown, []
        for end in unheard:
            self.tell_lost(end)

    def listen(self, address: str, process: Process, accept: Callable[[End, str], None]) -> None:
        """Accept connections to `address` until the process ends."""
        self.listeners[address] = Listener(process, accept)

    def process_ended(self, process: Process) -> None:
        """A process was killed: its connections are reset. After a loss of power the peers notice
        it only after the host is back.
        """
        for end in self._ends:
            if end.process is process and end.is_open:
                end.close()
        self._ends = [end for end in self._ends if end.is_open or end.other.is_open]

    def reset_between(self, one: str, another: str) -> None:
        """Every connection between two hosts breaks."""
        for end in self._ends:
            if end.is_open and end.process.host == one and end.other.process.host == another:
                end.close(is_abrupt=True)
                end.process.call(end.on_lost)

    def tell_lost(self, end: End) -> None:
        """The other end hears that `end` is closed, when it can."""
        other = end.other
        if not other.is_open:
            return
        if self.is_cut(end.process.host, other.process.host):
            self._unknown.append(end)
            return
        delay_s = self.delay_s(end.process.host, other.process.host)
        arrival_s = max(end._last_arrival_s, self.loop.now_s + delay_s)
        self.loop.call_at(arrival_s, other.process.call, other.lose, context=self.context)

    async def connect(self, address: str, kind: str) -> End:
        """The near end of a new connection from the process that runs. ConnectionRefusedError;
        nothing at all from the silent.
        """
        process = CURRENT.get()
        assert process is not None
        target = address.partition(":")[0]
        while True:
            await self._pass(self.delay_s(process.host, target))
            if not (self.is_cut(process.host, target) or self.is_cut(target, process.host)):
                break
            await self._pass(0.05)
        listener = self.listeners.get(address)
        if listener is None or not listener.process.is_alive:
            raise ConnectionRefusedError(address)
        near, far = End(self, process), End(self, listener.process)
        near.other, far.other = far, near
        self._ends += (near, far)
        if len(self._ends) > ENDS_KEPT_MAX:
            self._ends = [end for end in self._ends if end.is_open or end.other.is_open]
        listener.process.call(listener.accept, far, kind)
        return near

    async def _pass(self, delay_s: float) -> None:
        future = self.loop.create_future()
        timer = self.loop.call_later(delay_s, _set_done, future)
        try:
            await future
        finally:
            timer.cancel()

    async def create_connection(
        self, factory: Callable[[], Any], host: str, port: int, **_: Any
    ) -> tuple[SimTransport, Any]:
        """Connect as asyncio's loop does."""
        end = await self.connect(f"{host}:{port}", "bytes")
        protocol = factory()
        transport = SimTransport(end, protocol)
        protocol.connection_made(transport)
        return transport, protocol


class SimTransport(asyncio.Transport):
    """asyncio's side of a connection."""

    def __init__(self, end: End, protocol: Any) -> None:
        super().__init__()
        self._end = end
        self._protocol = protocol
        self._is_buffered = isinstance(protocol, asyncio.BufferedProtocol)
        end.on_message = self._receive
        end.on_lost = self._lost

    def _receive(self, data: bytes) -> None:
        if not self._is_buffered:
            self._protocol.data_received(data)
            return
        view = memoryview(data)
        while view and self._end.is_open:
            room = self._protocol.get_buffer(len(view))
            count = min(len(room), len(view))
            room[:count] = view[:count]
            self._protocol.buffer_updated(count)
            view = view[count:]

    def _lost(self) -> None:
        self._protocol.connection_lost(None)

    def write(self, data: bytes) -> None:  # type: ignore[override]
        self._end.send(bytes(data))

    def writelines(self, parts: Any) -> None:
        self._end.send(b"".join(parts))

    def close(self) -> None:
        if self._end.is_open:
            self._end.close()
            self._end.process.call(self._protocol.connection_lost, None)

    def abort(self) -> None:
        self.close()

    def is_closing(self) -> bool:
        return not self._end.is_open

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


ENDS_KEPT_MAX = 2_000


def _set_done(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _ignore(_: Any) -> None:
    pass


def _nothing() -> None:
    pass
