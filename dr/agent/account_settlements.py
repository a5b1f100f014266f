"""Makes the account of a link's last failover final, at the site that became passive. Once its
brokers have no records of their own in their logs, their quarantine holds exactly the lost records
(`dr/sites/core/settlement.py`).

The agent stores the final account at the active site first and at its own site afterwards, so an
agent that was interrupted in between repeats both. Each agent of the site looks, at growing
intervals, until the account is final.
"""

from __future__ import annotations

from dr.agent.epoch_work import EpochWork
from dr.agent.links_store import LinksStore
from dr.agent.own_brokers import OwnBrokers
from dr.agent.site_cache import SiteCache
from dr.sites.channels import Channels
from dr.sites.core.evidence import described_logs
from dr.sites.core.log_columns import PartitionOrders
from dr.sites.core.loss import LossAccount
from dr.sites.core.settlement import account_to_settle, settled
from dr.sites.site_client import SiteClient
from runtime.clock import Clock
from runtime.logs import get_logger
from wire.control.cluster_pb2 import LinkRecord

PAUSE_MAX_MS = 15_000


class AccountSettlements:
    """One in each agent; `look` gets the links that both sites have in one epoch."""

    def __init__(
        self,
        site: str,
        *,
        cache: SiteCache,
        store: LinksStore,
        brokers: OwnBrokers,
        channels: Channels,
        clock: Clock,
    ) -> None:
        self._cache = cache
        self._store = store
        self._brokers = brokers
        self._channels = channels
        self._clock = clock
        self._orders = PartitionOrders()
        self._log = get_logger("dr.account_settlements")
        self._work = EpochWork(site, clock, pause_max_ms=PAUSE_MAX_MS, work=self._settle, report=self._report)

    async def look(self, record: LinkRecord) -> None:
        """Settle the account of the failover to the active site, if the next look is due."""
        await self._work.look(record)

    def _report(self, link: str, error: Exception) -> None:
        self._log.warning("the account of a failover cannot be made final", link=link, error=str(error))

    async def _settle(self, record: LinkRecord) -> bool:
        """True when the account is final."""
        documents = await self._store.accounts.stored(record.name)
        account = account_to_settle({epoch: LossAccount.from_json(one) for epoch, one in documents.items()}, record)
        if account is None:
            return False
        if account.is_final:
            return True
        final = await self._final(account, record)
        if final is None:
            return False
        active = SiteClient(record.active_site, list(record.sites[record.active_site].agents), self._channels)
        await active.record_failover(record.name, epoch=account.epoch, document=final.to_json())
        await self._store.accounts.record(record.name, epoch=account.epoch, document=final.to_json())
        self._log.info(
            "the account of a failover is final",
            link=record.name,
            epoch=account.epoch,
            records=final.found_records,
            bytes=final.found_bytes,
        )
        for difference in final.differences:
            self._log.warning(
                "the quarantine of the old site contradicts the account of a failover", difference=difference
            )
        return True

    async def _final(self, account: LossAccount, record: LinkRecord) -> LossAccount | None:
        answers = await self._brokers.observe(account.link, None, accepts_columns=True)
        if any(answer.reply is None for answer in answers):
            return None
        quarantined = await self._brokers.quarantined(account.link)
        if quarantined is None:
            return None
        replies = [answer.reply for answer in answers if answer.reply is not None]
        positions = described_logs(
            [one for reply in replies for one in reply.partitions],
            [reply.columns for reply in replies if reply.HasField("columns")],
            self._orders,
        )
        return settled(
            account,
            positions,
            quarantined,
            topics=self._cache.topic_names,
            link_epoch=record.epoch,
            now_ms=self._clock.now_ms(),
        )
