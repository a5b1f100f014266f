"""Keeps a late write out of a transaction that has ended meanwhile (KIP-890). Pure.

Before a transaction's first batch enters a partition, its coordinator is asked whether the
partition takes part. Between the question and the write the transaction may end: its marker passes,
and the batch behind it would begin a transaction that never ends. So the question takes a guard,
every marker of the producer withdraws it, and the write shows it. One object for each partition;
the guards in it are bounded by the requests under way.
"""

from __future__ import annotations

from typing import final


@final
class VerificationGuards:
    """Guards by producer id."""

    __slots__ = ("_guards", "_holders", "_last")

    def __init__(self) -> None:
        self._guards: dict[int, int] = {}
        self._holders: dict[int, int] = {}
        self._last = 0

    def __len__(self) -> int:
        return len(self._guards)

    def begin(self, producer_id: int) -> int:
        """A guard for a question about the producer; questions side by side share it. Give it back
        with `end`.
        """
        guard = self._guards.get(producer_id)
        # a new number: a guard that a marker withdrew must not become valid again
        if guard is None:
            self._last += 1
            guard = self._guards[producer_id] = self._last
        self._holders[guard] = self._holders.get(guard, 0) + 1
        return guard

    def is_valid(self, producer_id: int, guard: int) -> bool:
        """True while no marker of the producer has passed since the guard was taken."""
        return self._guards.get(producer_id) == guard

    def end(self, producer_id: int, guard: int) -> None:
        """The question is settled."""
        # questions side by side share a guard: it is valid until the last one is settled
        left = self._holders.get(guard, 0) - 1
        if left > 0:
            self._holders[guard] = left
            return
        self._holders.pop(guard, None)
        if self._guards.get(producer_id) == guard:
            del self._guards[producer_id]

    def withdraw_all(self) -> None:
        """Leadership changed: markers may have passed elsewhere."""
        self._guards.clear()

    def withdraw(self, producer_id: int) -> None:
        """A marker of the producer passes."""
        self._guards.pop(producer_id, None)
