"""Permits of the own broker: grants them after a renewal or a vow, and withdraws them."""

from __future__ import annotations

from typing import Final

from dr.agent.core.lease import permit_until_ms
from dr.agent.leases.kept_lease import BROKER_TIMEOUT_S, KeptLease, LeaseDoors
from runtime.logs import state_change_logger
from wire.control.broker_pb2 import ConfirmLinkRequest, SyncMark
from wire.control.cluster_pb2 import LinkRecord

WITHDRAWN: Final = -1


class Permits:
    """The permits of the own broker for all links."""

    def __init__(self, doors: LeaseDoors) -> None:
        self._doors = doors
        self._state_change = state_change_logger()

    def is_valid(self, kept: KeptLease | None, record: LinkRecord) -> bool:
        """True if the own broker holds a permit of the record's epoch."""
        now_ms = self._doors.clock.monotonic_ms()
        return kept is not None and kept.permit_epoch == record.epoch and kept.left_ms(now_ms) > 0

    async def grant(
        self, kept: KeptLease, record: LinkRecord, *, asked_at_ms: float, lease_ms: int, giver: str
    ) -> None:
        """Give the broker a permit that counts from the time of the request, unless the site has
        released the link since. Raises AioRpcError.
        """
        # A concurrent turn has withdrawn the permit and the holder then, so the other site may open
        # its epoch; the broker may have an older record of the link and would accept the permit.
        if not self._is_in_force(record):
            return
        # The shorter lease counts: an operator may just have changed one of the two records.
        until_ms = permit_until_ms(asked_at_ms=asked_at_ms, lease_ms=min(lease_ms, record.lease_ms))
        mark = SyncMark.OUT_OF_SYNC if kept.is_out_of_sync else SyncMark.SYNC_MARK_UNCHANGED
        request = ConfirmLinkRequest(link=record.name, epoch=record.epoch, permit_until_ms=int(until_ms), mark=mark)
        reply = kept.reply = await self._doors.broker.ConfirmLink(request, timeout=BROKER_TIMEOUT_S)
        # The broker's image of the link lags; it accepts the permit at a later try.
        if not reply.is_confirmed:
            kept.problem, kept.is_awaited = f"the broker does not know epoch {record.epoch} yet", True
            return
        had_permit, former = self.is_valid(kept, record), kept.permit_from
        # Turns overlap: a late answer of an earlier turn must not shorten the permit.
        kept.permit_until_ms = max(until_ms, kept.permit_until_ms) if kept.permit_epoch == record.epoch else until_ms
        kept.permit_epoch, kept.permit_from = record.epoch, giver
        kept.problem, kept.is_awaited, kept.is_released = "", False, False
        if not had_permit or former != giver:
            self._state_change.info("permit granted", link=record.name, epoch=record.epoch, by=giver)

    def _is_in_force(self, record: LinkRecord) -> bool:
        """True if the site still has this record of the link, apart from its policies."""
        known = self._doors.cache.facts.links.get(record.name)
        role = (record.epoch, record.active_site, record.phase)
        return known is not None and (known.epoch, known.active_site, known.phase) == role

    async def withdraw(self, kept: KeptLease, record: LinkRecord) -> None:
        """Withdraw the broker's permit: it acknowledges nothing afterwards. Raises AioRpcError."""
        withdrawal = ConfirmLinkRequest(link=record.name, epoch=record.epoch, permit_until_ms=WITHDRAWN)
        await self._doors.broker.ConfirmLink(withdrawal, timeout=BROKER_TIMEOUT_S)
        kept.permit_epoch, kept.permit_until_ms, kept.holder_version = 0, 0.0, None
