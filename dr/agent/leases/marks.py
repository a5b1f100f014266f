"""Marks at the arbiter: a broker of a sync link is marked while it acknowledges records that the
standby may lack. While any broker is marked, the standby does not fail over by itself.
"""

from __future__ import annotations

from dr.agent.arbiter import ArbiterChanged
from dr.agent.leases.kept_lease import BROKER_TIMEOUT_S, KeptLease, LeaseDoors
from dr.sites.core.sync_policies import is_suspended
from runtime.logs import state_change_logger
from wire.control.broker_pb2 import ConfirmLinkRequest, SyncMark
from wire.control.cluster_pb2 import LinkRecord
from wire.znodes.arbiter_znodes import Holder


class SyncMarks:
    """The marks of the own broker."""

    def __init__(self, doors: LeaseDoors) -> None:
        self._doors = doors
        self._state_change = state_change_logger()

    async def begin(self, kept: KeptLease, record: LinkRecord, holder: Holder) -> None:
        """Mark a newly registered broker if the link's sync policy is suspended: its writers do not
        wait for the lost site.
        """
        if is_suspended(record) and not kept.is_out_of_sync:
            await self._mark(kept, record, holder, is_out_of_sync=True)

    async def follow(self, kept: KeptLease, record: LinkRecord, holder: Holder) -> None:
        """Mark the broker at the arbiter before it acknowledges records that the standby lacks;
        remove the mark when the standby has everything again.
        """
        reply, broker = kept.reply, self._doors.broker
        # The mark must be at the arbiter before the broker may acknowledge without the standby.
        if reply.wants_mark and not kept.is_out_of_sync:
            await self._mark(kept, record, holder, is_out_of_sync=True)
            await broker.ConfirmLink(
                ConfirmLinkRequest(link=record.name, epoch=record.epoch, mark=SyncMark.OUT_OF_SYNC),
                timeout=BROKER_TIMEOUT_S,
            )
        elif kept.is_out_of_sync and not reply.is_standby_behind and not is_suspended(record):
            asked = ConfirmLinkRequest(link=record.name, epoch=record.epoch, mark=SyncMark.IN_SYNC)
            answer = await broker.ConfirmLink(asked, timeout=BROKER_TIMEOUT_S)
            # The broker is asked again after it has begun to wait for the standby: only then may
            # the mark be removed.
            if not answer.is_standby_behind:
                await self._mark(kept, record, holder, is_out_of_sync=False)

    async def _mark(self, kept: KeptLease, record: LinkRecord, holder: Holder, *, is_out_of_sync: bool) -> None:
        if kept.holder_version is None:
            # Turns overlap: a concurrent one has found that the record or the holder has changed.
            raise ArbiterChanged(f"{holder.node} registers again for link {record.name}")
        kept.holder_version = await self._doors.arbiter.mark_holder(
            record.name,
            holder,
            is_out_of_sync=is_out_of_sync,
            version=kept.holder_version,
            timeout_ms=record.lease_ms,
        )
        kept.is_out_of_sync = is_out_of_sync
        state = "out of sync" if is_out_of_sync else "in sync"
        self._state_change.warning("broker marked at the arbiter", link=record.name, epoch=record.epoch, state=state)
