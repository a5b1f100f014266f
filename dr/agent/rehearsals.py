"""The last rehearsal of each link on clones of this site's logs, read regularly from ZooKeeper for
descriptions of links and for metrics.

A rehearsal reports its result to one agent; the others read it within `INTERVAL_MS`. A rehearsal
belongs to the link that was there when it was read: a link that is deleted and made again has none.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from dr.agent.links_store import LinksStore
from dr.agent.site_cache import DISCONNECTED, SiteCache
from runtime.clock import Clock
from runtime.logs import get_logger
from runtime.supervision import Supervisor
from wire.control.cluster_pb2 import LinkRecord
from wire.control.site_pb2 import LinkRehearsal
from wire.znodes.documents import MalformedZnode

INTERVAL_MS: Final = 30_000.0


class _Kept(Struct, frozen=True):
    """A rehearsal, and when its link was made (Unix ms)."""

    rehearsal: LinkRehearsal
    link_made_at_ms: int


class Rehearsals:
    """The task of one agent."""

    def __init__(self, *, cache: SiteCache, store: LinksStore, clock: Clock) -> None:
        self._cache = cache
        self._store = store
        self._clock = clock
        self._last: dict[str, _Kept] = {}
        self._wake = asyncio.Event()
        self._loops = Supervisor()
        self._log = get_logger("dr.rehearsals")

    def start(self) -> None:
        """Begin. A change of the links ends the rehearsals of those that are gone at once."""
        self._cache.on_change(self._wake.set)
        self._loops.start("rehearsals", self._run)

    async def stop(self) -> None:
        """End the task."""
        await self._loops.stop()

    def last(self, link: LinkRecord) -> LinkRehearsal | None:
        """The last rehearsal that this agent knows; None before the first."""
        kept = self._last.get(link.name)
        return kept.rehearsal if kept is not None and kept.link_made_at_ms == link.made_at_ms else None

    async def keep(self, link: str, rehearsal: LinkRehearsal) -> None:
        """Store the result of a rehearsal. Raises LinkUnknown."""
        record = await self._store.store_rehearsal(link, rehearsal)
        self._last[link] = _Kept(rehearsal, record.made_at_ms)

    def states(self) -> Mapping[str, tuple[LinkRehearsal, float]]:
        """Return for each link the last rehearsal, and the time in ms since it ended."""
        now_ms = self._clock.now_ms()
        return {
            link: (kept.rehearsal, max(0, now_ms - kept.rehearsal.ended_at_ms))
            for link, kept in tuple(self._last.items())
        }

    async def _run(self) -> None:
        read_at_ms = self._clock.monotonic_ms()
        while True:
            self._wake.clear()
            self._forget_former()
            left_ms = read_at_ms - self._clock.monotonic_ms()
            if left_ms <= 0:
                await self._read()
                read_at_ms = self._clock.monotonic_ms() + INTERVAL_MS
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_ms / 1000):
                    await self._wake.wait()

    def _forget_former(self) -> None:
        links = self._cache.facts.links
        for name, kept in tuple(self._last.items()):
            if name not in links or links[name].made_at_ms != kept.link_made_at_ms:
                del self._last[name]

    async def _read(self) -> None:
        for link in tuple(self._cache.facts.links.values()):
            try:
                found = await self._store.rehearsal(link.name)
            except DISCONNECTED:
                return
            except MalformedZnode as error:
                self._log.warning("the last rehearsal cannot be read", link=link.name, error=str(error))
                continue
            if found is not None:
                self._last[link.name] = _Kept(found, link.made_at_ms)
