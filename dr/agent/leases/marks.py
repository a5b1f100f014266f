"""Marks at the arbiter that a broker of a sync link acknowledges records which the standby may
lack: no site is promoted unasked while there is one.
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
        """Mark a newly registered broker of a link whose sync policy is suspended: its writers do
        not wait for the lost site.
        """
        if is_suspended(record) and not kept.is_out_of_sync:
            await self._mark(kept, record, holder, is_out_of_sync=True)

    async def follow(self, kept: KeptLease, record: LinkRecord, holder: Holder) -> None:
        """Mark the broker at the arbiter before it acknowledges what the standby lacks, and take
        the mark away when the standby has everything again.
        """
        reply, broker = kept.reply, self._doors.broker
        # the mark is at the arbiter before the broker may acknowledge without the standby
        if reply.wants_mark and not kept.is_out_of_sync:
            await self._mark(kept, record, holder, is_out_of_sync=True)
            await broker.ConfirmLink(
                ConfirmLinkRequest(link=record.name, epoch=record.epoch, mark=SyncMark.OUT_OF_SYNC),
                timeout=BROKER_TIMEOUT_S,
            )
        elif kept.is_out_of_sync and not reply.is_standby_behind and not is_suspended(record):
            asked = ConfirmLinkRequest(link=record.name, epoch=record.epoch, mark=SyncMark.IN_SYNC)
            answer = await broker.ConfirmLink(asked, timeout=BROKER_TIMEOUT_S)
            # asked again after the broker has begun to wait: only then is it true at the arbiter
            if not answer.is_standby_behind:
                await self._mark(kept, record, holder, is_out_of_sync=False)

    async def _mark(self, kept: KeptLease, record: LinkRecord, holder: Holder, *, is_out_of_sync: bool) -> None:
        if kept.holder_version is None:
            # turns overlap: another one has found the record or the holder changed meanwhile
            raise ArbiterChanged(f"{holder.node} registers anew for link {record.name}")
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
