"""Calls of the site agents that `antipode links` makes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

from cli.shared.failures import failures_as_messages
from cli.shared.sites import Agents, site_clients

if TYPE_CHECKING:
    from dr.sites.site_client import SiteClient


Answer = TypeVar("Answer")


def with_clients(known: Agents, ask: Callable[[dict[str, SiteClient]], Awaitable[Answer]]) -> Answer:
    """The answer of `ask`, which gets a client of each site by its name. A failure ends the command
    with one line.
    """

    async def run() -> Answer:
        async with site_clients(known) as clients:
            return await ask(clients)

    with failures_as_messages():
        return asyncio.run(run())
