"""Pauses between the rounds of a task of the mirror, which a change of the link's role ends: a
planned move waits until what operators changed before the fence is at the target.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import Any, Final

from mirror.link.core.link_roles import LinkRole
from mirror.link.known_link import KnownLink
from wire.client.client_errors import KafkaClientError

DRAINING_INTERVAL_MS: Final = 100
"""The interval while the source is fenced."""


async def pause_between_rounds(link: KnownLink, interval_ms: float) -> None:
    """Wait for the next round."""
    pause_ms = min(interval_ms, DRAINING_INTERVAL_MS) if link.view.role is LinkRole.DRAINING else interval_ms
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(pause_ms / 1000):
            await link.role_changed()


async def pause_until(event: Coroutine[Any, Any, None], link: KnownLink, interval_ms: float) -> None:
    """Wait for the next round, or for an event that has a timeout of its own. If the event cannot
    be awaited (KafkaClientError), the pause lasts for the whole interval.
    """
    loop = asyncio.get_running_loop()
    awaited, turned = loop.create_task(event), loop.create_task(link.role_changed())
    try:
        await asyncio.wait((awaited, turned), return_when=asyncio.FIRST_COMPLETED)
        if not awaited.done():
            return
        try:
            await awaited
        except KafkaClientError:
            await pause_between_rounds(link, interval_ms)
    finally:
        awaited.cancel()
        turned.cancel()
