"""Lets the links of several standbys follow a site that a failover made active.

`core/following.py` decides from the own links and the answers of other sites. Every agent of a site
acts: each change is a compare-and-set, so of several agents one makes it and the others find it
made.
"""

from __future__ import annotations

from collections.abc import Mapping

from dr.agent.account_store import LinkUnknown
from dr.agent.core.following import Change, Links, SiteAnswer, Step, changes_due
from dr.agent.links_store import LinkConflict, LinksStore
from runtime.clock import Clock
from runtime.logs import get_logger, state_change_logger


class LinkFollowing:
    """One in each agent; the peer watch calls `look` after it has asked the other sites."""

    def __init__(self, site: str, store: LinksStore, clock: Clock) -> None:
        self._site = site
        self._store = store
        self._clock = clock
        self._log = get_logger("dr.link_following")
        self._state_change = state_change_logger()

    async def look(self, links: Links, answers: Mapping[str, SiteAnswer]) -> bool:
        """Make the changes that are due; True if there were any."""
        changes = changes_due(self._site, links, answers, now_ms=self._clock.now_ms())
        for change in changes:
            try:
                if await self._make(change):
                    self._note(change)
            except (LinkUnknown, LinkConflict) as error:
                # An operator or another agent changed the link meanwhile; the next look decides
                # anew.
                self._log.info("link is not changed", link=change.record.name, reason=str(error))
        return bool(changes)

    async def _make(self, change: Change) -> bool:
        """True if this agent made the change, not another one."""
        match change.step:
            case Step.STORE:
                return await self._store.replace(change.record, instead_of=change.instead_of)
            case Step.JOIN:
                return await self._store.join(change.record, beside=change.beside)
            case Step.LEAVE:
                await self._store.delete(change.record.name, epoch=change.record.epoch)
                return True

    def _note(self, change: Change) -> None:
        record = change.record
        self._state_change.info(
            "link left" if change.step is Step.LEAVE else "link follows another site",
            link=record.name,
            epoch=record.epoch,
            active=record.active_site,
            phase=record.phase,
            reason=change.reason,
        )
