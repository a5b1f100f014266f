"""Waits of a drill: for a condition with a deadline, and for the end of work in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from runtime.process import OperationalFailure
from runtime.supervision import to_its_end

POLL_S = 0.1

Arguments = ParamSpec("Arguments")
Outcome = TypeVar("Outcome")


async def in_thread(
    work: Callable[Arguments, Outcome], *arguments: Arguments.args, **settings: Arguments.kwargs
) -> Outcome:
    """Run a function in a thread and wait for its end even if the step is cancelled. Otherwise the
    thread could inject a fault after everything was restored.
    """
    return await to_its_end(asyncio.ensure_future(asyncio.to_thread(work, *arguments, **settings)))


async def until(condition: Callable[[], Awaitable[bool]], *, within_ms: int, what: str) -> None:
    """Poll the condition. Raises OperationalFailure with the given words on timeout."""
    try:
        async with asyncio.timeout(within_ms / 1000):
            while True:
                if await condition():
                    return
                await asyncio.sleep(POLL_S)
    except TimeoutError as expired:
        raise OperationalFailure(f"{what} after {within_ms} ms") from expired
