"""Waits for a condition with a deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from runtime.process import OperationalFailure

POLL_S = 0.1


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
