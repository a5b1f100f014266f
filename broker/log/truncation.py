"""Truncating a log without holding the event loop: what a crash must find is written in threads, before and after the decision.

Before: the recovery point on disk goes back to where recovery has to look again, so that no later crash leaves what is appended then
unchecked. After: the files that were dropped are renamed and the directory is forced to disk. Between the two stands the truncation
itself, at once and on the loop. The log does the last part itself, holding the loop, when it is written to, flushed or closed earlier.

Caller: broker/log/partition_log.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from broker.log.durability import Durability
from broker.log.removal import PendingRemovals
from broker.log.segments import Segments
from broker.log.threads import in_thread


@asynccontextmanager
async def truncation(
    segments: Segments, durability: Durability, removals: PendingRemovals, offset: int, end_offset: int
) -> AsyncIterator[None]:
    """The body truncates to `offset`, or looks again and does not. Raises StorageError before the body or after it."""
    recover_from = offset if offset >= end_offset else min(offset, segments.all[segments.last_kept(offset)].base_offset)
    async with durability.lowered(recover_from):
        yield
    if removals.needs_settling:
        await in_thread(removals.settle)
