"""Measures a recent rate: an amount in windows of time, as Kafka measures usage against a quota.

Pure: time enters as `now_ms` (monotonic). The amounts of the last `samples` windows are kept, each
window beginning with the first amount recorded in it. The rate is their sum divided by the time
since the oldest began, but at least by all full windows except one. So the first seconds of traffic
after a pause count as a burst, which quiet windows may still even out, and not as a rate.

Callers: broker/quotas/core/client_quotas.py, replication throttles.
"""

from __future__ import annotations

from collections import deque


class WindowedRate:
    """One rate."""

    __slots__ = ("_samples", "_window_ms", "_windows", "recorded_at_ms")

    def __init__(self, samples: int, window_ms: float) -> None:
        self._samples = samples
        self._window_ms = window_ms
        self._windows: deque[list[float]] = deque()
        self.recorded_at_ms = 0.0

    def record(self, now_ms: float, amount: float) -> None:
        """Record an amount; a negative one reverses an amount that was recorded just before."""
        windows, kept_ms = self._windows, self._samples * self._window_ms
        while windows and now_ms - windows[0][0] >= kept_ms:
            windows.popleft()
        # a window begins with its first amount: a pause makes no empty windows
        if not windows or now_ms - windows[-1][0] >= self._window_ms:
            windows.append([now_ms, 0.0])
        windows[-1][1] += amount
        self.recorded_at_ms = now_ms

    def rate_per_second(self, now_ms: float) -> float:
        """The rate per second over the windows. It changes nothing, so another thread may call
        it.
        """
        windows = self._living(now_ms)
        return sum(amount for _, amount in windows) * 1000 / self._span_ms(windows, now_ms) if windows else 0.0

    def span_ms(self, now_ms: float) -> float:
        """The time that the rate is taken over."""
        return self._span_ms(self._living(now_ms), now_ms)

    def total(self, now_ms: float) -> float:
        """The sum over the windows."""
        return sum(amount for _, amount in self._living(now_ms))

    def _living(self, now_ms: float) -> list[list[float]]:
        kept_ms = self._samples * self._window_ms
        return [window for window in tuple(self._windows) if now_ms - window[0] < kept_ms]

    def _span_ms(self, windows: list[list[float]], now_ms: float) -> float:
        elapsed_ms = now_ms - windows[0][0] if windows else 0.0
        missing_windows = self._samples - 1 - elapsed_ms // self._window_ms
        if missing_windows > 0:
            elapsed_ms += missing_windows * self._window_ms
        return max(elapsed_ms, self._window_ms)
