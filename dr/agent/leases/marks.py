"""Marks at the arbiter: a broker of a sync link is marked while it acknowledges records that the
standby may lack. While any broker is marked, the standby does not fail over by itself.
"""

from __future__ import annotations

import grpc

from dr.agent.arbiter import ArbiterChanged
from dr.agent.leases.kept_lease import BROKER_TIMEOUT_S, KeptLease, LeaseDoors
from dr.sites.core.sync_policies import is_suspended
from runtime.logs import state_change_logger
from wire.control.broker_pb2 import ConfirmLinkReply, ConfirmLinkRequest, SyncMark
from wire.control.cluster_pb2 import LinkRecord
from wire.control.site_pb2 import ArbiterRecord
from wire.rules.links import SyncPolicy, sync_policy
from wire.znodes.arbiter_znodes import Holder


class SyncMarks:
    """The marks of the own broker."""

    def __init__(self, doors: LeaseDoors) -> None:
        self._doors = doors
        self._state_change = state_change_logger()

    async def begin(self, kept: KeptLease, record: LinkRecord, holder: Holder) -> None:
        """Mark a newly registered broker before its first permit if its writers do not wait for the
        standby: the link's sync policy is suspended, or the arbiter has lost the broker's mark with
        its data.
        """
        if not kept.is_out_of_sync and (is_suspended(record) or await self._is_marked_here(record)):
            await self._mark(kept, record, holder, version=kept.holder_version, is_out_of_sync=True)

    async def _is_marked_here(self, record: LinkRecord) -> bool:
        if sync_policy(record) is SyncPolicy.NONE:
            return False
        asked = ConfirmLinkRequest(link=record.name, epoch=record.epoch)
        reply: ConfirmLinkReply = await self._doors.broker.ConfirmLink(asked, timeout=BROKER_TIMEOUT_S)
        return reply.wants_mark

    async def follow(self, kept: KeptLease, record: LinkRecord, holder: Holder) -> None:
        """Mark the broker at the arbiter before it acknowledges records that the standby lacks;
        remove the mark when the standby has everything again.
        """
        reply, broker = kept.reply, self._doors.broker
        # The mark must be at the arbiter before the broker may acknowledge without the standby.
        if reply.wants_mark and not kept.is_out_of_sync:
            await self._mark(kept, record, holder, version=kept.holder_version, is_out_of_sync=True)
            await broker.ConfirmLink(
                ConfirmLinkRequest(link=record.name, epoch=record.epoch, mark=SyncMark.OUT_OF_SYNC),
                timeout=BROKER_TIMEOUT_S,
            )
        elif (
            kept.is_out_of_sync
            and not (reply.is_standby_behind or is_suspended(record))
            # Leaders that have moved to other brokers took along what the standby lacks.
            and not await self._is_any_behind(record)
        ):
            await self._remove_mark(kept, record, holder)

    async def settle_loss(self, kept: KeptLease, record: LinkRecord) -> None:
        """After a loss of the arbiter's data, store there that the standby has everything: until
        then a mark may be missing, of a broker that is away, too.
        """
        doors, held = self._doors, kept.arbiter
        if (
            held is None
            or not held.record.has_lost_former
            or not doors.cache.facts.has_lowest_node_id(doors.broker_address)
        ):
            return
        if not kept.reply.is_confirmed or is_suspended(record):
            return
        # A broker that is away may have acknowledged what the standby lacks: only the next leaders
        # of its partitions know.
        if not doors.cache.facts.has_leaders(record):
            return
        if await self._is_any_behind(record):
            return
        settled = ArbiterRecord()
        settled.CopyFrom(held.record)
        settled.has_lost_former = False
        kept.arbiter = await doors.arbiter.store(settled, version=held.version, timeout_ms=record.lease_ms)

    async def _is_any_behind(self, record: LinkRecord) -> bool:
        """True if the standby lacks records of a broker of the site, or may lack them: a broker
        that does not know all leaders may not know what its new partitions lack.
        """
        doors, facts = self._doors, self._doors.cache.facts
        leaders_digest = facts.leaders_digest(record)
        asked = ConfirmLinkRequest(link=record.name, epoch=record.epoch, asks_leaders=True)
        for registration, _ in facts.brokers.values():
            broker = doors.channels.broker_control(registration.grpc_address)
            try:
                reply = await broker.ConfirmLink(asked, timeout=BROKER_TIMEOUT_S)
            except grpc.aio.AioRpcError:
                return True
            if reply.is_standby_behind or reply.leaders_digest != leaders_digest:
                return True
        return False

    async def _remove_mark(self, kept: KeptLease, record: LinkRecord, holder: Holder) -> None:
        # Turns overlap: no permit may name the mark from here on, and another turn that marks the
        # broker again changes the version.
        version, kept.is_out_of_sync, is_kept = kept.holder_version, False, True
        try:
            asked = ConfirmLinkRequest(link=record.name, epoch=record.epoch, mark=SyncMark.IN_SYNC)
            answer = await self._doors.broker.ConfirmLink(asked, timeout=BROKER_TIMEOUT_S)
            # The broker is asked again after it has begun to wait for the standby: only then may
            # the mark be removed. What it acknowledged until then may have gone to a new leader.
            is_kept = answer.is_standby_behind or await self._is_any_behind(record)
        finally:
            kept.is_out_of_sync = is_kept
        if not is_kept:
            await self._mark(kept, record, holder, version=version, is_out_of_sync=False)

    async def _mark(
        self, kept: KeptLease, record: LinkRecord, holder: Holder, *, version: int | None, is_out_of_sync: bool
    ) -> None:
        if version is None:
            # Turns overlap: a concurrent one has found that the record or the holder has changed.
            raise ArbiterChanged(f"{holder.node} registers again for link {record.name}")
        # Without an answer it is unknown whether the mark is there: the next turn reads it.
        kept.holder_version = None
        kept.holder_version = await self._doors.arbiter.mark_holder(
            record.name,
            holder,
            is_out_of_sync=is_out_of_sync,
            version=version,
            timeout_ms=record.lease_ms,
        )
        kept.is_out_of_sync = is_out_of_sync
        state = "out of sync" if is_out_of_sync else "in sync"
        self._state_change.warning("broker marked at the arbiter", link=record.name, epoch=record.epoch, state=state)
