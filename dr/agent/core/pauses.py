"""Pauses between the looks of a task of the site agent, which grow with the time that a look takes.
Pure.
"""

from __future__ import annotations

from typing import Final

BUSY_SHARE: Final = 0.02
"""Share of the time that one task may take: a slow link is looked at less often."""


def pause_ms(took_ms: float, *, least_ms: float, most_ms: float) -> float:
    """The pause (ms) until the next look, if the last one took this long."""
    return min(max(least_ms, took_ms / BUSY_SHARE), most_ms)
