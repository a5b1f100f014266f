"""Records how long every view from the standby found a link's active site silent, up to its next
answer: a histogram, and the shortest lease that exceeds all silences. Pure.

A lease that is shorter than an ordinary silence fails over without need; one that is much longer
keeps writers waiting without need. Silences shorter than the interval between two looks are not
seen.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

from wire.rules.links import LEASE_MS_MAX, LEASE_MS_MIN

BOUNDS_MS: Final = (250, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 60_000, 300_000)
SAFETY: Final = 2
"""A lease of so many times the longest silence is recommended."""
ROUNDED_TO_MS: Final = 500


class Silences:
    """The silences of one link since the process started."""

    def __init__(self) -> None:
        self._counts = [0] * (len(BOUNDS_MS) + 1)
        self.sum_ms = 0.0
        self.longest_ms = 0.0

    def note(self, silent_ms: float) -> None:
        """A silence has ended by itself."""
        # a value at a bound is in the bucket of that bound, as Prometheus counts (le)
        self._counts[bisect_left(BOUNDS_MS, silent_ms)] += 1
        self.sum_ms += silent_ms
        self.longest_ms = max(self.longest_ms, silent_ms)

    def buckets(self) -> list[tuple[float, int]]:
        """Upper bound in seconds (the last one infinite) and how many silences were no longer."""
        bounds = [bound / 1000 for bound in BOUNDS_MS] + [float("inf")]
        return [(bound, sum(self._counts[: at + 1])) for at, bound in enumerate(bounds)]

    @property
    def recommended_lease_ms(self) -> int:
        """The shortest lease that is well above every silence; 0 while there was none."""
        if not self.longest_ms:
            return 0
        steps = -(-SAFETY * self.longest_ms // ROUNDED_TO_MS)
        return int(min(max(steps * ROUNDED_TO_MS, LEASE_MS_MIN), LEASE_MS_MAX))
