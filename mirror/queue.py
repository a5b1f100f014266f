"""The bounded queue between fetchers and producers: bounded in bytes, blocking when full, never dropping.

One lane a producer, one budget for all lanes. Bytes count from `put` until `release`, which producers call when the target
has acknowledged (or a generation was dropped): so the budget bounds everything that the mirror holds beyond the answers
that fetchers are just receiving. A full queue makes fetchers wait, and a waiting fetcher does not fetch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from mirror.core.window import QueuedBatches

FOREVER_MS = -1


class EnqueueTimeout(Exception):
    """The queue stayed full for the enqueue timeout; nothing was queued."""


class ByteQueue:
    """Lanes of queued batches under one budget of bytes. One event loop only."""

    def __init__(self, *, capacity_bytes: int, lanes: int, timeout_ms: int = FOREVER_MS) -> None:
        self._capacity_bytes = capacity_bytes
        self._timeout_ms = timeout_ms
        self._lanes: list[deque[QueuedBatches]] = [deque() for _ in range(lanes)]
        self._wakers: list[Callable[[], None]] = [lambda: None] * lanes
        self._turn = asyncio.Lock()
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

    def has_room_for(self, size_bytes: int) -> bool:
        """True when a put of that size would not wait. What is larger than the whole budget has room when all is empty."""
        return not self._turn.locked() and self._fits(size_bytes)

    async def put(self, lane: int, entry: QueuedBatches) -> None:
        """Queue, waiting for room in order of arrival. EnqueueTimeout after the timeout, at once when that is 0."""
        if not self.has_room_for(entry.size_bytes):
            await self._wait_for_room(entry.size_bytes)
        self.used_bytes += entry.size_bytes
        self._lanes[lane].append(entry)
        self._wakers[lane]()

    def take(self, lane: int) -> QueuedBatches | None:
        """The lane's next entry; its bytes stay accounted until `release`."""
        return self._lanes[lane].popleft() if self._lanes[lane] else None

    def release(self, size_bytes: int) -> None:
        """Bytes are done with."""
        self.used_bytes -= size_bytes
        self._freed.set()

    async def drained(self) -> None:
        """Wait until nothing is held any more."""
        while self.used_bytes:
            self._freed.clear()
            await self._freed.wait()

    async def _wait_for_room(self, size_bytes: int) -> None:
        if self._timeout_ms == 0:
            self.timeouts += 1
            raise EnqueueTimeout
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        try:
            async with asyncio.timeout(None if self._timeout_ms < 0 else self._timeout_ms / 1000), self._turn:
                while not self._fits(size_bytes):
                    self._freed.clear()
                    await self._freed.wait()
        except TimeoutError as error:
            self.timeouts += 1
            raise EnqueueTimeout from error
        finally:
            self.wait_on_put_ms += (loop.time() - started_s) * 1000

    def _fits(self, size_bytes: int) -> bool:
        return self.used_bytes == 0 or self.used_bytes + size_bytes <= self._capacity_bytes
