"""The clock door: wall time for records and reports, monotonic time for deadlines.

Cores never see a clock, they are handed `now_ms`; shells take a `Clock` so that tests can move it.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Two times: the one people read and the one that only moves forward."""

    def now_ms(self) -> int:
        """Unix time in milliseconds."""
        ...

    def monotonic_ms(self) -> float:
        """Milliseconds since an arbitrary start, never going back."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Unix time in milliseconds."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        """Milliseconds since an arbitrary start, never going back."""
        return time.monotonic_ns() / 1_000_000
