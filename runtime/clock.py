"""The clock door: wall time for records and reports, monotonic time for deadlines.

Core modules get `now_ms` as an argument; the other modules take a `Clock`, so that tests can set
the time.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Wall time and monotonic time."""

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
