"""A limit of requests and bytes a second: a token bucket, which one request may overdraw."""

from __future__ import annotations


class Rate:
    """A limit per second; at most one second's worth is saved up. A limit of 0 means no limit."""

    __slots__ = ("_at_ms", "_left", "per_second")

    def __init__(self, per_second: int) -> None:
        self.per_second = per_second
        self._left = float(per_second)
        self._at_ms: float | None = None

    def wait_ms(self, now_ms: float) -> float:
        """The time (ms) until the next request may pass; 0 when it may pass now."""
        if not self.per_second:
            return 0.0
        if self._at_ms is not None:
            earned = (now_ms - self._at_ms) * self.per_second / 1000
            self._left = min(self._left + earned, float(self.per_second))
        self._at_ms = now_ms
        return 0.0 if self._left > 0 else -self._left * 1000 / self.per_second + 1

    def take(self, amount: float) -> None:
        """Count an amount that was let through."""
        self._left -= amount
