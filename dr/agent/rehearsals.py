"""The last rehearsal of each link on clones of this site's logs, read regularly from ZooKeeper for
descriptions of links and for metrics.

A rehearsal reports its result to one agent; the others read it within `INTERVAL_S`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from dr.agent.links_store import LinksStore
from dr.agent.site_cache import DISCONNECTED, SiteCache
from runtime.clock import Clock
from runtime.logs import get_logger
from runtime.supervision import Supervisor
from wire.control.site_pb2 import LinkRehearsal
from wire.znodes.documents import MalformedZnode

INTERVAL_S: Final = 30.0


class Rehearsals:
    """The task of one agent."""

    def __init__(self, *, cache: SiteCache, store: LinksStore, clock: Clock) -> None:
        self._cache = cache
        self._store = store
        self._clock = clock
        self._last: dict[str, LinkRehearsal] = {}
        self._loops = Supervisor()
        self._log = get_logger("dr.rehearsals")

    def start(self) -> None:
        """Begin."""
        self._loops.start("rehearsals", self._run)

    async def stop(self) -> None:
        """End the task."""
        await self._loops.stop()

    def last(self, link: str) -> LinkRehearsal | None:
        """The last rehearsal that this agent knows; None before the first."""
        return self._last.get(link)

    async def keep(self, link: str, rehearsal: LinkRehearsal) -> None:
        """Store the result of a rehearsal. Raises LinkUnknown."""
        await self._store.store_rehearsal(link, rehearsal)
        self._last[link] = rehearsal

    def states(self) -> Mapping[str, tuple[LinkRehearsal, float]]:
        """Return for each link the last rehearsal, and the time in ms since it ended."""
        now_ms = self._clock.now_ms()
        return {link: (found, max(0, now_ms - found.ended_at_ms)) for link, found in tuple(self._last.items())}

    async def _run(self) -> None:
        while True:
            links = tuple(self._cache.facts.links)
            for gone in self._last.keys() - set(links):
                del self._last[gone]
            for link in links:
                try:
                    found = await self._store.rehearsal(link)
                except DISCONNECTED:
                    break
                except MalformedZnode as error:
                    self._log.warning("the last rehearsal cannot be read", link=link, error=str(error))
                    continue
                if found is not None:
                    self._last[link] = found
            await asyncio.sleep(INTERVAL_S)
