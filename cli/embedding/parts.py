"""Starts the parts of embedded sites: locks the directory for one command at a time, ends parts
that an earlier command left running, starts several parts in parallel, and gives the reason in one
line if a part does not start.

`cli/embedding/embedded.py` decides what the parts are and in which order they start.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from runtime.children import Child
from runtime.process import OperationalFailure

READY_TIMEOUT_MS = 60_000
STOP_TIMEOUT_MS = 20_000
STOP_LIMIT_MS = 600_000
"""How long a part is awaited that works on its stop: a broker closes thousands of logs a second on
a quiet machine, and a hundred a second on a busy one.
"""
LOCK_FILE = "lock"
COMPLAINT = "error: "
"""The start of the line in which a daemon reports why it ends."""

Report = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A process and the check that it is ready."""

    child: Child
    is_ready: Callable[[], Awaitable[bool]]


@contextmanager
def directory_held(directory: Path) -> Iterator[None]:
    """Lock the directory for the block. OperationalFailure if another process has locked it."""
    with (directory / LOCK_FILE).open("a+", encoding="ascii") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            lock.seek(0)
            raise OperationalFailure(
                f"{directory} is running already (process {lock.read().strip() or 'unknown'}): stop that, or give another --dir"
            ) from error
        lock.truncate(0)
        lock.write(f"{os.getpid()}\n")
        lock.flush()
        yield


async def end_left_over(parts: Iterable[Part], report: Report) -> None:
    """End processes that still run because the command that started them was killed."""
    left_over = [part.child for part in parts if part.child.pid() is not None]
    if left_over:
        report(f"ending what was left running: {', '.join(child.name for child in left_over)}")
    await asyncio.gather(*(stopped(child) for child in left_over))


async def stopped(child: Child) -> bool:
    """End a part; False if it had to be killed."""
    return await asyncio.to_thread(child.stop, timeout_ms=STOP_TIMEOUT_MS, limit_ms=STOP_LIMIT_MS)


async def together(*starting: Coroutine[None, None, None]) -> None:
    """Run all concurrently. If one fails, the others are cancelled and awaited before its error is
    raised.
    """
    try:
        async with asyncio.TaskGroup() as group:
            for coroutine in starting:
                group.create_task(coroutine)
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


async def until_ready(part: Part, *, log_start: int) -> None:
    """Check repeatedly until the part is ready. OperationalFailure when it ends or the deadline
    passes; `log_start` is where its log ended before it was started.
    """
    child = part.child
    deadline = asyncio.get_running_loop().time() + READY_TIMEOUT_MS / 1000
    while not await part.is_ready():
        if child.pid() is None:
            raise OperationalFailure(f"{child.name} ended while it was starting: {_reason(child, log_start)}")
        if asyncio.get_running_loop().time() > deadline:
            raise OperationalFailure(
                f"{child.name} is not ready after {READY_TIMEOUT_MS} ms: {_reason(child, log_start)}"
            )
        await asyncio.sleep(0.05)


def log_size(child: Child) -> int:
    """The current size of the child's log in bytes."""
    return child.log.stat().st_size if child.log.exists() else 0


def _reason(child: Child, log_start: int) -> str:
    """The reason that the part itself gives; otherwise the end of its log since its start."""
    with child.log.open("rb") as log:
        log.seek(log_start)
        lines = log.read().decode(errors="replace").splitlines()
    complaints = [line.removeprefix(COMPLAINT) for line in lines if line.startswith(COMPLAINT)]
    if complaints:
        return f"{complaints[-1]} (log {child.log})"
    return "\n".join([f"log {child.log} ends with", *lines[-20:]])
