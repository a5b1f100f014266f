"""Disk work in a thread, so that a slow disk does not block the event loop.

Checkpoints, renames and removals have separate threads: after the flushes of thousands of logs they
would wait for minutes.

Callers: broker/log/*, broker/replication/replicas.py.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

ResultT = TypeVar("ResultT")

THREADS: Final = 4
_pool = ThreadPoolExecutor(THREADS, thread_name_prefix="log-files")


async def in_thread(work: Callable[[], ResultT]) -> ResultT:
    """Do the work in a thread and return its result; see `to_its_end`."""
    return await to_its_end(asyncio.get_running_loop().run_in_executor(_pool, work))


async def to_its_end(work: asyncio.Future[ResultT]) -> ResultT:
    """Wait for work that may have a thread under way, and return its result.

    A thread cannot be cancelled: a cancelled task raises CancelledError only when the work has
    ended. So a stop that waits for its tasks waits for their disk work too.
    """
    try:
        # without a shield the future would be cancelled while the thread continues unseen
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        while not work.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait([work])
        if not work.cancelled():
            work.exception()
        raise
