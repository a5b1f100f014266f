"""The retry policy of all packages, on tenacity: exponential backoff with full jitter and a bounded
budget.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_attempt,
    stop_never,
    wait_exponential,
)
from tenacity.stop import stop_base

from runtime.chance import jitter


class _FullJitter(wait_exponential):
    """A random wait up to the exponentially growing cap; like tenacity's, from the context's
    chance.
    """

    def __call__(self, retry_state: RetryCallState) -> float:
        return jitter().uniform(0, super().__call__(retry_state))


class _Budget(stop_base):
    """Stops when the budget is used up; like tenacity's, by the time of the running loop."""

    def __init__(self, budget_s: float) -> None:
        self._budget_s = budget_s
        self._began_s = 0.0

    def note_attempt(self, retry_state: RetryCallState) -> None:
        """Called before each attempt."""
        if retry_state.attempt_number == 1:
            self._began_s = asyncio.get_running_loop().time()

    def __call__(self, retry_state: RetryCallState) -> bool:
        del retry_state
        return asyncio.get_running_loop().time() - self._began_s >= self._budget_s


def _note_nothing(_: RetryCallState) -> None:
    """Attempts without a budget need no start."""


def jittered_backoff(
    *,
    retry_on: type[BaseException] | tuple[type[BaseException], ...],
    initial_ms: float = 50,
    max_ms: float = 1000,
    budget_ms: float | None = None,
    attempts_max: int | None = None,
    before_sleep: Callable[[RetryCallState], None] | None = None,
) -> AsyncRetrying:
    """Retry one operation while `retry_on` is raised; the wait is random up to an exponentially
    growing cap. Re-raises the last error.

    `budget_ms` bounds the total time, `attempts_max` the number of attempts; without both, retries
    continue until the task is cancelled.
    """
    stop: stop_base = stop_never
    budget = None if budget_ms is None else _Budget(budget_ms / 1000)
    if budget is not None:
        stop = budget
    if attempts_max is not None:
        bounded = stop_after_attempt(attempts_max)
        stop = bounded if budget is None else budget | bounded
    return AsyncRetrying(
        retry=retry_if_exception_type(retry_on),
        wait=_FullJitter(multiplier=initial_ms / 1000, max=max_ms / 1000),
        stop=stop,
        before=_note_nothing if budget is None else budget.note_attempt,
        before_sleep=before_sleep,
        reraise=True,
    )
