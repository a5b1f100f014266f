"""A clock that a test moves by hand (see `runtime/clock.py` for the Protocol)."""

from __future__ import annotations

START_MS = 1_700_000_000_000


class ManualClock:
    """Stands still until `advance`; wall and monotonic time move together, `set_now_ms` moves the
    wall clock alone.
    """

    def __init__(self, now_ms: int = START_MS) -> None:
        self._now_ms = float(now_ms)
        self._monotonic_ms = 0.0

    def now_ms(self) -> int:
        """Unix time in milliseconds."""
        return int(self._now_ms)

    def monotonic_ms(self) -> float:
        """Milliseconds since this clock was made."""
        return self._monotonic_ms

    def advance(self, elapsed_ms: float) -> None:
        """Let time pass. ValueError for a negative time."""
        if elapsed_ms < 0:
            raise ValueError(f"time does not go back: {elapsed_ms} ms")
        self._now_ms += elapsed_ms
        self._monotonic_ms += elapsed_ms

    def set_now_ms(self, now_ms: int) -> None:
        """Set the wall clock forward or back, as an operator or NTP does."""
        self._now_ms = float(now_ms)
