"""Requests that wait for something to happen or for their time to run out: Kafka's purgatory on a
timing wheel.

Pure: time enters as `now_ms` (monotonic). A waiting request of one operation is watched under one
or more keys (partitions, sessions). The code that changes a partition looks up the watchers of its
key and completes those whose condition holds. `expire` hands out the overdue. An entry leaves in
exactly one way, once: `remove` or `expire`.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import Generic, TypeVar

from msgspec import Struct, field

RequestT = TypeVar("RequestT")
KeyT = TypeVar("KeyT", bound=Hashable)


class WaitingRequest(Struct, Generic[RequestT], eq=False):
    """One entry; compare by identity."""

    request: RequestT
    operation: int
    keys: tuple[Hashable, ...]
    deadline_ms: float
    is_done: bool = False


class TimingWheel(Struct):
    """Deadlines in slots of `tick_ms`; an entry further away than one turn stays in its slot and is
    passed over until due.
    """

    tick_ms: float = 5.0
    slot_count: int = 512
    count: int = 0
    _slots: list[set[WaitingRequest[object]]] = field(default_factory=list)
    _current_tick: int = -1

    def __post_init__(self) -> None:
        self._slots = [set() for _ in range(self.slot_count)]

    def _tick_of(self, deadline_ms: float) -> int:
        # Rounded up, so that an entry never expires early; an overdue one is found at the next
        # tick.
        return max(int(deadline_ms // self.tick_ms) + 1, self._current_tick + 1)

    def add(self, entry: WaitingRequest[object]) -> None:
        """Start counting the entry's time."""
        # a deadline in the past goes into the next slot that is looked at, never behind it
        entry.deadline_ms = max(entry.deadline_ms, self._current_tick * self.tick_ms)
        self._slots[self._tick_of(entry.deadline_ms) % self.slot_count].add(entry)
        self.count += 1

    def remove(self, entry: WaitingRequest[object]) -> None:
        """Stop counting; nothing happens for an entry that is not here."""
        first = int(entry.deadline_ms // self.tick_ms) + 1
        # the two slots in which `add` may have put it
        for tick in (first, self._current_tick + 1):
            slot = self._slots[tick % self.slot_count]
            if entry in slot:
                slot.remove(entry)
                self.count -= 1
                return

    def expiry_of(self, deadline_ms: float) -> float:
        """The time, in ms, at which `advance` may return an entry of this deadline: up to a tick
        later.
        """
        return (deadline_ms // self.tick_ms + 1) * self.tick_ms

    def next_expiry_ms(self) -> float:
        """The time, in ms, at which `advance` must be called again, after it was called once.
        Infinite if nothing waits.
        """
        for tick in range(self._current_tick + 1, self._current_tick + 1 + self.slot_count):
            if self._slots[tick % self.slot_count]:
                return tick * self.tick_ms
        return math.inf

    def advance(self, now_ms: float) -> list[WaitingRequest[object]]:
        """Entries whose deadline has passed, removed, the earliest first."""
        target = int(now_ms // self.tick_ms)
        if self._current_tick < 0 or not self.count:
            # nothing waits, or the first call: slots that were never filled are passed over
            first = max(self._current_tick + 1, target - self.slot_count + 1)
        else:
            first = self._current_tick + 1
        due: list[WaitingRequest[object]] = []
        # after a long pause each slot is looked at once
        for tick in range(max(first, target - self.slot_count + 1), target + 1):
            slot = self._slots[tick % self.slot_count]
            if slot:
                overdue = [entry for entry in slot if entry.deadline_ms <= now_ms]
                slot.difference_update(overdue)
                due.extend(overdue)
        self._current_tick = max(self._current_tick, target)
        self.count -= len(due)
        return sorted(due, key=lambda entry: entry.deadline_ms)


class WaitingRequests(Generic[RequestT]):
    """Entries by operation and key, with deadlines. Not reentrant-safe by itself: take `watchers`
    as a list before completing them.
    """

    def __init__(self, *, operations: int = 1, tick_ms: float = 5.0) -> None:
        self._wheel = TimingWheel(tick_ms=tick_ms)
        self._watchers: list[dict[Hashable, dict[int, WaitingRequest[RequestT]]]] = [{} for _ in range(operations)]
        self._counts = [0] * operations

    def __len__(self) -> int:
        return self._wheel.count

    def count(self, operation: int) -> int:
        """Requests of the operation that wait."""
        return self._counts[operation]

    @property
    def key_count(self) -> int:
        """Keys with at least one watcher, each counted once for each operation."""
        return sum(len(watchers) for watchers in self._watchers)

    def add(
        self, request: RequestT, *, operation: int = 0, keys: Iterable[Hashable], deadline_ms: float
    ) -> WaitingRequest[RequestT]:
        """Make the request wait under all of its keys until `deadline_ms`."""
        entry = WaitingRequest(request=request, operation=operation, keys=tuple(keys), deadline_ms=deadline_ms)
        watchers = self._watchers[operation]
        for key in entry.keys:
            watchers.setdefault(key, {})[id(entry)] = entry
        self._wheel.add(entry)  # type: ignore[arg-type]
        self._counts[operation] += 1
        return entry

    def expiry_of(self, entry: WaitingRequest[RequestT]) -> float:
        """The time, in ms, at which `expire` returns the entry, unless it is removed before."""
        return self._wheel.expiry_of(entry.deadline_ms)

    def next_expiry_ms(self) -> float:
        """The time, in ms, at which `expire` must be called again, after it was called once;
        infinite if nothing waits.
        """
        return self._wheel.next_expiry_ms()

    def is_watched(self, key: Hashable, operation: int = 0) -> bool:
        """True when a request waits for the key; cheap, for the hot path."""
        return key in self._watchers[operation]

    def is_watched_at_all(self, key: Hashable) -> bool:
        """True when a request of any operation waits for the key; cheap, for the hot path."""
        for watchers in self._watchers:  # noqa: SIM110  a generator would cost more than the look-ups
            if key in watchers:
                return True
        return False

    def watchers(self, key: Hashable, operation: int = 0) -> list[WaitingRequest[RequestT]]:
        """The requests that wait for the key, in order of arrival."""
        return list(self._watchers[operation].get(key, {}).values())

    def remove(self, entry: WaitingRequest[RequestT]) -> bool:
        """Take the entry out; False when it had left before."""
        if entry.is_done:
            return False
        self._wheel.remove(entry)  # type: ignore[arg-type]
        self._forget(entry)
        return True

    def expire(self, now_ms: float) -> list[RequestT]:
        """Requests whose time has run out, taken out."""
        requests: list[RequestT] = []
        for overdue in self._wheel.advance(now_ms):
            entry: WaitingRequest[RequestT] = overdue  # type: ignore[assignment]
            self._forget(entry)
            requests.append(entry.request)
        return requests

    def drain(self, operation: int) -> list[RequestT]:
        """Every request of the operation, taken out: the broker stops."""
        entries = {id(entry): entry for found in self._watchers[operation].values() for entry in found.values()}
        for entry in entries.values():
            self.remove(entry)
        return [entry.request for entry in entries.values()]

    def _forget(self, entry: WaitingRequest[RequestT]) -> None:
        entry.is_done = True
        self._counts[entry.operation] -= 1
        watchers = self._watchers[entry.operation]
        for key in entry.keys:
            found = watchers.get(key)
            if found is not None and found.pop(id(entry), None) is not None and not found:
                del watchers[key]
