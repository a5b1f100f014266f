"""Waiting for a condition instead of sleeping: `await eventually(...)` in a loop,
`eventually_sync(...)` outside one.

The condition is called again and again until it returns something true, which is then returned. An
AssertionError that it raises means "not yet", so a condition may be written with asserts; the last
one is shown when time is up. Any other error ends the wait.
"""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar, cast, overload

Result = TypeVar("Result")

WITHIN_MS = 120_000
"""The limit of a wait: a machine that many share may take ten times as long as a quiet one. Only a
failure waits that long.
"""
PAUSE_S_MIN = 0.002
PAUSE_S_MAX = 0.05


@overload
async def eventually(condition: Callable[[], Coroutine[Any, Any, Result | None]], within_ms: float = ...) -> Result: ...
@overload
async def eventually(condition: Callable[[], Result | None], within_ms: float = ...) -> Result: ...
async def eventually(condition: Callable[[], Any], within_ms: float = WITHIN_MS) -> Any:
    """The first true result of `condition` (a function or a coroutine function). ConditionNeverHeld
    when there is none in time.
    """
    attempts = _Attempts(condition, within_ms)
    while True:
        outcome: Any
        try:
            outcome = condition()
            if inspect.isawaitable(outcome):
                outcome = await outcome
        except AssertionError as error:
            outcome = error
        if attempts.is_met(outcome):
            return outcome
        await asyncio.sleep(attempts.pause_s())


def eventually_sync(condition: Callable[[], Result | None], within_ms: float = WITHIN_MS) -> Result:
    """The same as `eventually`, for tests without an event loop."""
    attempts = _Attempts(condition, within_ms)
    while True:
        outcome: Any
        try:
            outcome = condition()
        except AssertionError as error:
            outcome = error
        if attempts.is_met(outcome):
            return cast("Result", outcome)
        time.sleep(attempts.pause_s())


class _Attempts:
    """The deadline, the growing pause between two tries, and whether a try was the last."""

    def __init__(self, condition: Callable[..., object], within_ms: float) -> None:
        self._name = getattr(condition, "__qualname__", repr(condition))
        self._within_ms = within_ms
        self._deadline = time.monotonic() + within_ms / 1000
        self._pause_s = PAUSE_S_MIN

    def is_met(self, outcome: object) -> bool:
        """True if the outcome of an attempt ends the wait; ConditionNeverHeld when it does not and
        time is up.
        """
        if outcome and not isinstance(outcome, AssertionError):
            return True
        if time.monotonic() < self._deadline:
            return False
        message = f"{self._name} did not hold within {self._within_ms:g} ms; last: {outcome!r}"
        raise ConditionNeverHeld(message) from (outcome if isinstance(outcome, AssertionError) else None)

    def pause_s(self) -> float:
        """The pause (s) before the next attempt."""
        pause_s, self._pause_s = self._pause_s, min(self._pause_s * 1.5, PAUSE_S_MAX)
        return pause_s


class ConditionNeverHeld(AssertionError):
    """The deadline of `eventually` has passed."""
