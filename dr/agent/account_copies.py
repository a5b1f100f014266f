"""Copies the accounts of a link's failovers from the active site to the passive one, so that both
sites keep them.

When its peer is lost, a site reads in these copies at which offsets the peer's own history began
(`dr/sites/core/divergence.py`). The active site stores the account shortly after the epoch, so each
agent of the passive site asks at growing intervals until the account is there. The epoch that ends
a fence without a promotion has no account.
"""

from __future__ import annotations

from msgspec import Struct

from dr.agent.links_store import LinksStore, LinkUnknown
from dr.sites.channels import Channels
from dr.sites.core.fencing import FIRST_EPOCH
from dr.sites.core.loss import LossAccount
from dr.sites.site_client import SiteClient
from runtime.clock import Clock
from runtime.logs import get_logger
from runtime.process import OperationalFailure
from wire.control.cluster_pb2 import LinkRecord

PAUSE_MIN_MS = 1_000
PAUSE_MAX_MS = 60_000


class _Search(Struct):
    """A search for the account of one epoch of a link."""

    epoch: int
    pause_ms: float = PAUSE_MIN_MS
    next_at_ms: float = 0.0
    is_found: bool = False


class AccountCopies:
    """One in each agent; `look` gets the links that both sites have in one epoch."""

    def __init__(self, site: str, store: LinksStore, channels: Channels, clock: Clock) -> None:
        self._site = site
        self._store = store
        self._channels = channels
        self._clock = clock
        self._searches: dict[str, _Search] = {}
        self._log = get_logger("dr.account_copies")

    async def look(self, record: LinkRecord) -> None:
        """Copy the accounts that the active site has and this one lacks, if the next look is
        due.
        """
        if record.active_site == self._site or record.epoch == FIRST_EPOCH:
            self._searches.pop(record.name, None)
            return
        search = self._searches.get(record.name)
        if search is None or search.epoch != record.epoch:
            search = self._searches[record.name] = _Search(record.epoch)
        now_ms = self._clock.monotonic_ms()
        if search.is_found or now_ms < search.next_at_ms:
            return
        search.next_at_ms, search.pause_ms = now_ms + search.pause_ms, min(2 * search.pause_ms, PAUSE_MAX_MS)
        try:
            search.is_found = await self._copy(record)
        except LinkUnknown:
            return  # The link was deleted since the caller read it.
        except (OperationalFailure, ValueError, TypeError) as error:
            self._log.warning("accounts of failovers cannot be copied", link=record.name, error=str(error))

    async def _copy(self, record: LinkRecord) -> bool:
        """True if this site has the account of the record's epoch."""
        here = await self._store.failovers(record.name)
        if record.epoch in here:
            return True
        active = SiteClient(record.active_site, list(record.sites[record.active_site].agents), self._channels)
        theirs = {LossAccount.from_json(text).epoch: text for text in await active.failovers(record.name)}
        for epoch, document in theirs.items():
            if epoch not in here:
                await self._store.record_failover(record.name, epoch=epoch, document=document)
        return record.epoch in theirs
