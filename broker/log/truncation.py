"""Truncates a log without blocking the event loop: threads write, before and after the decision,
what recovery needs after a crash.

Before: a compacted segment that is being swapped in is completed, and the recovery point on disk is
lowered, so that recovery after any later crash checks the batches that are appended then. After:
the dropped files are renamed and the directory is flushed to disk. The truncation itself is done
between these two parts, in one step on the event loop. If the log is written, flushed or closed
before the last part is done, the log does that part itself and blocks the loop.

Caller: broker/log/partition_log.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Protocol

from broker.log.directories.removal import PendingRemovals
from broker.log.durability import Durability
from broker.log.segments.segment_list import Segments
from broker.log.threads import in_thread


class Swaps:
    """Tracks whether a compacted segment is being swapped into a log
    (`broker/log/cleaning/log_compaction.py`), and whether another one may begin.
    """

    def __init__(self) -> None:
        self._finish: Callable[[], None] | None = None
        # One for each swap: an event takes 900 bytes, and hardly any log is being swapped into.
        self._ended: asyncio.Event | None = None
        self._holders = 0

    @property
    def is_under_way(self) -> bool:
        """True if a segment is being swapped in now."""
        return self._finish is not None

    @property
    def may_begin(self) -> bool:
        """True if no truncation waits for the end of swaps."""
        return not self._holders

    @contextmanager
    def under_way(self, finish: Callable[[], None]) -> Iterator[None]:
        """While the body runs, a segment is being swapped in; `finish` does the remaining steps and
        blocks the caller.
        """
        self._finish, self._ended = finish, asyncio.Event()
        ended = self._ended
        try:
            yield
        finally:
            self._finish = self._ended = None
            ended.set()

    def finish(self) -> None:
        """Do the remaining steps of a swap in progress, blocking the caller."""
        if self._finish is not None:
            self._finish()

    @asynccontextmanager
    async def ended(self) -> AsyncIterator[None]:
        """While the body runs, no swap is in progress, and none begins."""
        self._holders += 1
        try:
            while self._ended is not None:
                await self._ended.wait()
            yield
        finally:
            self._holders -= 1


class Truncated(Protocol):
    """The part of a truncation that the log does."""

    log_end_offset: int
    swaps: Swaps
    removals: PendingRemovals


@asynccontextmanager
async def truncation(log: Truncated, segments: Segments, durability: Durability, offset: int) -> AsyncIterator[None]:
    """The body truncates to `offset`, or checks again and does not. Raises StorageError before the
    body or after it.
    """
    async with log.swaps.ended():
        recover_from = offset
        if offset < log.log_end_offset:
            recover_from = min(offset, segments.all[segments.last_kept(offset)].base_offset)
        async with durability.lowered(recover_from):
            yield
    if log.removals.needs_settling:
        await in_thread(log.removals.settle)
