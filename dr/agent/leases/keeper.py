"""Keeps the lease of each link for the agent's own broker. It renews the broker's permits at the
arbiter, or by the standby's vow while the arbiter does not answer, and it raises and opens newer
epochs.

`core/lease.py` decides. Each lease has three renewals, which may overlap: a slow renewal does not
delay the next one. So a network delay of seconds costs no permit as long as it is shorter than the
lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

import grpc
from kazoo.exceptions import NoNodeError

from dr.agent.account_store import LinkUnknown
from dr.agent.arbiter import Arbiter, ArbiterChanged, ArbiterSilent
from dr.agent.core.lease import LinkLeaseMachine
from dr.agent.leases.epochs import ArbiterEpochs
from dr.agent.leases.holders import register, show_presence, sweep
from dr.agent.leases.kept_lease import KeptLease, LeaseDoors
from dr.agent.leases.marks import SyncMarks
from dr.agent.leases.permits import Permits
from dr.agent.leases.vows import ask_for_vow
from dr.agent.links_store import LinksStore
from dr.agent.site_cache import DISCONNECTED, SiteCache
from dr.sites.channels import Channels, problem_of
from dr.sites.core.lease_sentences import FROM_STANDBY
from runtime.clock import Clock
from runtime.supervision import Supervisor, in_background
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.control.site_pb2 import LinkLease
from wire.rules.links import other_site
from wire.znodes.arbiter_znodes import Holder
from wire.znodes.documents import MalformedZnode

RENEWALS_PER_LEASE: Final = 3
TURNS_AT_ONCE_MAX: Final = 4
"""The maximum number of concurrent turns for each link; a slow renewal leaves room for the next
ones.
"""
IDLE_INTERVAL_S: Final = 1.0
"""Interval (s) between checks of the links while none has a lease; a change of the links wakes the
keeper at once.
"""
WAIT_INTERVAL_S: Final = 0.05
"""Interval (s) between checks of a closed epoch that is to be opened."""
FROM_ARBITER: Final = "arbiter"


class LeaseKeeper:
    """One in each agent."""

    def __init__(
        self,
        *,
        site: str,
        arbiter: Arbiter,
        cache: SiteCache,
        store: LinksStore,
        channels: Channels,
        broker_address: str,
        clock: Clock,
    ) -> None:
        """`broker_address` is the address of the own broker; its registration at the site is found
        by it.
        """
        self._doors = LeaseDoors(
            site=site,
            arbiter=arbiter,
            cache=cache,
            store=store,
            channels=channels,
            broker=channels.broker_control(broker_address),
            broker_address=broker_address,
            clock=clock,
        )
        self._epochs = ArbiterEpochs(self._doors)
        self._permits = Permits(self._doors)
        self._marks = SyncMarks(self._doors)
        self._kept: dict[str, KeptLease] = {}
        self._turns: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._loops = Supervisor()

    def start(self) -> None:
        """Begin. A change of the site's links starts a turn at once."""
        self._doors.cache.on_change(self._wake.set)
        self._loops.start("lease keeper", self._run)

    async def stop(self) -> None:
        """Stop all turns. Permits that were granted run out by themselves."""
        await self._loops.stop()
        # The turns end after the loop, which could otherwise begin another one.
        for task in tuple(self._turns):
            task.cancel()
        await asyncio.gather(*self._turns, return_exceptions=True)

    def request_open(self, record: LinkRecord, *, is_writing: bool = False) -> None:
        """Request that the link's epoch be opened: its account is stored, or the other site also
        has the epoch. `is_writing`: the site takes writes in it without a lease.
        """
        machine = self._of(record.name).machine
        if is_writing or not machine.is_requested(record.epoch):
            machine.request_open(record.epoch, is_writing=is_writing)
            self._wake.set()

    def is_requested(self, record: LinkRecord) -> bool:
        """True if the opening of the record's epoch is requested."""
        return self._of(record.name).machine.is_requested(record.epoch)

    def has_permit(self, record: LinkRecord) -> bool:
        """True if the own broker holds a permit of the record's epoch."""
        return self._permits.is_valid(self._kept.get(record.name), record)

    def lease(self, record: LinkRecord) -> LinkLease | None:
        """The lease as this process sees it; None if the link has no lease."""
        if not record.lease_ms:
            return None
        kept, doors = self._of(record.name), self._doors
        left_ms = max(0.0, kept.left_ms(doors.clock.monotonic_ms())) if kept.permit_epoch == record.epoch else 0.0
        is_active = record.active_site == doors.site
        return LinkLease(
            is_arbiter_reachable=doors.arbiter.is_reachable,
            permit_from=kept.permit_from if left_ms else "",
            permit_left_ms=round(left_ms),
            is_out_of_sync=kept.is_out_of_sync and is_active,
            problem=doors.arbiter.silence or (kept.problem if is_active and not left_ms else ""),
        )

    def leases(self) -> Mapping[str, LinkLease]:
        """The leases by link, as this process sees them."""
        found = {record.name: self.lease(record) for record in self._leased()}
        return {name: lease for name, lease in found.items() if lease is not None}

    def _leased(self) -> list[LinkRecord]:
        links = self._doors.cache.facts.links.values()
        return [one for one in links if one.lease_ms and self._doors.site in (one.source_site, one.target_site)]

    def _of(self, link: str) -> KeptLease:
        return self._kept.setdefault(link, KeptLease(LinkLeaseMachine(self._doors.site)))

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            leased = self._leased()
            self._kept = {one.name: self._of(one.name) for one in leased}
            if leased:
                self._begin(show_presence(self._doors, leased))
            for record in leased:
                self._begin(self._turn(record))
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s(leased)):
                    await self._wake.wait()

    def _pause_s(self, leased: Iterable[LinkRecord]) -> float:
        shortest_ms = min((record.lease_ms for record in leased), default=0)
        # Writers are blocked until the epoch is open, so the pause is short.
        if any(kept.is_awaited for kept in self._kept.values()):
            return WAIT_INTERVAL_S
        return shortest_ms / RENEWALS_PER_LEASE / 1000 if shortest_ms else IDLE_INTERVAL_S

    def _begin(self, turn: Coroutine[Any, Any, None]) -> None:
        # A turn may be skipped: the next interval begins another one.
        if len(self._turns) >= TURNS_AT_ONCE_MAX * (1 + len(self._kept)):
            turn.close()
            return
        task = in_background("lease turn", turn)
        self._turns.add(task)
        task.add_done_callback(self._turns.discard)

    async def _turn(self, record: LinkRecord) -> None:
        """Take the link's next step: obtain a permit, or release it."""
        # The turn works with one reading of the record. If the record changes meanwhile, the
        # version checks at the arbiter fail, or a renewal that succeeded before gives no permit.
        kept, holder = self._of(record.name), self._doors.own_holder()
        if holder is None:
            kept.problem = "the broker is not registered at its site"
            return
        try:
            if record.active_site != self._doors.site or record.phase != LinkPhase.MIRRORING:
                await self._release(kept, record, holder)
                # A failover waits until the last vow has run out, and this process must know since
                # when that is.
                await self._epochs.look_at_vows(kept, record)
            else:
                await self._obtain(kept, record, holder)
        except (ArbiterSilent, *DISCONNECTED, MalformedZnode, LinkUnknown, NoNodeError) as error:
            # The problem is only reported: nothing needs to be undone, because the permit runs out
            # by itself.
            kept.problem = str(error)
        except grpc.aio.AioRpcError as error:
            kept.problem = f"the broker does not accept a permit: {problem_of(error)}"
            kept.is_awaited = True

    async def _obtain(self, kept: KeptLease, record: LinkRecord, holder: Holder) -> None:
        """Obtain a permit from the arbiter, or from the standby if the arbiter takes too long."""
        by_arbiter = asyncio.ensure_future(self._by_arbiter(kept, record, holder))
        try:
            # The arbiter gets a third of the lease, so that a vow of the standby still arrives
            # before the permit ends.
            await asyncio.wait({by_arbiter}, timeout=record.lease_ms / RENEWALS_PER_LEASE / 1000)
            if by_arbiter.done() and not isinstance(by_arbiter.exception(), ArbiterSilent):
                by_arbiter.result()
                return
            # The request to the arbiter continues meanwhile: an answer of the arbiter ends the
            # dependence on the vow.
            await self._by_standby(kept, record, holder)
            await by_arbiter
        finally:
            by_arbiter.cancel()
            await asyncio.gather(by_arbiter, return_exceptions=True)

    async def _by_arbiter(self, kept: KeptLease, record: LinkRecord, holder: Holder) -> None:
        doors = self._doors
        try:
            if not kept.is_open_for(record):
                async with kept.turn:
                    if not await self._epochs.settle(kept, record):
                        return
            if kept.holder_version is None:
                # Before the broker has accepted a permit, too: the other site waits for a holder.
                kept.is_released = False
                await register(doors, kept, record, holder)
                await self._marks.begin(kept, record, holder)
            arbiter, version = kept.arbiter, kept.holder_version
            if arbiter is None or version is None:
                return  # a concurrent turn has dropped them after ArbiterChanged
            # The time is read before the request: the permit counts from then, even if the answer
            # arrives late.
            asked_at_ms = doors.clock.monotonic_ms()
            await doors.arbiter.renew(
                record.name,
                version=arbiter.version,
                holder=holder,
                holder_version=version,
                timeout_ms=record.lease_ms,
            )
            lease_ms = arbiter.record.lease_ms
            await self._permits.grant(kept, record, asked_at_ms=asked_at_ms, lease_ms=lease_ms, giver=FROM_ARBITER)
            await self._epochs.note_opened(kept, record)
            await self._marks.follow(kept, record, holder)
            await self._marks.settle_loss(kept, record)
        except ArbiterChanged:
            # Another process has changed the record or this broker's holder node. The next turn
            # reads and registers again.
            kept.arbiter = kept.holder_version = None
            kept.is_awaited = True
            return
        await sweep(doors, kept, record)

    async def _by_standby(self, kept: KeptLease, record: LinkRecord, holder: Holder) -> None:
        """Obtain a permit by the standby's vow, for an epoch that the arbiter had opened before it
        stopped answering.
        """
        doors = self._doors
        # Before an epoch is opened, brokers of the other site may still hold permits of an earlier
        # one.
        if not await self._epochs.is_known_open(kept, record):
            kept.problem = f"{doors.arbiter.silence}, and epoch {record.epoch} is not known to be open"
            return
        asked_at_ms = doors.clock.monotonic_ms()
        # Also without an answer the standby may have stored the vow.
        kept.has_vow, kept.is_released = True, False
        if problem := await ask_for_vow(doors, record, holder):
            standby = other_site(record, doors.site)
            kept.problem = f"{doors.arbiter.silence or 'the arbiter is slow'}, and {standby} gives no vow: {problem}"
            return
        await self._permits.grant(kept, record, asked_at_ms=asked_at_ms, lease_ms=record.lease_ms, giver=FROM_STANDBY)

    async def _release(self, kept: KeptLease, record: LinkRecord, holder: Holder) -> None:
        """Release the permit: at the broker first, then at the arbiter and at the standby."""
        kept.arbiter, kept.problem, kept.is_awaited = None, "", False
        if kept.is_released:
            return
        # A turn that registers the broker meanwhile takes this back.
        kept.is_released, is_done = True, False
        try:
            # The broker comes first: without a holder the other site may open its epoch, so this
            # broker must have stopped acknowledging writes.
            await self._permits.withdraw(kept, record)
            await self._doors.arbiter.release_holder(record.name, holder, timeout_ms=record.lease_ms)
            if kept.has_vow:
                kept.has_vow = bool(await ask_for_vow(self._doors, record, holder, is_release=True))
            # Each turn repeats the request until the standby has released its vow.
            is_done = not kept.has_vow
        finally:
            kept.is_released = kept.is_released and is_done
