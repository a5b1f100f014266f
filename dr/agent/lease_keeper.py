"""Keeps the lease of each link for the agent's own broker: permits renewed by the arbiter, or by
the standby's vow while the arbiter is silent, and newer epochs raised and opened.

`core/lease.py` decides. Renewals overlap: each lease has three, and one that takes long does not
delay the next one, so a line of seconds costs no permit as long as it is shorter than the lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import grpc
from kazoo.exceptions import KazooException, NoNodeError

from dr.agent.arbiter import Arbiter, ArbiterChanged, ArbiterSilent, KeptRecord
from dr.agent.core.lease import LeaseDecision, LeaseStep, LinkLeaseMachine, permit_until_ms, run_out_at_ms
from dr.agent.links_store import LinksStore, LinkUnknown
from dr.agent.site_cache import DISCONNECTED, SiteCache
from dr.sites.channels import UNANSWERED, Channels, problem_of
from dr.sites.core.lease_sentences import FROM_STANDBY
from dr.sites.core.sync_policies import is_suspended
from runtime.clock import Clock
from runtime.logs import get_logger, state_change_logger
from runtime.supervision import Supervisor
from wire.control.broker_pb2 import ConfirmLinkReply, ConfirmLinkRequest, SyncMark
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.control.site_pb2 import GrantVowRequest, LinkLease
from wire.rules.links import other_site
from wire.znodes.arbiter_znodes import Holder
from wire.znodes.documents import MalformedZnode

RENEWALS_PER_LEASE: Final = 3
TURNS_AT_ONCE_MAX: Final = 4
"""The maximum number of concurrent turns for each link."""
IDLE_INTERVAL_S: Final = 1.0
"""Interval (s) between checks of the links while none has a lease; a change of the links wakes the
keeper at once.
"""
WAIT_INTERVAL_S: Final = 0.05
"""Interval (s) between checks of a closed epoch that is to be opened."""
BROKER_TIMEOUT_S: Final = 1.0
WITHDRAWN: Final = -1

FROM_ARBITER: Final = "arbiter"


@dataclass(slots=True)
class _Kept:
    """One link: its machine, what the arbiter held last, and this process's part in it."""

    machine: LinkLeaseMachine
    arbiter: KeptRecord | None = None
    holder_version: int | None = None
    """The version of this broker's holder znode at the arbiter; None before it is registered there.
    """
    permit_epoch: int = 0
    permit_until_ms: float = 0.0
    permit_from: str = ""
    opened_epoch: int = 0
    """The highest epoch that this site is known to have opened; kept beside the link as well."""
    has_vow: bool = False
    is_out_of_sync: bool = False
    """True if the arbiter has the mark that this broker acknowledges records that the standby may
    lack.
    """
    is_released: bool = False
    is_awaited: bool = False
    """A closed epoch waits to be opened, or the broker has not taken a permit yet."""
    problem: str = ""
    reply: ConfirmLinkReply = field(default_factory=ConfirmLinkReply)
    """The broker's last one."""
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    suspended: dict[Holder, tuple[int, float]] = field(default_factory=dict)
    """Holders of this site that are not registered any more: the version that ended their
    renewals, and since when.
    """


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
        """`broker_address` is where the own broker is asked, and how it is found among the
        site's.
        """
        self._site = site
        self._arbiter = arbiter
        self._cache = cache
        self._store = store
        self._channels = channels
        self._broker_address = broker_address
        self._broker = channels.broker_control(broker_address)
        self._clock = clock
        self._kept: dict[str, _Kept] = {}
        self._turns: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._loops = Supervisor()
        self._log = get_logger("dr.lease_keeper")
        self._state_change = state_change_logger()

    def start(self) -> None:
        """Begin; a change of the site's links is acted on at once."""
        self._cache.on_change(self._wake.set)
        self._loops.start("lease keeper", self._run)

    async def stop(self) -> None:
        """End. Permits that were granted run out by themselves."""
        await self._loops.stop()
        # after the loop, which could begin another turn
        for task in tuple(self._turns):
            task.cancel()
        await asyncio.gather(*self._turns, return_exceptions=True)

    def request_open(self, record: LinkRecord) -> None:
        """The link's epoch may be opened: its account is kept, or the other site knows it too."""
        machine = self._of(record.name).machine
        if not machine.is_requested(record.epoch):
            machine.request_open(record.epoch)
            self._wake.set()

    def has_permit(self, record: LinkRecord) -> bool:
        """True if the own broker holds a permit of the record's epoch."""
        kept = self._kept.get(record.name)
        return kept is not None and kept.permit_epoch == record.epoch and self._left_ms(kept) > 0

    def lease(self, record: LinkRecord) -> LinkLease | None:
        """The lease as this process sees it; None for a link without one."""
        if not record.lease_ms:
            return None
        kept = self._of(record.name)
        left_ms = max(0.0, self._left_ms(kept)) if kept.permit_epoch == record.epoch else 0.0
        is_active = record.active_site == self._site
        return LinkLease(
            is_arbiter_reachable=self._arbiter.is_reachable,
            permit_from=kept.permit_from if left_ms else "",
            permit_left_ms=round(left_ms),
            is_out_of_sync=kept.is_out_of_sync and is_active,
            problem=self._arbiter.silence or (kept.problem if is_active and not left_ms else ""),
        )

    def leases(self) -> Mapping[str, LinkLease]:
        """The leases by link, as this process sees them."""
        found = {record.name: self.lease(record) for record in self._leased()}
        return {name: lease for name, lease in found.items() if lease is not None}

    def _leased(self) -> list[LinkRecord]:
        links = self._cache.facts.links.values()
        return [one for one in links if one.lease_ms and self._site in (one.source_site, one.target_site)]

    def _left_ms(self, kept: _Kept) -> float:
        return kept.permit_until_ms - self._clock.monotonic_ms()

    def _of(self, link: str) -> _Kept:
        return self._kept.setdefault(link, _Kept(LinkLeaseMachine(self._site)))

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            leased = self._leased()
            self._kept = {one.name: self._of(one.name) for one in leased}
            if leased:
                self._begin(self._show_presence(leased))
            for record in leased:
                self._begin(self._turn(record))
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause_s(leased)):
                    await self._wake.wait()

    # an epoch that is to be opened is waited for by writers
    def _pause_s(self, leased: Iterable[LinkRecord]) -> float:
        shortest_ms = min((record.lease_ms for record in leased), default=0)
        if any(kept.is_awaited for kept in self._kept.values()):
            return WAIT_INTERVAL_S
        return shortest_ms / RENEWALS_PER_LEASE / 1000 if shortest_ms else IDLE_INTERVAL_S

    def _begin(self, turn: Coroutine[Any, Any, None]) -> None:
        # a turn that cannot begin now is no loss: the next interval brings another
        if len(self._turns) >= TURNS_AT_ONCE_MAX * (1 + len(self._kept)):
            turn.close()
            return
        task = asyncio.create_task(turn)
        self._turns.add(task)
        task.add_done_callback(self._turns.discard)

    def _own_node(self) -> Holder | None:
        for node_id, (registration, _) in self._cache.facts.brokers.items():
            if registration.grpc_address == self._broker_address:
                return Holder(self._site, node_id)
        return None

    async def _show_presence(self, leased: Iterable[LinkRecord]) -> None:
        holder = self._own_node()
        if holder is not None and self._arbiter.is_reachable:
            # the shortest lease: presence must never end before a permit does
            timeout_ms = min(record.lease_ms for record in leased)
            with suppress(ArbiterSilent, KazooException):
                await self._arbiter.keep_presence(self._site, holder.node_id, timeout_ms=timeout_ms)
                for peer in {other_site(record, self._site) for record in leased}:
                    await self._arbiter.present(peer, timeout_ms=timeout_ms)  # since when one is absent counts

    async def _turn(self, record: LinkRecord) -> None:
        """Do for the link what is to be done now."""
        # one reading for the whole turn: the record may change under it, and versions find that out
        kept, holder = self._of(record.name), self._own_node()
        if holder is None:
            kept.problem = "the broker is not registered at its site"
            return
        try:
            if record.active_site != self._site or record.phase != LinkPhase.MIRRORING:
                await self._release(kept, record, holder)
            else:
                await self._obtain(kept, record, holder)
        except (ArbiterSilent, *DISCONNECTED, MalformedZnode, LinkUnknown, NoNodeError) as error:
            # kept and shown: the permit runs out by itself, and nothing need be undone
            kept.problem = str(error)
        except grpc.aio.AioRpcError as error:
            kept.problem = f"the broker takes no permit: {problem_of(error)}"
            kept.is_awaited = True

    async def _obtain(self, kept: _Kept, record: LinkRecord, holder: Holder) -> None:
        """A permit from the arbiter, or from the standby when the arbiter takes too long."""
        by_arbiter = asyncio.ensure_future(self._by_arbiter(kept, record, holder))
        try:
            # a third of the lease: the standby's vow must still arrive before the permit ends
            await asyncio.wait({by_arbiter}, timeout=record.lease_ms / RENEWALS_PER_LEASE / 1000)
            if by_arbiter.done() and not isinstance(by_arbiter.exception(), ArbiterSilent):
                by_arbiter.result()
                return
            # the arbiter's answer is still welcome: the vow bridges its silence
            await self._by_standby(kept, record, holder)
            await by_arbiter
        finally:
            by_arbiter.cancel()
            await asyncio.gather(by_arbiter, return_exceptions=True)

    async def _by_arbiter(self, kept: _Kept, record: LinkRecord, holder: Holder) -> None:
        timeout_ms = record.lease_ms
        try:
            if not _is_open_for(kept.arbiter, record):
                async with kept.turn:
                    if not await self._settle(kept, record):
                        return
            if kept.holder_version is None:
                # presence first: a holder that is not present would be taken for gone
                await self._arbiter.keep_presence(self._site, holder.node_id, timeout_ms=timeout_ms)
                version, kept.is_out_of_sync = await self._arbiter.register_holder(
                    record.name, holder, timeout_ms=timeout_ms
                )
                kept.holder_version = version
                if is_suspended(record) and not kept.is_out_of_sync:  # nothing waits for the lost site
                    await self._mark(kept, record, holder, is_out_of_sync=True)
            arbiter = kept.arbiter
            if arbiter is None:
                return  # another turn found it changed
            # taken before the question: a permit counts from then, however late the answer comes
            asked_at_ms = self._clock.monotonic_ms()
            await self._arbiter.renew(
                record.name,
                version=arbiter.version,
                holder=holder,
                holder_version=kept.holder_version,
                timeout_ms=timeout_ms,
            )
            await self._grant(
                kept, record, asked_at_ms=asked_at_ms, lease_ms=arbiter.record.lease_ms, giver=FROM_ARBITER
            )
            await self._note_opened(kept, record)
            await self._follow_sync(kept, record, holder)
        except ArbiterChanged:
            # read and registered anew: another writer has moved the record or this broker's node
            kept.arbiter = kept.holder_version = None
            kept.is_awaited = True
            return
        await self._sweep(kept, record)

    async def _follow_sync(self, kept: _Kept, record: LinkRecord, holder: Holder) -> None:
        """Mark the broker at the arbiter before it acknowledges what the standby lacks, and take
        the mark away when the standby has everything again.
        """
        reply = kept.reply
        # the mark is at the arbiter before the broker may acknowledge without the standby
        if reply.wants_mark and not kept.is_out_of_sync:
            await self._mark(kept, record, holder, is_out_of_sync=True)
            await self._broker.ConfirmLink(
                ConfirmLinkRequest(link=record.name, epoch=record.epoch, mark=SyncMark.OUT_OF_SYNC),
                timeout=BROKER_TIMEOUT_S,
            )
        elif kept.is_out_of_sync and not reply.is_standby_behind and not is_suspended(record):
            asked = ConfirmLinkRequest(link=record.name, epoch=record.epoch, mark=SyncMark.IN_SYNC)
            answer = await self._broker.ConfirmLink(asked, timeout=BROKER_TIMEOUT_S)
            # asked again after the broker has begun to wait: only then is it true at the arbiter
            if not answer.is_standby_behind:
                await self._mark(kept, record, holder, is_out_of_sync=False)

    async def _mark(self, kept: _Kept, record: LinkRecord, holder: Holder, *, is_out_of_sync: bool) -> None:
        assert kept.holder_version is not None
        kept.holder_version = await self._arbiter.mark_holder(
            record.name,
            holder,
            is_out_of_sync=is_out_of_sync,
            version=kept.holder_version,
            timeout_ms=record.lease_ms,
        )
        kept.is_out_of_sync = is_out_of_sync
        state = "out of sync" if is_out_of_sync else "in sync"
        self._state_change.warning("broker marked at the arbiter", link=record.name, epoch=record.epoch, state=state)

    async def _settle(self, kept: _Kept, record: LinkRecord) -> bool:
        """Read the arbiter's record and bring it on its way; whether it is open for this site."""
        timeout_ms = record.lease_ms
        while True:
            kept.arbiter = await self._arbiter.record(record.name, timeout_ms=timeout_ms)
            decision = await self._decide(kept, record)
            kept.problem, kept.is_awaited = decision.problem, False
            match decision.step:
                case LeaseStep.RENEW:
                    return True
                case LeaseStep.RAISE | LeaseStep.OPEN:
                    assert decision.record is not None
                    # None creates: a record that another process has made meanwhile is a change
                    version = None if kept.arbiter is None else kept.arbiter.version
                    kept.arbiter = await self._arbiter.store(decision.record, version=version, timeout_ms=timeout_ms)
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

    async def _decide(self, kept: _Kept, record: LinkRecord) -> LeaseDecision:
        arbiter = None if kept.arbiter is None else kept.arbiter.record
        kept.machine.observe(arbiter, now_ms=self._clock.monotonic_ms())
        may_be_held, not_renewed_since_ms = False, None
        # of an open epoch no earlier permit can be left
        if arbiter is not None and not arbiter.is_open:
            has_vows = bool(await self._store.vows(record.name))
            holders = await self._arbiter.holders(record.name, timeout_ms=record.lease_ms)
            may_be_held = has_vows or any(one.site != self._site for one in holders)
            if may_be_held and not has_vows:
                peer = other_site(record, self._site)
                not_renewed_since_ms = await self._arbiter.absent_since_ms(peer, timeout_ms=record.lease_ms)
        return kept.machine.decide(
            record,
            arbiter,
            may_be_held_elsewhere=may_be_held,
            not_renewed_since_ms=not_renewed_since_ms,
            now_ms=self._clock.monotonic_ms(),
        )

    async def _forget_holders(self, record: LinkRecord) -> None:
        """The permits of other sites have run out."""
        for one in await self._arbiter.holders(record.name, timeout_ms=record.lease_ms):
            if one.site != self._site:
                await self._arbiter.release_holder(record.name, one, timeout_ms=record.lease_ms)
        await self._store.forget_vows(record.name)

    async def _sweep(self, kept: _Kept, record: LinkRecord) -> None:
        """Take brokers of this site that are gone from the holders, so that the next failover need
        not wait for them: their renewals end first, and a lease later so do their permits.
        """
        facts = self._cache.facts
        # one broker of a site sweeps
        if not facts.has_lowest_node_id(self._broker_address):
            return
        holders = await self._arbiter.holders(record.name, timeout_ms=record.lease_ms)
        marked = await self._arbiter.out_of_sync(record.name, timeout_ms=record.lease_ms)
        absent = [one for one in holders if one.site == self._site and one.node_id not in facts.brokers]
        # the standby may still lack what this broker acknowledged
        gone = [one for one in absent if one not in marked]  # a mark stays until its broker is back
        kept.suspended = {one: known for one, known in kept.suspended.items() if one in gone}
        for one in gone:
            with suppress(ArbiterChanged):
                if one not in kept.suspended:
                    # its renewals end here; its last permit ends a lease later
                    version = await self._arbiter.suspend_holder(record.name, one, timeout_ms=record.lease_ms)
                    kept.suspended[one] = version, self._clock.monotonic_ms()
                    continue
                version, since_ms = kept.suspended[one]
                if self._clock.monotonic_ms() >= run_out_at_ms(closed_at_ms=since_ms, wait_ms=record.lease_ms):
                    await self._arbiter.release_holder(record.name, one, timeout_ms=record.lease_ms, version=version)

    async def _note_opened(self, kept: _Kept, record: LinkRecord) -> None:
        if kept.opened_epoch != record.epoch:
            await self._store.store_opened(record.name, record.epoch)
            kept.opened_epoch = record.epoch

    async def _by_standby(self, kept: _Kept, record: LinkRecord, holder: Holder) -> None:
        """A permit by the standby's vow, for an epoch that the arbiter had opened before it fell
        silent.
        """
        if kept.opened_epoch != record.epoch:
            kept.opened_epoch = await self._store.opened(record.name)
        # an epoch that was never opened may have permits of another site
        if kept.opened_epoch != record.epoch:
            kept.problem = f"{self._arbiter.silence}, and epoch {record.epoch} is not known to be open"
            return
        standby = other_site(record, self._site)
        request = GrantVowRequest(link=record.name, epoch=record.epoch, asking_site=self._site, node_id=holder.node_id)
        asked_at_ms = self._clock.monotonic_ms()
        problem = await self._ask_standby(record, request)
        if problem:
            kept.problem = f"{self._arbiter.silence or 'the arbiter is slow'}, and {standby} gives no vow: {problem}"
            return
        kept.has_vow = True
        await self._grant(kept, record, asked_at_ms=asked_at_ms, lease_ms=record.lease_ms, giver=FROM_STANDBY)

    async def _ask_standby(self, record: LinkRecord, request: GrantVowRequest) -> str:
        """The reason why no agent of the standby makes the promise; empty when one does."""
        problems = []
        for address in record.sites[other_site(record, self._site)].agents:
            try:
                await self._channels.site_agent(address).GrantVow(request, timeout=record.lease_ms / 1000)
            except grpc.aio.AioRpcError as error:
                problems.append(f"{address} {problem_of(error)}")
                # a standby that refuses speaks for its site; one that is silent may have another
                # agent
                if error.code() not in UNANSWERED:
                    break
                continue
            return ""
        return "; ".join(problems)

    async def _grant(self, kept: _Kept, record: LinkRecord, *, asked_at_ms: float, lease_ms: int, giver: str) -> None:
        # the shorter of both records: one of them may have been changed
        until_ms = permit_until_ms(asked_at_ms=asked_at_ms, lease_ms=min(lease_ms, record.lease_ms))
        mark = SyncMark.OUT_OF_SYNC if kept.is_out_of_sync else SyncMark.SYNC_MARK_UNCHANGED
        request = ConfirmLinkRequest(link=record.name, epoch=record.epoch, permit_until_ms=int(until_ms), mark=mark)
        reply = kept.reply = await self._broker.ConfirmLink(request, timeout=BROKER_TIMEOUT_S)
        # the broker's image is behind: it takes the permit with the next try
        if not reply.is_confirmed:
            kept.problem, kept.is_awaited = f"the broker does not know epoch {record.epoch} yet", True
            return
        had_permit, former = self.has_permit(record), kept.permit_from
        # turns overlap: a later answer must not shorten what an earlier one brought
        kept.permit_until_ms = max(until_ms, kept.permit_until_ms) if kept.permit_epoch == record.epoch else until_ms
        kept.permit_epoch, kept.permit_from = record.epoch, giver
        kept.problem, kept.is_awaited, kept.is_released = "", False, False
        if not had_permit or former != giver:
            self._state_change.info("permit granted", link=record.name, epoch=record.epoch, by=giver)

    async def _release(self, kept: _Kept, record: LinkRecord, holder: Holder) -> None:
        """Give the permit up: the broker first, then those who would have to wait for it."""
        kept.arbiter, kept.problem, kept.is_awaited = None, "", False
        if kept.is_released:
            return
        withdrawal = ConfirmLinkRequest(link=record.name, epoch=record.epoch, permit_until_ms=WITHDRAWN)
        # the broker first: the holder may go only when nothing is acknowledged any more
        await self._broker.ConfirmLink(withdrawal, timeout=BROKER_TIMEOUT_S)
        kept.permit_epoch, kept.permit_until_ms, kept.holder_version = 0, 0.0, None
        await self._arbiter.release_holder(record.name, holder, timeout_ms=record.lease_ms)
        if kept.has_vow:
            request = GrantVowRequest(
                link=record.name,
                epoch=record.epoch,
                asking_site=self._site,
                node_id=holder.node_id,
                is_release=True,
            )
            kept.has_vow = bool(await self._ask_standby(record, request))
        # until the standby has released its vow, each turn asks again
        kept.is_released = not kept.has_vow


def _is_open_for(arbiter: KeptRecord | None, record: LinkRecord) -> bool:
    if arbiter is None:
        return False
    held = arbiter.record
    return held.is_open and (held.epoch, held.active_site) == (record.epoch, record.active_site)
