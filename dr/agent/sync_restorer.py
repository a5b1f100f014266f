"""Restores a sync policy that a failover suspended, once the other site has everything.

Every agent of the active site checks each second, while a policy is suspended and the peer answers
in the same epoch. The first agent that stores the change wins, and the others find it done.
"""

from __future__ import annotations

import grpc

from dr.agent.account_store import LinkUnknown
from dr.agent.links_store import LinksStore
from dr.agent.own_brokers import OwnBrokers
from dr.sites.channels import problem_of
from dr.sites.core.sync_policies import is_suspended, may_restore, restored
from runtime.clock import Clock
from runtime.logs import get_logger, state_change_logger
from wire.control.cluster_pb2 import LinkRecord


class SyncRestorer:
    """One in each agent; `look` gets the links that both sites have in one epoch."""

    def __init__(self, site: str, store: LinksStore, brokers: OwnBrokers, clock: Clock) -> None:
        self._site = site
        self._store = store
        self._brokers = brokers
        self._clock = clock
        self._log = get_logger("dr.sync_restorer")
        self._state_change = state_change_logger()

    async def look(self, record: LinkRecord) -> None:
        """Restore the policy if that is due."""
        if not is_suspended(record) or record.active_site != self._site:
            return
        try:
            replies = [answer.reply for answer in await self._brokers.describe(record.name)]
        except grpc.aio.AioRpcError as error:
            self._log.warning(
                "own brokers do not report the record that they enforce", link=record.name, error=problem_of(error)
            )
            return
        if not may_restore(record, site=self._site, replies=replies):
            return
        wanted = restored(record, now_ms=self._clock.now_ms())
        try:
            stored = await self._store.adopt(wanted)
        # Compare-and-set: of several agents only one stores the change and logs it.
        except LinkUnknown:
            return  # The link was deleted meanwhile.
        if stored == wanted:
            self._state_change.info(
                "the link's sync policy is in force again",
                link=wanted.name,
                epoch=wanted.epoch,
                revision=wanted.revision,
                sync_policy=wanted.sync_policy,
            )
