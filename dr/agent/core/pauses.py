"""Pauses between the looks of a task of the site agent, which grow with the time that a look takes.
Pure.
"""

from __future__ import annotations

from typing import Final

BUSY_SHARE: Final = 0.02
"""Share of the time that one task may take: a slow link is looked at less often."""


AWAITED_SHARE: Final = 0.2
"""The same share while a change is awaited: a look on a busy machine takes a fifth of a second, and
by `BUSY_SHARE` a standby that is complete again would be noticed 10 s later.
"""


def pause_ms(took_ms: float, *, least_ms: float, most_ms: float, is_change_awaited: bool = False) -> float:
    """The pause (ms) until the next look, if the last one took this long."""
    share = AWAITED_SHARE if is_change_awaited else BUSY_SHARE
    return min(max(least_ms, took_ms / share), most_ms)
