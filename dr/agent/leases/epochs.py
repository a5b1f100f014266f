"""Epochs of a link at the arbiter: reads them, raises them, and opens them once no earlier permit
can be valid.

`core/lease.py` decides.
"""

from __future__ import annotations

from dr.agent.core.lease import LeaseDecision, LeaseStep
from dr.agent.leases.kept_lease import KeptLease, LeaseDoors
from runtime.logs import state_change_logger
from wire.control.cluster_pb2 import LinkRecord


class ArbiterEpochs:
    """The epochs of the links of one agent."""

    def __init__(self, doors: LeaseDoors) -> None:
        self._doors = doors
        self._state_change = state_change_logger()

    async def settle(self, kept: KeptLease, record: LinkRecord) -> bool:
        """Read the arbiter's record, and raise or open the epoch if that is due. True if the epoch
        is open for this site. Raises ArbiterSilent, ArbiterChanged.
        """
        arbiter, timeout_ms = self._doors.arbiter, record.lease_ms
        while True:
            kept.arbiter = await arbiter.record(record.name, timeout_ms=timeout_ms)
            decision = await self._decide(kept, record)
            kept.problem, kept.is_awaited = decision.problem, False
            match decision.step:
                case LeaseStep.RENEW:
                    return True
                case LeaseStep.RAISE | LeaseStep.OPEN:
                    assert decision.record is not None
                    # Version None creates the record. If another process has created it meanwhile,
                    # this raises ArbiterChanged.
                    version = None if kept.arbiter is None else kept.arbiter.version
                    kept.arbiter = await arbiter.store(decision.record, version=version, timeout_ms=timeout_ms)
                    self._state_change.info(
                        "epoch opened at the arbiter" if decision.record.is_open else "epoch raised at the arbiter",
                        link=record.name,
                        epoch=record.epoch,
                        active=record.active_site,
                    )
                    if decision.record.is_open:
                        await self._forget_holders(record)
                case _:
                    kept.is_awaited = kept.machine.is_requested(record.epoch)
                    return False

    async def note_opened(self, kept: KeptLease, record: LinkRecord) -> None:
        """Store beside the link that the epoch is open. A vow may replace the arbiter's answer only
        for such an epoch.
        """
        if kept.opened_epoch != record.epoch:
            await self._doors.store.store_opened(record.name, record.epoch)
            kept.opened_epoch = record.epoch

    async def is_known_open(self, kept: KeptLease, record: LinkRecord) -> bool:
        """True if this site is known to have opened the record's epoch; the arbiter is not
        asked.
        """
        if kept.opened_epoch != record.epoch:
            kept.opened_epoch = await self._doors.store.opened(record.name)
        return kept.opened_epoch == record.epoch

    async def look_at_vows(self, kept: KeptLease, record: LinkRecord) -> float | None:
        """Return the monotonic time since which no vow of this site can have renewed a permit of
        the other one, as this process saw it; None if there is no vow.
        """
        vows = await self._doors.store.vows(record.name)
        return kept.vows.observe(vows, now_ms=self._doors.clock.monotonic_ms())

    async def _decide(self, kept: KeptLease, record: LinkRecord) -> LeaseDecision:
        doors = self._doors
        arbiter = None if kept.arbiter is None else kept.arbiter.record
        # The site's own ZooKeeper knows an epoch that was open before the arbiter lost its data.
        has_lost_data = arbiter is None or (not arbiter.is_open and arbiter.has_lost_former)
        was_open = has_lost_data and await self.is_known_open(kept, record)
        kept.machine.observe(arbiter, now_ms=doors.clock.monotonic_ms(), was_open=was_open)
        may_be_held, not_renewed_since_ms = False, None
        # The epoch is open, so no permit of an earlier epoch can be valid.
        if arbiter is not None and not arbiter.is_open:
            vowed_since_ms = await self.look_at_vows(kept, record)
            holders = await doors.arbiter.holders(record.name, timeout_ms=record.lease_ms)
            # A link that has followed this site was held by the brokers of a third one.
            elsewhere = sorted({one.site for one in holders} - {doors.site})
            times = [await doors.arbiter.absent_since_ms(one, timeout_ms=record.lease_ms) for one in elsewhere]
            # A vow of this site may have renewed a permit without the arbiter, after the end of the
            # presence there.
            if vowed_since_ms is not None:
                times.append(vowed_since_ms)
            may_be_held = bool(times)
            known = [since_ms for since_ms in times if since_ms is not None]
            not_renewed_since_ms = max(known) if known and len(known) == len(times) else None
        return kept.machine.decide(
            record,
            arbiter,
            may_be_held_elsewhere=may_be_held,
            not_renewed_since_ms=not_renewed_since_ms,
            now_ms=doors.clock.monotonic_ms(),
            was_open=was_open,
        )

    async def _forget_holders(self, record: LinkRecord) -> None:
        """Remove the holders of other sites: their permits have run out."""
        doors = self._doors
        for one in await doors.arbiter.holders(record.name, timeout_ms=record.lease_ms):
            if one.site != doors.site:
                await doors.arbiter.release_holder(record.name, one, timeout_ms=record.lease_ms)
        await doors.store.forget_vows(record.name)
