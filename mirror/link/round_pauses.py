"""Pauses between the rounds of a task of the mirror, which a change of the link's role ends: a
planned move waits until what operators changed before the fence is at the target.
"""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from mirror.link.core.link_roles import LinkRole
from mirror.link.known_link import KnownLink

DRAINING_INTERVAL_MS: Final = 100
"""The interval while the source is fenced."""


async def pause_between_rounds(link: KnownLink, interval_ms: float) -> None:
    """Wait for the next round."""
    pause_ms = min(interval_ms, DRAINING_INTERVAL_MS) if link.view.role is LinkRole.DRAINING else interval_ms
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(pause_ms / 1000):
            await link.role_changed()
