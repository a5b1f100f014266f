"""How long a promoted site waits for permits of the lost one: until neither the presence at the
arbiter nor a vow of its own can have renewed one for a whole lease.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from dr.agent.arbiter import KeptRecord
from dr.agent.core.lease import LinkLeaseMachine
from dr.agent.leases.epochs import ArbiterEpochs
from dr.agent.leases.kept_lease import KeptLease
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.control.site_pb2 import ArbiterRecord
from wire.znodes.arbiter_znodes import Holder

LEASE_MS = 1_000
ABSENT_SINCE_MS = 2_000.0
RUN_OUT_MS = 3_010.0
"""One lease after ABSENT_SINCE_MS, by the slowest clock."""
RECORD = LinkRecord(
    name="a-b",
    source_site="a",
    target_site="b",
    active_site="b",
    epoch=2,
    phase=LinkPhase.MIRRORING,
    lease_ms=LEASE_MS,
)


class World:
    """Site b, which is promoted at 2,500 ms over a, whose brokers are absent since 2,000 ms."""

    def __init__(self) -> None:
        self.now_ms = 0.0
        self.vows_given: dict[str, int] = {}
        self.absent_since_ms: float | None = ABSENT_SINCE_MS
        self.kept = KeptLease(LinkLeaseMachine("b"))
        self.stored = ArbiterRecord(
            link="a-b", epoch=2, active_site="b", is_open=False, lease_ms=LEASE_MS, wait_ms=LEASE_MS
        )
        arbiter = SimpleNamespace(
            record=self._record,
            store=self._store,
            holders=self._holders,
            absent_since_ms=self._absent_since_ms,
            release_holder=self._nothing,
        )
        store = SimpleNamespace(vows=self._vows, forget_vows=self._nothing)
        clock = SimpleNamespace(monotonic_ms=lambda: self.now_ms)
        doors: Any = SimpleNamespace(site="b", arbiter=arbiter, store=store, clock=clock)
        self._epochs = ArbiterEpochs(doors)

    async def look(self, now_ms: float) -> None:
        """The look of a standby's agent at the vows of its site."""
        self.now_ms = now_ms
        await self._epochs.look_at_vows(self.kept, RECORD)

    async def is_open(self, now_ms: float) -> bool:
        """Whether a turn of the promoted site's agent has opened the epoch."""
        self.now_ms = now_ms
        return await self._epochs.settle(self.kept, RECORD)

    async def promote(self) -> None:
        """The link is closed at the arbiter, and its account is stored."""
        self.kept.machine.request_open(2)
        assert not await self.is_open(2_500.0)

    async def _record(self, _link: str, *, timeout_ms: float) -> KeptRecord:
        return KeptRecord(record=self.stored, version=1)

    async def _store(self, record: ArbiterRecord, **_: Any) -> KeptRecord:
        self.stored = record
        return KeptRecord(record=record, version=2)

    async def _holders(self, _link: str, **_: Any) -> list[Holder]:
        return [Holder("a", 1)]

    async def _absent_since_ms(self, _site: str, **_: Any) -> float | None:
        return self.absent_since_ms

    async def _vows(self, _link: str) -> dict[str, int]:
        return dict(self.vows_given)

    async def _nothing(self, *_: Any, **__: Any) -> None:
        return


@pytest.fixture
def world() -> World:
    return World()


async def test_without_vows_the_wait_counts_from_the_end_of_the_presence(world: World) -> None:
    await world.promote()
    assert not await world.is_open(RUN_OUT_MS - 1)
    assert await world.is_open(RUN_OUT_MS)


async def test_a_vow_that_has_run_out_lengthens_no_failover(world: World) -> None:
    world.vows_given["a-1"] = 7
    await world.look(500.0)
    await world.look(1_500.0)
    await world.promote()
    assert not await world.is_open(RUN_OUT_MS - 1)
    assert await world.is_open(RUN_OUT_MS)


async def test_a_vow_that_was_renewed_after_the_presence_is_waited_for(world: World) -> None:
    world.vows_given["a-1"] = 7
    await world.look(500.0)
    world.vows_given["a-1"] = 8
    await world.look(2_200.0)
    await world.promote()
    assert not await world.is_open(RUN_OUT_MS)
    assert not await world.is_open(3_209.0)
    assert await world.is_open(3_210.0)


async def test_a_vow_that_no_look_has_seen_counts_from_the_closing_of_the_link(world: World) -> None:
    world.vows_given["a-1"] = 7
    await world.promote()
    assert not await world.is_open(3_509.0)
    assert await world.is_open(3_510.0)


async def test_a_broker_that_is_present_is_waited_for_from_the_closing_of_the_link(world: World) -> None:
    world.absent_since_ms = None
    world.vows_given["a-1"] = 7
    await world.look(500.0)
    await world.promote()
    assert not await world.is_open(3_509.0)
    assert await world.is_open(3_510.0)
