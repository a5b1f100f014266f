"""The time for which one request keeps the event loop busy, without the time for which it waits.

Caller: broker/network/exchange.py.
"""

from __future__ import annotations

import time
from collections.abc import Coroutine
from typing import Any


class BusyTime:
    """The time for which a request keeps the event loop busy. Measured only while a client has a
    request quota.
    """

    __slots__ = ("_started_ns", "_used_ns")

    def __init__(self) -> None:
        self._used_ns = 0
        self._started_ns = time.perf_counter_ns()

    def begin(self) -> None:
        """The loop turns to the request again."""
        self._started_ns = time.perf_counter_ns()

    def end(self) -> None:
        """The loop turns to something else."""
        self._used_ns += time.perf_counter_ns() - self._started_ns
        # 0 while the loop is elsewhere: `so_far_ns` must not count what others use
        self._started_ns = 0

    def so_far_ns(self) -> int:
        """Up to now."""
        return self._used_ns + (time.perf_counter_ns() - self._started_ns if self._started_ns else 0)


class TimedSteps:
    """A coroutine whose steps are timed; its waits are not."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], busy: BusyTime) -> None:
        self._coroutine = coroutine
        self._busy = busy

    def __await__(self) -> TimedSteps:
        return self

    def __iter__(self) -> TimedSteps:
        return self

    def __next__(self) -> Any:
        return self.send(None)

    def send(self, value: Any) -> Any:
        self._busy.begin()
        try:
            return self._coroutine.send(value)
        finally:
            self._busy.end()

    def throw(self, *error: Any) -> Any:
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()
