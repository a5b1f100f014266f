"""Disk work in a thread, so that a slow disk does not block the event loop.

Checkpoints, renames and removals have separate threads: after the flushes of thousands of logs they
would wait for minutes.

Callers: broker/log/*, broker/replication/replicas.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from runtime.supervision import to_its_end

ResultT = TypeVar("ResultT")

THREADS: Final = 4
_pool = ThreadPoolExecutor(THREADS, thread_name_prefix="log-files")


async def in_thread(work: Callable[[], ResultT]) -> ResultT:
    """Do the work in a thread and return its result. A cancelled caller waits for its end."""
    return await to_its_end(asyncio.get_running_loop().run_in_executor(_pool, work))
