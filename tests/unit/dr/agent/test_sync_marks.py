"""The mark of a broker that acknowledges records which the standby may lack: it goes only when no
broker of the site is behind, and a broker without the mark at the arbiter never takes itself for
one that has it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from msgspec.structs import replace

from dr.agent.arbiter import ArbiterChanged, ArbiterSilent, KeptRecord
from dr.agent.core.lease import LinkLeaseMachine
from dr.agent.core.site_view import SiteFacts
from dr.agent.leases.kept_lease import KeptLease, LeaseDoors
from dr.agent.leases.marks import SyncMarks
from dr.agent.leases.permits import Permits
from wire.control.broker_pb2 import ConfirmLinkReply, ConfirmLinkRequest, SyncMark
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.control.site_pb2 import ArbiterRecord
from wire.protocol.ids import NO_NODE
from wire.znodes.arbiter_znodes import Holder
from wire.znodes.topic_znodes import StoredPartitionState, TopicAssignment

HOLDER = Holder("a", 1)
RECORD = LinkRecord(
    name="a-b",
    source_site="a",
    target_site="b",
    active_site="a",
    epoch=1,
    phase=LinkPhase.MIRRORING,
    lease_ms=10_000,
    sync_policy="degrade",
    topic_whitelist=["orders"],
)
Step = Callable[[], Awaitable[None]]


class Broker:
    """A broker of the active site, as its control service shows it."""

    def __init__(self, *, is_behind: bool = False, is_marked: bool = False) -> None:
        self.is_behind, self.is_marked, self.is_silent = is_behind, is_marked, False
        self.leaders_digest = lambda: 0
        self.meanwhile: Callable[[], None] | None = None

    async def ConfirmLink(self, request: ConfirmLinkRequest, *, timeout: float) -> ConfirmLinkReply:  # noqa: ASYNC109
        """As `broker/site/link_confirmations.py` does it."""
        if self.is_silent:
            raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, grpc.aio.Metadata(), grpc.aio.Metadata())
        if request.mark == SyncMark.OUT_OF_SYNC or (request.mark == SyncMark.IN_SYNC and not self.is_behind):
            self.is_marked = request.mark == SyncMark.OUT_OF_SYNC
        reply = ConfirmLinkReply(
            is_confirmed=True,
            wants_mark=self.is_marked and self.is_behind,
            is_standby_behind=self.is_behind,
            leaders_digest=self.leaders_digest() if request.asks_leaders else 0,
        )
        if request.mark == SyncMark.IN_SYNC and self.meanwhile is not None:
            self.meanwhile()
        return reply


class Site:
    """Site a with two brokers, of which the first one is marked, and the arbiter. `meanwhile` runs
    while the arbiter has not answered a change of the mark yet.
    """

    def __init__(self) -> None:
        self.own, self.other = Broker(is_marked=True), Broker()
        self.is_marked_at_arbiter, self._version = True, 3
        self.meanwhile: Step | None = None
        self.failure: Exception | None = None
        brokers = {"a:1": self.own, "a:2": self.other}
        registrations: Any = {node: (SimpleNamespace(grpc_address=f"a:{node}"), 0) for node in (1, 2)}
        clock: Any = SimpleNamespace(monotonic_ms=lambda: 1_000.0)
        facts = SiteFacts(site="a", links={"a-b": RECORD}, brokers=registrations)
        self._cache: Any = SimpleNamespace(facts=facts)
        for broker in (self.own, self.other):
            broker.leaders_digest = self.leaders_digest
        arbiter: Any = SimpleNamespace(mark_holder=self._mark, store=self._store)
        channels: Any = SimpleNamespace(broker_control=brokers.__getitem__)
        own: Any = self.own
        doors = LeaseDoors(
            site="a",
            arbiter=arbiter,
            cache=self._cache,
            store=NotImplemented,
            channels=channels,
            broker=own,
            broker_address="a:1",
            clock=clock,
        )
        self.kept = KeptLease(LinkLeaseMachine("a"), holder_version=self._version, is_out_of_sync=True)
        self._permits, self._marks = Permits(doors), SyncMarks(doors)

    async def _mark(self, _link: str, _holder: Holder, *, is_out_of_sync: bool, version: int, **_: Any) -> int:
        if self.meanwhile is not None:
            step, self.meanwhile = self.meanwhile, None
            await step()
        if version != self._version:
            raise ArbiterChanged("another version")
        self._version += 1
        self.is_marked_at_arbiter = is_out_of_sync
        if self.failure is not None:
            raise self.failure
        return self._version

    async def _store(self, record: ArbiterRecord, *, version: int, **_: Any) -> KeptRecord:
        return KeptRecord(record=record, version=version + 1)

    async def register(self) -> None:
        """The broker registers at an arbiter that has lost its mark with its data."""
        self.is_marked_at_arbiter = self.kept.is_out_of_sync = False
        lost = ArbiterRecord(link="a-b", epoch=1, active_site="a", is_open=True, has_lost_former=True)
        self.kept.arbiter = KeptRecord(record=lost, version=1)
        await self._marks.begin(self.kept, RECORD, HOLDER)

    async def settle_loss(self) -> bool:
        """A turn after the loss; whether the arbiter knows that no mark is missing."""
        await self._marks.settle_loss(self.kept, RECORD)
        assert self.kept.arbiter is not None
        return not self.kept.arbiter.record.has_lost_former

    def lead_by(self, leader: int) -> None:
        """The site has one partition, with this leader."""
        state = StoredPartitionState(leader=leader, leader_epoch=1, isr=(3,), controller_epoch=1)
        topic = TopicAssignment(topic_id=b"t" * 16, partitions={0: (3,)})
        self._cache.facts = replace(self._cache.facts, topics={"orders": topic}, states={("orders", 0): (state, 0)})

    def leaders_digest(self) -> int:
        """The leaders that the site's ZooKeeper has."""
        digest: int = self._cache.facts.leaders_digest(RECORD)
        return digest

    async def renew(self) -> None:
        """A renewal has succeeded: the broker gets its permit."""
        await self._permits.grant(self.kept, RECORD, asked_at_ms=1_000, lease_ms=10_000, giver="arbiter")

    async def turn(self) -> None:
        """A turn of the lease."""
        await self.renew()
        await self._marks.follow(self.kept, RECORD, HOLDER)


async def test_the_mark_goes_when_the_standby_has_everything() -> None:
    site = Site()
    await site.turn()
    assert (site.own.is_marked, site.is_marked_at_arbiter, site.kept.is_out_of_sync) == (False, False, False)


@pytest.mark.parametrize("state", ["behind", "silent"])
async def test_the_mark_stays_while_another_broker_leads_what_the_standby_may_lack(state: str) -> None:
    """The marked broker led it before, and the other one has acknowledged nothing by itself."""
    site = Site()
    site.other.is_behind, site.other.is_silent = state == "behind", state == "silent"
    await site.turn()
    assert (site.own.is_marked, site.is_marked_at_arbiter) == (True, True)
    site.other.is_behind = site.other.is_silent = False
    await site.turn()
    assert (site.own.is_marked, site.is_marked_at_arbiter) == (False, False)


@pytest.mark.parametrize("late", ["own", "other"])
async def test_the_mark_stays_until_each_broker_knows_the_leaders_of_the_link(late: str) -> None:
    """The marked broker has lost a leadership, and the next leader does not know that yet."""
    site = Site()
    site.lead_by(1)
    former = site.leaders_digest()
    site.lead_by(2)
    broker = getattr(site, late)
    broker.leaders_digest = lambda: former
    await site.turn()
    assert (site.own.is_marked, site.is_marked_at_arbiter) == (True, True)
    broker.leaders_digest = site.leaders_digest
    await site.turn()
    assert (site.own.is_marked, site.is_marked_at_arbiter) == (False, False)


async def test_the_mark_stays_if_another_broker_gets_what_the_standby_lacks_during_the_removal() -> None:
    site = Site()

    def move_leader() -> None:
        site.lead_by(2)
        site.other.is_behind = True

    site.own.meanwhile = move_leader
    await site.turn()
    assert (site.is_marked_at_arbiter, site.kept.is_out_of_sync) == (True, True)
    site.own.meanwhile = None
    await site.renew()
    assert site.own.is_marked


async def test_a_loss_of_marks_is_not_settled_before_the_next_leader_knows_that_it_leads() -> None:
    site = Site()
    await site.register()
    await site.turn()
    site.lead_by(3)
    former = site.leaders_digest()
    site.lead_by(2)
    site.own.leaders_digest = site.other.leaders_digest = lambda: former
    assert not await site.settle_loss()
    site.own.leaders_digest = site.other.leaders_digest = site.leaders_digest
    assert await site.settle_loss()


async def test_a_renewal_beside_the_removal_of_the_mark_does_not_bring_it_back_at_the_broker_alone() -> None:
    site = Site()
    site.meanwhile = site.renew
    await site.turn()
    assert (site.own.is_marked, site.is_marked_at_arbiter) == (False, False)


async def test_after_a_removal_without_an_answer_the_arbiter_is_read_again() -> None:
    """A vow of the standby may renew the permit before."""
    site = Site()
    site.failure = ArbiterSilent("no answer")
    with pytest.raises(ArbiterSilent):
        await site.turn()
    await site.renew()
    assert (site.own.is_marked, site.is_marked_at_arbiter) == (False, False)
    assert site.kept.holder_version is None


async def test_a_mark_that_another_turn_sets_meanwhile_is_not_removed() -> None:
    site = Site()

    async def mark_again() -> None:
        site.own.is_marked, site._version = True, site._version + 1

    site.meanwhile = mark_again
    with pytest.raises(ArbiterChanged):
        await site.turn()
    assert (site.own.is_marked, site.is_marked_at_arbiter) == (True, True)


async def test_a_mark_that_the_arbiter_has_lost_is_made_again_before_the_first_permit() -> None:
    site = Site()
    site.own.is_behind = True
    await site.register()
    assert (site.is_marked_at_arbiter, site.kept.is_out_of_sync) == (True, True)


async def test_a_loss_of_marks_is_settled_when_the_standby_has_everything_of_each_broker() -> None:
    site = Site()
    site.own.is_behind = True
    await site.register()
    await site.turn()
    assert not await site.settle_loss()
    site.own.is_behind, site.other.is_behind = False, True
    await site.turn()
    assert not await site.settle_loss()
    site.other.is_behind = False
    await site.turn()
    assert await site.settle_loss()


@pytest.mark.parametrize("leader", [NO_NODE, 3])
async def test_a_loss_of_marks_is_not_settled_while_a_partition_has_no_live_leader(leader: int) -> None:
    """Broker 3 is away: the arbiter has lost its mark, and no other broker has a replica."""
    site = Site()
    await site.register()
    await site.turn()
    site.lead_by(leader)
    assert not await site.settle_loss()
    site.lead_by(2)
    assert await site.settle_loss()
