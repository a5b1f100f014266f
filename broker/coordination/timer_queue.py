"""Many named timers with one wake-up of the event loop: a heap of deadlines, restarted and
cancelled by name.

The most frequent operation is a restart (each heartbeat restarts a session timer): the new deadline
goes into a dict, and the heap's old entry is moved when it is due. Deadlines are on the clock's
monotonic time, so that a test's clock decides when they are due.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Hashable
from itertools import count
from typing import Generic, TypeVar

from runtime.clock import Clock
from runtime.supervision import note_death

KeyT = TypeVar("KeyT", bound=Hashable)


class TimerQueue(Generic[KeyT]):
    """Calls `fire(key)` once for each timer that is due."""

    def __init__(self, clock: Clock, fire: Callable[[KeyT], None]) -> None:
        self._clock = clock
        self._fire = fire
        self._deadlines_ms: dict[KeyT, float] = {}
        self._heap: list[tuple[float, int, KeyT]] = []
        self._queued_ms: dict[KeyT, float] = {}
        self._order = count()
        self._wake_up: asyncio.TimerHandle | None = None
        self._wake_up_ms = 0.0

    def __len__(self) -> int:
        return len(self._deadlines_ms)

    def start(self, key: KeyT, delay_ms: float, *, keeps_running: bool = False) -> None:
        """Start the timer, or restart it unless it `keeps_running`."""
        if keeps_running and key in self._deadlines_ms:
            return
        deadline_ms = self._clock.monotonic_ms() + delay_ms
        self._deadlines_ms[key] = deadline_ms
        queued_ms = self._queued_ms.get(key)
        if queued_ms is None or deadline_ms < queued_ms:
            self._push(key, deadline_ms)
        self._arm()

    def cancel(self, key: KeyT) -> None:
        """Stop the timer if it runs."""
        self._deadlines_ms.pop(key, None)

    def run_due(self) -> int:
        """Fire the timers that are due; return their number. Called by the event loop, and by tests
        that moved their clock.
        """
        now_ms, fired = self._clock.monotonic_ms(), 0
        while self._heap and self._heap[0][0] <= now_ms:
            queued_ms, _, key = heapq.heappop(self._heap)
            if self._queued_ms.get(key) != queued_ms:
                continue
            del self._queued_ms[key]
            deadline_ms = self._deadlines_ms.get(key)
            if deadline_ms is None:
                continue
            if deadline_ms > now_ms:
                self._push(key, deadline_ms)
                continue
            del self._deadlines_ms[key]
            fired += 1
            try:
                self._fire(key)
            except Exception:
                note_death("timer", key=key)  # only this timer fails; the other due timers still fire
        self._arm()
        return fired

    def stop(self) -> None:
        """Forget all timers."""
        self._deadlines_ms.clear()
        self._queued_ms.clear()
        self._heap.clear()
        self._disarm()

    def _push(self, key: KeyT, deadline_ms: float) -> None:
        self._queued_ms[key] = deadline_ms
        heapq.heappush(self._heap, (deadline_ms, next(self._order), key))

    def _arm(self) -> None:
        if not self._deadlines_ms:
            self._disarm()
            self._heap.clear()
            self._queued_ms.clear()
            return
        next_ms = self._heap[0][0]
        if self._wake_up is not None and self._wake_up_ms <= next_ms:
            return
        self._disarm()
        delay_ms = max(next_ms - self._clock.monotonic_ms(), 0)
        self._wake_up_ms = next_ms
        self._wake_up = asyncio.get_running_loop().call_later(delay_ms / 1000, self._woken)

    def _disarm(self) -> None:
        if self._wake_up is not None:
            self._wake_up.cancel()
            self._wake_up = None

    def _woken(self) -> None:
        self._wake_up = None
        self.run_due()
