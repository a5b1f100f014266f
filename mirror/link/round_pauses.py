"""Pauses between the rounds of a task of the mirror, which a change of the link's role ends: a
planned move waits until what operators changed before the fence is at the target.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from mirror.link.core.link_roles import LinkRole
from mirror.link.link_watch import LinkView

DRAINING_INTERVAL_MS: Final = 100
"""The interval while the source is fenced."""
ROLE_CHECK_MS: Final = 50
"""How often a pause looks whether the link's role has changed."""


async def pause_between_rounds(link: Callable[[], LinkView], interval_ms: float) -> None:
    """Wait for the next round."""
    role, left_ms = link().role, interval_ms
    if role is LinkRole.DRAINING:
        left_ms = min(left_ms, DRAINING_INTERVAL_MS)
    while left_ms > 0 and link().role is role:
        wait_ms = min(left_ms, ROLE_CHECK_MS)
        await asyncio.sleep(wait_ms / 1000)
        left_ms -= wait_ms
