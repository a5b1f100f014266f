"""A bound on the bytes that compaction reads and writes in a second."""

from __future__ import annotations

import time

_PAUSE_S_MIN = 0.01  # shorter sleeps cost more than they pace


class Pace:
    """Keeps reading and writing under a rate by sleeping: it runs in a thread or process of its
    own.
    """

    def __init__(self, bytes_per_second_max: float) -> None:
        self._rate = bytes_per_second_max
        self._spent_bytes = 0
        self._began_s = time.monotonic()

    def spend(self, size_bytes: int) -> None:
        """Record that this many bytes were read or written."""
        if self._rate <= 0:
            return
        self._spent_bytes += size_bytes
        ahead_s = self._spent_bytes / self._rate - (time.monotonic() - self._began_s)
        if ahead_s > _PAUSE_S_MIN:
            time.sleep(ahead_s)
