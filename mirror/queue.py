"""The bounded queue between fetchers and producers: bounded in bytes, blocking when full, never dropping.

One lane a producer, one budget for all lanes. Bytes count from `put` until `release`, which producers call when the target
has acknowledged (or a generation was dropped): so the budget bounds everything that the mirror holds beyond the answers
that fetchers are just receiving. A full queue makes fetchers wait, and a waiting fetcher does not fetch.

Ranks (`core/priorities.py`) share the budget: backfill may fill half of it only, and who waits is let in by rank, then by arrival.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from mirror.core.priorities import Line, share_bytes
from mirror.core.window import QueuedBatches

FOREVER_MS = -1
HIGHEST_RANK = 0


class EnqueueTimeout(Exception):
    """The queue stayed full for the enqueue timeout; nothing was queued."""


class _Waiter:
    """Somebody who waits for room."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.has_room: asyncio.Future[None] = asyncio.get_running_loop().create_future()


class ByteQueue:
    """Lanes of queued batches under one budget of bytes. One event loop only."""

    def __init__(self, *, capacity_bytes: int, lanes: int, timeout_ms: int = FOREVER_MS) -> None:
        self._capacity_bytes = capacity_bytes
        self._timeout_ms = timeout_ms
        self._lanes: list[deque[QueuedBatches]] = [deque() for _ in range(lanes)]
        self._wakers: list[Callable[[], None]] = [lambda: None] * lanes
        self._line: Line[_Waiter] = Line()
        self._freed = asyncio.Event()
        self.used_bytes = 0
        self.wait_on_put_ms = 0.0
        self.timeouts = 0

    @property
    def capacity_bytes(self) -> int:
        """The budget."""
        return self._capacity_bytes

    def wake_with(self, lane: int, waker: Callable[[], None]) -> None:
        """Call `waker` whenever something is put into the lane."""
        self._wakers[lane] = waker

    def has_room_for(self, size_bytes: int, rank: int = HIGHEST_RANK) -> bool:
        """True when a put of that size would not wait. What is larger than the whole budget has room when all is empty."""
        return not self._line.has_before(rank) and self._fits(size_bytes, rank)

    async def put(self, lane: int, entry: QueuedBatches, rank: int = HIGHEST_RANK) -> None:
        """Queue, waiting for room by rank and arrival. EnqueueTimeout after the timeout, at once when that is 0."""
        if self.has_room_for(entry.size_bytes, rank):
            self.used_bytes += entry.size_bytes
        else:
            await self._wait_for_room(entry.size_bytes, rank)
        self._lanes[lane].append(entry)
        self._wakers[lane]()

    def take(self, lane: int) -> QueuedBatches | None:
        """The lane's next entry; its bytes stay accounted until `release`."""
        return self._lanes[lane].popleft() if self._lanes[lane] else None

    def release(self, size_bytes: int) -> None:
        """Bytes are done with."""
        self.used_bytes -= size_bytes
        self._admit()
        self._freed.set()

    async def drained(self) -> None:
        """Wait until nothing is held any more."""
        while self.used_bytes:
            self._freed.clear()
            await self._freed.wait()

    async def _wait_for_room(self, size_bytes: int, rank: int) -> None:
        """Returns with the bytes accounted."""
        if self._timeout_ms == 0:
            self.timeouts += 1
            raise EnqueueTimeout
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        waiter = _Waiter(size_bytes)
        self._line.join(rank, waiter)
        try:
            async with asyncio.timeout(None if self._timeout_ms < 0 else self._timeout_ms / 1000):
                await waiter.has_room
        except BaseException as error:
            self._line.leave(waiter)
            if waiter.has_room.done() and not waiter.has_room.cancelled():
                self.release(size_bytes)
            if isinstance(error, TimeoutError):
                self.timeouts += 1
                raise EnqueueTimeout from error
            raise
        finally:
            self.wait_on_put_ms += (loop.time() - started_s) * 1000

    def _admit(self) -> None:
        while True:
            fitting = [waiter for rank, waiter in self._line.candidates() if self._fits(waiter.size_bytes, rank)]
            if not fitting:
                return
            waiter = fitting[0]
            self._line.serve(waiter)
            if not waiter.has_room.done():
                self.used_bytes += waiter.size_bytes
                waiter.has_room.set_result(None)

    def _fits(self, size_bytes: int, rank: int) -> bool:
        return self.used_bytes == 0 or self.used_bytes + size_bytes <= share_bytes(rank, self._capacity_bytes)
