"""A line of waiters for a scarce resource: by rank, then by arrival; one of `TURNS` grants goes to
the last rank, so no rank starves.

Pure. Budgets (`budget.py`) and the mirror's throttle use it wherever callers wait for space or
bytes.
"""

from __future__ import annotations

import heapq
from typing import Generic, TypeVar

from msgspec import Struct, field

TURNS = 8
"""One in this many grants goes to the last waiter."""

Waiter = TypeVar("Waiter")


class Line(Struct, Generic[Waiter]):
    """A waiting line, by rank and then by arrival."""

    _waiting: list[tuple[int, int, Waiter]] = field(default_factory=list)
    _arrivals: int = 0
    _grants: int = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, rank: int, waiter: Waiter) -> None:
        """Join the end of the rank."""
        self._arrivals += 1
        heapq.heappush(self._waiting, (rank, self._arrivals, waiter))

    def leave(self, waiter: Waiter) -> None:
        """Stop waiting; does nothing when it did not wait."""
        self._waiting = [place for place in self._waiting if place[2] is not waiter]
        heapq.heapify(self._waiting)

    def has_before(self, rank: int) -> bool:
        """True if a waiter of this rank, or of one that goes first, is in line."""
        return bool(self._waiting) and self._waiting[0][0] <= rank

    def candidates(self) -> list[tuple[int, Waiter]]:
        """The waiters that may be served next, with their ranks, the preferred one first. They stay
        in line until `serve`.
        """
        if not self._waiting:
            return []
        found = [self._waiting[0]]
        if self._grants % TURNS == TURNS - 1:
            found.insert(0, max(self._waiting, key=lambda place: (place[0], -place[1])))
        return [(rank, waiter) for rank, _, waiter in found]

    def serve(self, waiter: Waiter) -> None:
        """Remove a waiter that was served."""
        self._grants += 1
        self.leave(waiter)
