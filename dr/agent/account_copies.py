"""Copies the accounts of a link's failovers from the active site to the passive one, so that both
sites keep them.

When its peer is lost, a site reads in these copies at which offsets the peer's own history began
(`dr/sites/core/divergence.py`). The active site stores the account shortly after the epoch, so each
agent of the passive site asks at growing intervals until the account is there. The epoch that ends
a fence without a promotion has no account.
"""

from __future__ import annotations

from dr.agent.epoch_work import EpochWork
from dr.agent.links_store import LinksStore
from dr.sites.channels import Channels
from dr.sites.core.loss import LossAccount
from dr.sites.site_client import SiteClient
from runtime.clock import Clock
from runtime.logs import get_logger
from wire.control.cluster_pb2 import LinkRecord

PAUSE_MAX_MS = 60_000


class AccountCopies:
    """One in each agent; `look` gets the links that both sites have in one epoch."""

    def __init__(self, site: str, store: LinksStore, channels: Channels, clock: Clock) -> None:
        self._store = store
        self._channels = channels
        self._log = get_logger("dr.account_copies")
        self._work = EpochWork(site, clock, pause_max_ms=PAUSE_MAX_MS, work=self._copy, report=self._report)

    async def look(self, record: LinkRecord) -> None:
        """Copy the accounts that the active site has and this one lacks, if the next look is
        due.
        """
        await self._work.look(record)

    def _report(self, link: str, error: Exception) -> None:
        self._log.warning("accounts of failovers cannot be copied", link=link, error=str(error))

    async def _copy(self, record: LinkRecord) -> bool:
        """True if this site has the account of the record's epoch."""
        here = await self._store.accounts.stored(record.name)
        if record.epoch in here:
            return True
        active = SiteClient(record.active_site, list(record.sites[record.active_site].agents), self._channels)
        theirs = {LossAccount.from_json(text).epoch: text for text in await active.failovers(record.name)}
        for epoch, document in theirs.items():
            if epoch not in here:
                await self._store.accounts.record(record.name, epoch=epoch, document=document)
        return record.epoch in theirs
