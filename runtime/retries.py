"""The retry policy of all packages, on tenacity: exponential backoff with full jitter and a bounded
budget.
"""

from __future__ import annotations

from collections.abc import Callable

from tenacity import (
    AsyncRetrying,
    RetryCallState,
    retry_if_exception_type,
    stop_after_attempt,
    stop_after_delay,
    stop_never,
    wait_random_exponential,
)
from tenacity.stop import stop_base


def jittered_backoff(
    *,
    retry_on: type[BaseException] | tuple[type[BaseException], ...],
    initial_ms: float = 50,
    max_ms: float = 1000,
    budget_ms: float | None = None,
    attempts_max: int | None = None,
    before_sleep: Callable[[RetryCallState], None] | None = None,
) -> AsyncRetrying:
    """Retry while `retry_on` is raised; the wait is random up to an exponentially growing cap.
    Re-raises the last error.

    `budget_ms` bounds the total time, `attempts_max` the number of attempts; without both, retries
    continue until the task is cancelled.
    """
    stop: stop_base = stop_never
    if budget_ms is not None:
        stop = stop_after_delay(budget_ms / 1000)
    if attempts_max is not None:
        bounded = stop_after_attempt(attempts_max)
        stop = bounded if budget_ms is None else stop | bounded
    return AsyncRetrying(
        retry=retry_if_exception_type(retry_on),
        wait=wait_random_exponential(multiplier=initial_ms / 1000, max=max_ms / 1000),
        stop=stop,
        before_sleep=before_sleep,
        reraise=True,
    )
