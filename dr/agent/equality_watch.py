"""Compares the sites of each link regularly by the digests of their logs, at the active site, and
keeps the time until which they are proven equal.

As with `protection_judge.py`, only the agent of the live broker with the lowest node id compares.
It stores the state beside the link's record after each comparison, so every agent of the site can
report it, and the next comparing agent continues from it. A standby that lags is not different: it
is proven equal until an earlier time (`dr/proof/core/verification.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from kazoo.exceptions import NoNodeError
from msgspec import Struct

from dr.agent.core.pauses import pause_ms
from dr.agent.links_store import LinksStore
from dr.agent.site_cache import DISCONNECTED, SiteCache
from dr.proof.comparison import ComparisonRequest, compare_sites
from dr.proof.core.verification import LinkVerification, VerificationWatch
from runtime.clock import Clock
from runtime.logs import state_change_logger
from runtime.process import OperationalFailure
from runtime.supervision import Supervisor
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.rules.links import blacklist_of, other_site
from wire.znodes.documents import MalformedZnode

INTERVAL_MS: Final = 5_000
INTERVAL_MS_MAX: Final = 600_000
FIRST_AFTER_MS: Final = 5_000
"""Delay (ms) before the first comparison: a broker that has just started is busy with its logs."""


class _Watched(Struct):
    """One link, its state machine, and its last result."""

    watch: VerificationWatch
    state: LinkVerification | None


class EqualityWatch:
    """The task of one agent."""

    def __init__(self, *, site: str, cache: SiteCache, store: LinksStore, own_address: str, clock: Clock) -> None:
        """`own_address` is where this process's agent answers."""
        self._site = site
        self._cache = cache
        self._store = store
        self._own_address = own_address
        self._clock = clock
        self._watched: dict[str, _Watched] = {}
        self._seen: dict[str, int] = {}
        """The epoch of each link at the last look."""
        self._loops = Supervisor()
        self._state_change = state_change_logger()

    def start(self) -> None:
        """Begin."""
        self._loops.start("equality watch", self._run)

    async def stop(self) -> None:
        """End the task."""
        await self._loops.stop()

    def states(self) -> Mapping[str, tuple[LinkVerification, Mapping[tuple[str, int], int]]]:
        """Return for each link that this agent compares the state of its proof, and the offset
        below which each partition was equal at the last comparison.
        """
        return {
            name: (one.state, one.watch.proven_ends)
            for name, one in tuple(self._watched.items())
            if one.state is not None
        }

    async def _run(self) -> None:
        await asyncio.sleep(FIRST_AFTER_MS / 1000)
        while True:
            began_ms = self._clock.monotonic_ms()
            await self.look()
            await asyncio.sleep(self._pause_ms(self._clock.monotonic_ms() - began_ms) / 1000)

    def _pause_ms(self, took_ms: float) -> float:
        """The pause after a look that took this long; shorter while sites differ: naming many
        differences takes long, and they are shown until the next look.
        """
        is_different = any(one.state is not None and one.state.differences for one in self._watched.values())
        return pause_ms(took_ms, least_ms=INTERVAL_MS, most_ms=INTERVAL_MS_MAX, is_change_awaited=is_different)

    async def look(self) -> None:
        """Compare, one after the other, the links for which this site is active, if this agent is
        the comparing one, unless the link's epoch has changed since the last look: a comparison
        asks for digests of every partition at both sites, and clients that move need the brokers.
        """
        facts = self._cache.facts
        links = facts.links if facts.has_lowest_node_id(self._own_address) else {}
        ours = {
            name: record
            for name, record in links.items()
            if record.active_site == self._site and record.phase == LinkPhase.MIRRORING
        }
        before, self._seen = self._seen, {name: record.epoch for name, record in links.items()}
        # When a link comes back to this agent, its state is read from ZooKeeper: another agent may
        # have continued the proof.
        self._watched = {name: one for name, one in self._watched.items() if name in ours}
        for name, record in ours.items():
            # a link that this agent did not know may not have moved at all
            if before.get(name, record.epoch) == record.epoch:
                await self._compare(record)

    async def _compare(self, record: LinkRecord) -> None:
        try:
            watched = self._watched.get(record.name) or await self._begin(record.name)
            standby = other_site(record, self._site)
            request = ComparisonRequest(
                source_site=self._site,
                target_site=standby,
                source_bootstrap=record.sites[self._site].bootstrap_servers,
                target_bootstrap=record.sites[standby].bootstrap_servers,
                topic_whitelist=tuple(record.topic_whitelist),
                topic_blacklist=blacklist_of(record),
                settle_timeout_ms=0,
                is_lag_a_difference=False,
            )
            state = watched.watch.observe(await compare_sites(request, self._clock), epoch=record.epoch)
            if (watched.state.differences if watched.state else 0) != state.differences:
                self._log_change(record, state)
            watched.state = state
            await self._store.store_verification(record.name, state.as_message())
        except (*DISCONNECTED, NoNodeError, MalformedZnode, OperationalFailure, ValueError) as error:
            self._state_change.debug("link is not compared", link=record.name, reason=str(error))

    async def _begin(self, name: str) -> _Watched:
        stored = await self._store.verification(name)
        known = None if stored is None else LinkVerification.of_message(stored)
        watched = _Watched(VerificationWatch(known), known)
        self._watched[name] = watched
        return watched

    def _log_change(self, record: LinkRecord, state: LinkVerification) -> None:
        if state.differences:
            self._state_change.error(
                "the sites of a link differ", link=record.name, differences=state.differences, first=state.reason
            )
        else:
            self._state_change.info("the sites of a link are equal again", link=record.name)
