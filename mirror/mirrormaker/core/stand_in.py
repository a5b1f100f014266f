"""Decides whether a link writes the heartbeats of the opposite direction at its source.

MirrorMaker 2 has a heartbeat connector for each direction, which writes at its own target, whether
records are mirrored in that direction or not. A link of ours is one direction. Its source gets
heartbeats from the opposite link (ours or MirrorMaker's own), and from this link if the opposite
one does not exist.
"""

from __future__ import annotations

from typing import Final

SILENT_INTERVALS: Final = 3
"""Number of intervals without a heartbeat of another writer, after which no other writer is
assumed.
"""


class StandIn:
    """Times are monotonic ms."""

    def __init__(self, *, interval_ms: int, now_ms: float) -> None:
        self._silence_ms = SILENT_INTERVALS * interval_ms
        # A heartbeat of a writer that begins at the same moment arrives within an interval.
        self._received_at_ms = now_ms - self._silence_ms + interval_ms

    def note_heartbeat(self, now_ms: float) -> None:
        """Another writer's heartbeat arrived."""
        self._received_at_ms = now_ms

    def may_write(self, now_ms: float) -> bool:
        """Return True if the other writer's heartbeats have been missing for long enough."""
        return now_ms - self._received_at_ms >= self._silence_ms
