"""Waiting requests on the event loop: complete them when their partitions change or they time out.

A thin shell over core/waiting.py. Changes are collected and handled once per turn of the loop, so
that many appends wake a waiting fetch once, after the producers have their answers. A waiting
request decides itself when it has enough.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Hashable, Iterable
from typing import Final, Protocol

from broker.replication.core.waiting import WaitingRequest, WaitingRequests
from runtime.clock import Clock
from runtime.supervision import note_death

TICK_MS: Final = 5.0
KIND: Final = "waiting request"
"""The label of a failed check among failed tasks."""


class Waiter(Protocol):
    """A request that waits."""

    def changed(self, key: Hashable, grown_bytes: int) -> bool:
        """The key changed (`grown_bytes` more can be read, 0 for any other change); True when the
        wait is over.
        """
        ...

    def complete(self) -> None:
        """Answer now: the condition holds or the time is up. Called once."""
        ...


class Purgatory:
    """Requests of one kind that wait."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._waiting: WaitingRequests[Waiter] = WaitingRequests(tick_ms=TICK_MS)
        self._changes: dict[Hashable, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._next_tick_ms = math.inf
        self._has_emptied: asyncio.Future[None] | None = None
        self._is_closed = False

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, waiter: Waiter, *, keys: Iterable[Hashable], timeout_ms: float) -> WaitingRequest[Waiter]:
        """Make the request wait; `forget` takes the entry that is returned."""
        allowed_ms = 0 if self._is_closed else timeout_ms
        entry = self._waiting.add(waiter, keys=keys, deadline_ms=self._clock.monotonic_ms() + allowed_ms)
        self._tick_at(self._waiting.expiry_of(entry))
        return entry

    def forget(self, entry: WaitingRequest[Waiter]) -> None:
        """The client is gone: the request is not completed any more."""
        self._waiting.remove(entry)
        self._note_emptied()

    def is_awaited(self, key: Hashable) -> bool:
        """True when a request waits for the key: without one, costly values need not be
        computed.
        """
        return self._waiting.is_watched(key)

    def notify(self, key: Hashable, grown_bytes: int = 0) -> None:
        """The key changed; watchers are asked in this turn of the loop. Growth covers up no change
        of another kind in the same turn.
        """
        if not self._waiting.is_watched(key):
            return
        if not self._changes:
            self._loop.call_soon(self._deliver)
        known_bytes = self._changes.get(key)
        is_growth = grown_bytes > 0 and known_bytes != 0
        self._changes[key] = (known_bytes or 0) + grown_bytes if is_growth else 0

    async def emptied(self) -> None:
        """Wait until no request waits."""
        while len(self._waiting):
            self._has_emptied = self._has_emptied or self._loop.create_future()
            await asyncio.shield(self._has_emptied)

    def _note_emptied(self) -> None:
        if self._has_emptied is not None and not len(self._waiting):
            self._has_emptied.set_result(None)
            self._has_emptied = None

    def _deliver(self) -> None:
        changes, self._changes = self._changes, {}
        for key, grown_bytes in changes.items():
            for entry in self._waiting.watchers(key):
                if _is_over(entry.request, key, grown_bytes) and self._waiting.remove(entry):
                    _complete(entry.request)
        self._note_emptied()

    def _tick_at(self, at_ms: float) -> None:
        """Look for requests whose time has run out at `at_ms`, unless that happens earlier
        anyway.
        """
        if at_ms >= self._next_tick_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._next_tick_ms = at_ms
        self._timer = self._loop.call_later(max(at_ms - self._clock.monotonic_ms(), 0) / 1000, self._tick)

    def _tick(self) -> None:
        self._timer, self._next_tick_ms = None, math.inf
        for waiter in self._waiting.expire(self._clock.monotonic_ms()):
            _complete(waiter)
        self._note_emptied()
        if len(self._waiting):
            self._tick_at(self._waiting.next_expiry_ms())

    def stop(self) -> None:
        """Complete everything that waits: the broker stops."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._next_tick_ms = None, math.inf
        for waiter in self._waiting.drain():
            _complete(waiter)
        self._note_emptied()

    def close(self) -> None:
        """Like `stop`, and later requests complete at once."""
        self._is_closed = True
        self.stop()


def _is_over(waiter: Waiter, key: Hashable, grown_bytes: int) -> bool:
    """True if the wait is over, also if the check fails: the wait would otherwise end only at its
    timeout.
    """
    try:
        return waiter.changed(key, grown_bytes)
    except Exception:
        note_death(KIND)
        return True


def _complete(waiter: Waiter) -> None:
    """Complete one request; if that fails, the others are completed all the same."""
    try:
        waiter.complete()
    except Exception:
        note_death(KIND)
