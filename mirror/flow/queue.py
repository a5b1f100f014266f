"""The bounded queue between fetchers and producers: bounded in bytes, blocking when full, never
dropping.

Each producer has one lane, and all lanes share one budget. Bytes count from `put` until `release`,
which producers call when the target has acknowledged (or a generation was dropped): so the budget
bounds all of the mirror's batches, except the answers that fetchers are receiving. A full queue
makes fetchers wait, and a waiting fetcher does not fetch.

Ranks (`core/priorities.py`) share the budget: backfill may fill only half of it, and waiting
callers are admitted by rank, then by arrival.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from clients.budget import FOREVER_MS, HIGHEST_RANK, Budget
from mirror.flow.core.priorities import share_bytes
from mirror.flow.core.window import QueuedBatches
from runtime.clock import Clock, SystemClock


class ByteQueue:
    """Lanes of queued batches under one budget of bytes. One event loop only."""

    def __init__(
        self, *, capacity_bytes: int, lanes: int, timeout_ms: int = FOREVER_MS, clock: Clock | None = None
    ) -> None:
        self._clock = clock or SystemClock()
        self._budget = Budget(capacity_bytes=capacity_bytes, timeout_ms=timeout_ms, share=share_bytes)
        self._lanes: list[deque[QueuedBatches]] = [deque() for _ in range(lanes)]
        # By lane: how long its producer had nothing to send before, and since when it has nothing
        # now. One tuple each, because another thread reads metrics, and a counter must never
        # decrease.
        self._idle: list[tuple[float, float | None]] = [(0.0, None)] * lanes
        self._wakers: list[Callable[[], None]] = [lambda: None] * lanes

    @property
    def capacity_bytes(self) -> int:
        """The budget."""
        return self._budget.capacity_bytes

    @property
    def used_bytes(self) -> int:
        """Bytes from `put` to `release`."""
        return self._budget.used_bytes

    @property
    def wait_on_put_ms(self) -> float:
        """The total time (ms) that callers of `put` have waited."""
        return self._budget.wait_ms

    @property
    def wait_on_take_ms(self) -> float:
        """The total time (ms) that producers had nothing to send, up to now for those that still
        wait.
        """
        return sum(before_ms + self._since_ms(since_ms) for before_ms, since_ms in self._idle)

    def _since_ms(self, since_ms: float | None) -> float:
        return 0.0 if since_ms is None else self._clock.monotonic_ms() - since_ms

    @property
    def unsent(self) -> list[QueuedBatches]:
        """The batches that no producer has taken yet; a copy, because a thread of their own reads
        metrics.
        """
        return [entry for lane in self._lanes for entry in tuple(lane)]

    @property
    def timeouts(self) -> int:
        """The number of times that `put` found no room in time."""
        return self._budget.refusals

    def wake_with(self, lane: int, waker: Callable[[], None]) -> None:
        """Call `waker` whenever batches are put into the lane."""
        self._wakers[lane] = waker

    def has_room_for(self, size_bytes: int, rank: int = HIGHEST_RANK) -> bool:
        """True when a put of that size would not wait. An entry larger than the whole budget has
        room when the queue is empty.
        """
        return self._budget.has_room_for(size_bytes, rank)

    def takes_together(self, size_bytes: int, rank: int = HIGHEST_RANK) -> bool:
        """True if entries of that size are at most half of what the rank may fill: they may wait
        for room together without leaving the producers idle meanwhile.
        """
        return 2 * size_bytes <= share_bytes(rank, self.capacity_bytes)

    async def put(self, placed: Sequence[tuple[int, QueuedBatches]], rank: int = HIGHEST_RANK) -> None:
        """Queue entries with their lanes, waiting for room for all of them by rank and arrival.
        Raises QueueFull after the timeout, at once if that is 0; then none of them is queued.
        """
        # The caller waits here with its batches, so the lanes never hold more than the budget.
        await self._budget.take(sum(entry.size_bytes for _, entry in placed), rank, count=len(placed))
        for lane, entry in placed:
            self._lanes[lane].append(entry)
            self._wakers[lane]()

    def take(self, lane: int) -> QueuedBatches | None:
        """The lane's next entry; its bytes stay accounted until `release`."""
        return self._lanes[lane].popleft() if self._lanes[lane] else None

    @contextmanager
    def waiting(self, lane: int) -> Iterator[None]:
        """Count the time in which the lane's producer has nothing to send."""
        before_ms, _ = self._idle[lane]
        since_ms = self._clock.monotonic_ms()
        self._idle[lane] = (before_ms, since_ms)
        try:
            yield
        finally:
            self._idle[lane] = (before_ms + self._since_ms(since_ms), None)

    def release(self, size_bytes: int) -> None:
        """Return the bytes to the budget."""
        self._budget.release(size_bytes)

    async def drained(self) -> None:
        """Wait until the queue is empty."""
        await self._budget.emptied()
