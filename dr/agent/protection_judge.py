"""Judges continuously, at the active site, whether each link's standby protects this site.

One agent of the site judges: the one of the live broker with the lowest node id. It asks both sites
(`dr/sites/observation.py`) and stores the verdict beside the link's record, so that every agent of
the site can report it and the next judge continues from it. The verdict is stored when it changes,
and repeatedly before it is too old.
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
from dr.sites.channels import Channels
from dr.sites.core.link_protection import LinkProtection, ProtectionWatch
from dr.sites.observation import LinkObserver
from dr.sites.site_client import SiteClient
from runtime.clock import Clock
from runtime.logs import state_change_logger
from runtime.process import OperationalFailure
from runtime.supervision import Supervisor
from wire.control import site_pb2 as site
from wire.control.cluster_pb2 import LinkRecord
from wire.rules.links import other_site
from wire.znodes.documents import MalformedZnode

INTERVAL_MS: Final = 2_000
INTERVAL_MS_MAX: Final = 10_000
STORED_AGAIN_MS: Final = 20_000
"""The age (ms) at which an unchanged verdict is stored again."""


class _Judged(Struct):
    """One link: its machine, how both sites are asked, the verdict as last stored, and the time of
    the last look.
    """

    watch: ProtectionWatch
    stored: LinkProtection | None
    stored_at_ms: float
    judged_at_ms: float
    verdict: LinkProtection | None = None
    observer: LinkObserver | None = None
    asked: tuple[str, tuple[str, ...]] = ("", ())
    """The standby that `observer` asks, and its agents."""


class ProtectionJudge:
    """The task of one agent."""

    def __init__(
        self,
        *,
        site: str,
        cache: SiteCache,
        store: LinksStore,
        channels: Channels,
        own_address: str,
        clock: Clock,
    ) -> None:
        """`own_address` is where this process's agent answers."""
        self._site = site
        self._cache = cache
        self._store = store
        self._channels = channels
        self._own_address = own_address
        self._clock = clock
        self._judged: dict[str, _Judged] = {}
        self._seen: dict[str, tuple[int, int]] = {}
        """The epoch and the phase of each link at the last look."""
        self._loops = Supervisor()
        self._state_change = state_change_logger()

    def start(self) -> None:
        """Begin."""
        self._loops.start("protection judge", self._run)

    async def stop(self) -> None:
        """End the task."""
        await self._loops.stop()

    def verdicts(self) -> Mapping[str, tuple[bool, float]]:
        """Return for each link that this agent judges whether it is protected, and the verdict's
        age in ms.
        """
        now_ms = self._clock.monotonic_ms()
        return {
            name: (one.verdict.is_protected, now_ms - one.judged_at_ms)
            for name, one in tuple(self._judged.items())
            if one.verdict is not None
        }

    async def _run(self) -> None:
        while True:
            began_ms = self._clock.monotonic_ms()
            await self.look()
            took_ms = self._clock.monotonic_ms() - began_ms
            await asyncio.sleep(self._pause_ms(took_ms) / 1000)

    def _pause_ms(self, took_ms: float) -> float:
        """The pause after a look that took this long; shorter while a link is not protected."""
        is_unprotected = any(one.verdict is None or not one.verdict.is_protected for one in self._judged.values())
        return pause_ms(took_ms, least_ms=INTERVAL_MS, most_ms=INTERVAL_MS_MAX, is_change_awaited=is_unprotected)

    async def look(self) -> None:
        """Judge each link for which this site is active, if this agent is the judging one, unless
        its epoch or phase has changed since the last look: a look describes every partition at both
        sites, and clients that move need the brokers.
        """
        facts = self._cache.facts
        # Only one agent of a site judges: two would alternately store verdicts of different
        # moments.
        links = facts.links if facts.has_lowest_node_id(self._own_address) else {}
        ours = {name: record for name, record in links.items() if record.active_site == self._site}
        self._judged = {name: one for name, one in self._judged.items() if name in ours}
        before, self._seen = self._seen, {name: (record.epoch, record.phase) for name, record in links.items()}
        # a link that this agent did not know may not have moved at all
        moved = {name for name, seen in self._seen.items() if before.get(name, seen) != seen}
        await asyncio.gather(*(self._judge(record) for name, record in ours.items() if name not in moved))

    async def _judge(self, record: LinkRecord) -> None:
        try:
            # The judge continues from the stored verdict, so that `since` survives a restart.
            judged = self._judged.get(record.name) or await self._begin(record.name)
            # A standby that has lost the link protects nothing.
            evidence = await self._observer(record, judged).evidence(may_target_refuse=True)
            verdict = judged.watch.observe(evidence, now_ms=self._clock.now_ms())
            judged.verdict, judged.judged_at_ms = verdict, self._clock.monotonic_ms()
            await self._keep(record.name, judged, verdict)
        except (*DISCONNECTED, NoNodeError, MalformedZnode, OperationalFailure, ValueError) as error:
            self._state_change.debug("link is not judged", link=record.name, reason=str(error))

    async def _begin(self, name: str) -> _Judged:
        stored = await self._store.protection(name)
        known = (
            None
            if stored is None
            else LinkProtection(epoch=stored.epoch, since_ms=stored.since_ms, reason=stored.reason)
        )
        # Minus infinity makes the first look store the verdict, so that its age shows that a judge
        # is alive.
        judged = _Judged(ProtectionWatch(known), known, float("-inf"), 0.0)
        self._judged[name] = judged
        return judged

    def _observer(self, record: LinkRecord, judged: _Judged) -> LinkObserver:
        """The observer of the last look, because it knows what the sites need not send again: at
        10,000 partitions their views are megabytes. A new one if the sites have changed places.
        """
        standby = other_site(record, self._site)
        asked = standby, tuple(record.sites[standby].agents)
        if judged.observer is None or judged.asked != asked:
            judged.asked = asked
            judged.observer = LinkObserver(
                record.name,
                target=SiteClient(standby, asked[1], self._channels),
                source=SiteClient(self._site, [self._own_address], self._channels),
                clock=self._clock,
                reuses_logs=True,
            )
        return judged.observer

    async def _keep(self, name: str, judged: _Judged, verdict: LinkProtection) -> None:
        now_ms = self._clock.monotonic_ms()
        has_changed = judged.stored is None or judged.stored != verdict
        if not has_changed and now_ms - judged.stored_at_ms < STORED_AGAIN_MS:
            return
        document = site.LinkProtection(
            epoch=verdict.epoch, since_ms=verdict.since_ms, reason=verdict.reason, judged_at_ms=self._clock.now_ms()
        )
        await self._store.store_protection(name, document)
        # The log depends on the stored verdict: another judge may already have logged the change.
        if judged.stored is None or judged.stored.is_protected != verdict.is_protected:
            self._log_change(name, verdict)
        judged.stored, judged.stored_at_ms = verdict, now_ms

    def _log_change(self, name: str, verdict: LinkProtection) -> None:
        if verdict.is_protected:
            self._state_change.info("link is protected", link=name, epoch=verdict.epoch)
        else:
            self._state_change.warning("link is not protected", link=name, epoch=verdict.epoch, reason=verdict.reason)
