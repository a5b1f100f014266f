"""One request that is under way while its caller works on the answer before it, in code that runs
the event loop only between answers (`iteration.py`): the broker reads and sends meanwhile, and the
system's socket buffer takes what arrives.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Final, Generic, Self, TypeVar

Result = TypeVar("Result")
STEPS_TO_WRITE: Final = 2
"""Steps of the event loop in which a request over an open connection is written: one starts the
task, another one tasks of its own for several brokers.
"""


class RequestAhead(Generic[Result]):
    """At most one request. The end of the block cancels it."""

    def __init__(self) -> None:
        self._task: asyncio.Task[Result] | None = None

    @property
    def is_under_way(self) -> bool:
        """True from `begin` to `result`."""
        return self._task is not None

    async def begin(self, request: Coroutine[Any, Any, Result]) -> None:
        """Send the request; there is none under way."""
        assert self._task is None, "a request is under way"
        self._task = asyncio.get_running_loop().create_task(request)
        for _ in range(STEPS_TO_WRITE):
            await asyncio.sleep(0)

    async def result(self) -> Result:
        """The result of the request under way. Raises its error."""
        task, self._task = self._task, None
        assert task is not None, "no request is under way"
        return await task

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self._task
