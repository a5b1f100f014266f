"""Waiting requests on the event loop: complete them when their partitions change or they time out.

A thin shell over `core/waiting.py`, and the only place that wakes requests: the code that changes
a partition reports the change to `changed`, and the table in `core/wake_ups.py` says which requests
look again. Changes are collected and handled once per turn of the loop, so that many appends wake a
waiting fetch once, after the producers have their answers. A waiting request decides itself when it
has enough.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Collection, Hashable, Iterable
from typing import Final, Protocol

from broker.replication.core.waiting import WaitingRequest, WaitingRequests
from broker.replication.core.wake_ups import Change, DelayedOperation
from broker.replication.tracked_sessions import TrackedSessions
from runtime.clock import Clock
from runtime.supervision import note_death

TICK_MS: Final = 5.0
_GROWTH: Final = (Change.LOG_GREW, Change.MIRRORABLE_END)
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
    """All requests that wait for partitions here."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self.sessions = TrackedSessions()
        self._waiting: WaitingRequests[Waiter] = WaitingRequests(operations=len(DelayedOperation), tick_ms=TICK_MS)
        self._changes: dict[tuple[DelayedOperation, Hashable], int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._next_tick_ms = math.inf
        self._emptied: dict[DelayedOperation, asyncio.Future[None]] = {}
        self._is_closed = False

    def count(self, operation: DelayedOperation) -> int:
        """Requests of the operation that wait."""
        return self._waiting.count(operation)

    def wait(
        self, waiter: Waiter, operation: DelayedOperation, *, keys: Iterable[Hashable], timeout_ms: float
    ) -> WaitingRequest[Waiter]:
        """Make the request wait for partitions, or for sessions that track changes; `forget` takes
        the entry that is returned.
        """
        # A closed broker answers at once, but through the timer, because the caller may not be
        # ready for the answer yet.
        allowed_ms = 0 if self._is_closed else timeout_ms
        deadline_ms = self._clock.monotonic_ms() + allowed_ms
        entry = self._waiting.add(waiter, operation=operation, keys=keys, deadline_ms=deadline_ms)
        self._tick_at(self._waiting.expiry_of(entry))
        return entry

    def forget(self, entry: WaitingRequest[Waiter]) -> None:
        """The client is gone: the request is never completed."""
        self._waiting.remove(entry)
        self._note_emptied()

    def is_awaited(self, operation: DelayedOperation, key: Hashable) -> bool:
        """True when a request waits for the key: without one, costly values need not be
        computed.
        """
        if self._waiting.is_watched(key, operation):
            return True
        is_mirrors = operation is DelayedOperation.MIRROR_FETCH and key in self.sessions
        return is_mirrors and any(
            self._waiting.is_watched(session, operation) for session in self.sessions.mirrors_of(key)
        )

    def concerns(self, key: Hashable) -> bool:
        """True when a change of the key may matter to a request or a session; else `changed` would
        do nothing.
        """
        return key in self.sessions or self._waiting.is_watched_at_all(key)

    def changed(self, key: Hashable, change: Change, grown_bytes: int = 0, *, former_end: int | None = None) -> None:
        """A partition changed; the requests that the change wakes look again in this turn of the
        loop. `grown_bytes` more can be read, 0 for any other change; `former_end` is where a log
        that grew ended.
        """
        # asked once: most partitions have nothing that waits, and a move changes them all
        if self._waiting.is_watched_at_all(key):
            for operation in change.woken:
                if self._waiting.is_watched(key, operation):
                    self._wake(operation, key, grown_bytes)
        if key in self.sessions:
            appended_bytes = grown_bytes if change in _GROWTH else 0
            for session in self.sessions.learn(key, change, grown_bytes=appended_bytes, former_end=former_end):
                awaited = DelayedOperation.FOLLOWER_FETCH if session.is_followers else DelayedOperation.MIRROR_FETCH
                if self._waiting.is_watched(session, awaited):
                    self._wake(awaited, session, appended_bytes)

    def wake_followers(self, replicas: Collection[int]) -> None:
        """Answer the waiting fetches of these followers: each of their next fetches can name
        partitions that this one does not have.
        """
        for session in self.sessions.of_followers(replicas):
            if self._waiting.is_watched(session, DelayedOperation.FOLLOWER_FETCH):
                self._wake(DelayedOperation.FOLLOWER_FETCH, session, 0)

    def _wake(self, operation: DelayedOperation, key: Hashable, grown_bytes: int) -> None:
        """Growth of the log does not hide a change of another kind in the same turn of the loop."""
        if not self._changes:
            # Runs once for all changes of this turn of the loop, so that an append is not delayed
            # by the fetches that it wakes.
            self._loop.call_soon(self._deliver)
        awaited = operation, key
        known_bytes = self._changes.get(awaited)
        # 0 marks a change of another kind: more growth must not hide it
        is_growth = grown_bytes > 0 and known_bytes != 0
        self._changes[awaited] = (known_bytes or 0) + grown_bytes if is_growth else 0

    async def emptied(self, operation: DelayedOperation) -> None:
        """Wait until no request of the operation waits."""
        while self._waiting.count(operation):
            emptied = self._emptied.setdefault(operation, self._loop.create_future())
            # Shielded, because a cancelled waiter must not cancel the wait of the others.
            await asyncio.shield(emptied)

    def _note_emptied(self) -> None:
        for operation in tuple(self._emptied):
            if not self._waiting.count(operation):
                self._emptied.pop(operation).set_result(None)

    def _deliver(self) -> None:
        changes, self._changes = self._changes, {}
        for (operation, key), grown_bytes in changes.items():
            for entry in self._waiting.watchers(key, operation):
                # `remove` says who was first: the timer may have completed it in this turn
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
            # One timer for all, because thousands of waiting fetches would need as many handles of
            # the loop.
            self._tick_at(self._waiting.next_expiry_ms())

    def stop(self, operation: DelayedOperation) -> None:
        """Complete every request of the operation that waits: the broker stops."""
        for waiter in self._waiting.drain(operation):
            _complete(waiter)
        self._note_emptied()

    def close(self) -> None:
        """Complete all waiting requests, and later ones immediately."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._next_tick_ms = None, math.inf
        for operation in DelayedOperation:
            self.stop(operation)


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
