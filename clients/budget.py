"""A shared budget, bounded in bytes and optionally in entries: a caller without room waits, or is
refused at once or after a timeout.

It has the three policies of Kafka's classic `queue.enqueue.timeout.ms`: -1 waits forever, 0 refuses
at once, a positive number of milliseconds waits that long. Nothing is dropped here; a refusal is
counted and raised. Waiters are admitted by rank, then by arrival. An entry larger than the whole
budget has room when the budget is unused. The mirror's queue, the producer's queue and the
consumer's prefetch use it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from clients.core.line import Line

FOREVER_MS = -1
HIGHEST_RANK = 0

Share = Callable[[int, int], int]
"""Computes from a rank and the capacity how many bytes may be in use before that rank must wait."""


class QueueFull(Exception):
    """The budget had no room within the enqueue timeout; no room was reserved."""


class _Waiter:
    """A waiter for room."""

    def __init__(self, size_bytes: int, count: int) -> None:
        self.size_bytes = size_bytes
        self.count = count
        self.has_room: asyncio.Future[None] = asyncio.get_running_loop().create_future()


def whole(_rank: int, capacity_bytes: int) -> int:
    """Every rank may fill everything."""
    return capacity_bytes


class Budget:
    """A bound of bytes and records; one event loop only. `take` reserves room, and the last user of
    the bytes returns it with `release`.
    """

    def __init__(
        self,
        *,
        capacity_bytes: int,
        capacity_count: int | None = None,
        timeout_ms: int = FOREVER_MS,
        share: Share = whole,
    ) -> None:
        self.capacity_bytes = capacity_bytes
        self._capacity_count = capacity_count
        self._timeout_ms = timeout_ms
        self._share = share
        self._line: Line[_Waiter] = Line()
        self._freed = asyncio.Event()
        self.used_bytes = 0
        self.used_count = 0
        self.wait_ms = 0.0
        self.refusals = 0

    def has_room_for(self, size_bytes: int, rank: int = HIGHEST_RANK) -> bool:
        """True when `take` of that size would not wait."""
        return not self._line.has_before(rank) and self._fits(size_bytes, rank)

    async def take(self, size_bytes: int, rank: int = HIGHEST_RANK, *, count: int = 1) -> None:
        """Reserve room for `count` entries of this size together, waiting by the policy. QueueFull
        when there was none in time.
        """
        if self.has_room_for(size_bytes, rank):
            self._account(size_bytes, count)
        else:
            await self._wait_for_room(size_bytes, rank, count)

    def release(self, size_bytes: int, count: int = 1) -> None:
        """Return the room of bytes and entries."""
        self.used_bytes -= size_bytes
        self.used_count -= count
        self._admit()
        self._freed.set()

    async def emptied(self) -> None:
        """Wait until all room has been released."""
        while self.used_bytes:
            self._freed.clear()
            await self._freed.wait()

    async def _wait_for_room(self, size_bytes: int, rank: int, count: int) -> None:
        """Returns with the bytes accounted."""
        if self._timeout_ms == 0:
            self.refusals += 1
            raise QueueFull("the queue is full")
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        waiter = _Waiter(size_bytes, count)
        self._line.join(rank, waiter)
        try:
            async with asyncio.timeout(None if self._timeout_ms < 0 else self._timeout_ms / 1000):
                await waiter.has_room
        except BaseException as error:
            self._line.leave(waiter)
            if waiter.has_room.done() and not waiter.has_room.cancelled():
                self.release(size_bytes, count)
            else:
                self._admit()  # waiters behind it may need less room
            if isinstance(error, TimeoutError):
                self.refusals += 1
                raise QueueFull(f"the queue stayed full for {self._timeout_ms} ms") from error
            raise
        finally:
            self.wait_ms += (loop.time() - started_s) * 1000

    def _admit(self) -> None:
        while True:
            fitting = [waiter for rank, waiter in self._line.candidates() if self._fits(waiter.size_bytes, rank)]
            if not fitting:
                return
            waiter = fitting[0]
            self._line.serve(waiter)
            if not waiter.has_room.done():
                self._account(waiter.size_bytes, waiter.count)
                waiter.has_room.set_result(None)

    def _account(self, size_bytes: int, count: int) -> None:
        self.used_bytes += size_bytes
        self.used_count += count

    def _fits(self, size_bytes: int, rank: int) -> bool:
        if self._capacity_count is not None and self.used_count >= self._capacity_count:
            return False
        return self.used_bytes == 0 or self.used_bytes + size_bytes <= self._share(rank, self.capacity_bytes)
