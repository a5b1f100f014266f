"""A histogram of the active site's silences: how long no view from the standby reached the site,
until it answered again. It also recommends the shortest lease that exceeds all silences. Pure.

A lease shorter than ordinary periods without a response causes needless failovers; a much longer
one makes writers wait needlessly after a real loss. Silences shorter than the interval between two
looks are not seen.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from wire.rules.links import LEASE_MS_MAX, LEASE_MS_MIN

BOUNDS_MS: Final = (250, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 60_000, 300_000)
SAFETY: Final = 2
"""The recommended lease is this many times the longest silence."""
ROUNDED_TO_MS: Final = 500


class Silences:
    """The silences of one link since the process started."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_MS) + 1)
        self.sum_ms = 0.0
        self.longest_ms = 0.0

    def note(self, silent_ms: float) -> None:
        """Record a silence that has ended by itself."""
        # Prometheus buckets include their upper bound (`le`).
        self._counts[bisect_left(BOUNDS_MS, silent_ms)] += 1
        self.sum_ms += silent_ms
        self.longest_ms = max(self.longest_ms, silent_ms)

    def buckets(self) -> list[tuple[float, int]]:
        """Upper bound in seconds (the last one infinite) and the number of silences up to that
        bound.
        """
        bounds = [bound / 1000 for bound in BOUNDS_MS] + [float("inf")]
        return [(bound, sum(self._counts[: at + 1])) for at, bound in enumerate(bounds)]

    @property
    def recommended_lease_ms(self) -> int:
        """The shortest lease (ms) that is well above every silence; 0 if there was none."""
        if not self.longest_ms:
            return 0
        steps = -(-SAFETY * self.longest_ms // ROUNDED_TO_MS)
        return int(min(max(steps * ROUNDED_TO_MS, LEASE_MS_MIN), LEASE_MS_MAX))
