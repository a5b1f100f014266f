"""The deadline of questions to another site, from the time that its answers take. Pure.

The estimate is that of TCP (RFC 6298): the smoothed time and its variation. The time of an answer
contains the round trip and the work of the agent. Only answers of an agent that is there make the
deadline longer, so a site that is lost is noticed as soon as before.
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

DEADLINE_MS_MIN: Final = 1_000.0
DEADLINE_MS_MAX: Final = 5_000.0
"""A longer deadline would delay what the agent does for other peers."""

_SMOOTHING: Final = 1 / 8
_VARIATION_SMOOTHING: Final = 1 / 4
_VARIATIONS: Final = 4


class AnswerTimes(Struct, frozen=True):
    """What is known of the times (ms) of one site's answers."""

    smoothed_ms: float = 0.0
    variation_ms: float = 0.0

    @property
    def deadline_ms(self) -> float:
        """How long an answer is awaited."""
        return min(max(self.smoothed_ms + _VARIATIONS * self.variation_ms, DEADLINE_MS_MIN), DEADLINE_MS_MAX)

    def answered(self, took_ms: float) -> AnswerTimes:
        """An answer came after this time."""
        off_ms = abs(took_ms - self.smoothed_ms)
        return replace(
            self,
            smoothed_ms=self.smoothed_ms + _SMOOTHING * (took_ms - self.smoothed_ms),
            variation_ms=self.variation_ms + _VARIATION_SMOOTHING * (off_ms - self.variation_ms),
        )

    def late(self) -> AnswerTimes:
        """The deadline passed, and the agent answered a small question in the meantime: the next
        deadline is twice as long.
        """
        return AnswerTimes(smoothed_ms=min(2 * self.deadline_ms, DEADLINE_MS_MAX))
