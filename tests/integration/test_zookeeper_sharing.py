"""Daemons of one link that share it through a real ZooKeeper: each slot has one owner at most, all
have one, and few move.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from mirror.link.core.slots import SLOTS, Strategy
from mirror.sharing.core.peers import Daemon, DaemonShare
from mirror.sharing.zookeeper_sharing import ROOT, ZooKeeperSharing
from runtime.clock import SystemClock
from runtime.zookeeper.client import ZooKeeper
from tests.support.eventually import eventually
from tests.support.processes.toxiproxy import Proxy, Toxiproxy

pytestmark = pytest.mark.integration

LINK = "a-b"
SESSION_TIMEOUT_MS = 20_000
"""A machine that stands still for seconds ends none."""
SHORT_SESSION_TIMEOUT_MS = 4_000
WATCHED_MS = 280_000


class Sharer:
    """One sharing member that runs."""

    def __init__(self, connect: str, strategy: Strategy, session_timeout_ms: int) -> None:
        self.sharing = ZooKeeperSharing(
            connect, LINK, strategy=strategy, session_timeout_ms=session_timeout_ms, clock=SystemClock()
        )
        self._task = asyncio.create_task(self.sharing.run())

    @property
    def slots(self) -> frozenset[int]:
        return self.sharing.ownership.slots

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)


Start = Callable[..., Sharer]


@pytest.fixture
async def start(zookeeper_connect: str) -> AsyncIterator[Start]:
    """Starts daemons, over another address if one is given; all end with the test."""
    running: list[Sharer] = []

    def make(
        connect: str = zookeeper_connect,
        strategy: Strategy = Strategy.STICKY,
        session_timeout_ms: int = SESSION_TIMEOUT_MS,
    ) -> Sharer:
        running.append(Sharer(connect, strategy, session_timeout_ms))
        return running[-1]

    yield make
    for daemon in running:
        await daemon.stop()


@asynccontextmanager
async def never_two_owners(daemons: Sequence[Sharer]) -> AsyncIterator[None]:
    """Looks again and again while the block runs."""
    is_over, shared = asyncio.Event(), list[int]()

    def look() -> bool:
        owned = [slot for daemon in daemons for slot in daemon.slots]
        shared.extend({slot for slot in owned if owned.count(slot) > 1})
        return is_over.is_set()

    watching = asyncio.create_task(eventually(look, WATCHED_MS))
    try:
        yield
    finally:
        is_over.set()
        await watching
        assert not shared, "slots had two owners"


async def wait_shared(daemons: Sequence[Sharer], within_ms: float = 60_000) -> None:
    """Wait until these own all slots, evenly."""

    def are_even() -> bool:
        sizes = [len(daemon.slots) for daemon in daemons]
        assert sum(sizes) == SLOTS, sizes
        assert max(sizes) - min(sizes) <= 1, sizes
        return True

    await eventually(are_even, within_ms)


@pytest.mark.parametrize("strategy", Strategy)
async def test_daemons_that_come_and_go_share_evenly_and_never_own_a_slot_together(
    strategy: Strategy, start: Start
) -> None:
    daemons: list[Sharer] = []
    async with never_two_owners(daemons):
        for count in range(1, 5):
            daemons.append(start(strategy=strategy))
            await wait_shared(daemons)
            assert len(daemons) == count
        staying = list(daemons)
        for leaving in (daemons[0], daemons[2]):
            await leaving.stop()
            staying.remove(leaving)
            await wait_shared(staying)
        assert sum(bool(daemon.slots) for daemon in daemons) == 2


async def test_only_the_slots_that_must_move_do(start: Start) -> None:
    first, second = start(), start()
    await wait_shared([first, second])
    before = first.slots, second.slots
    third = start()
    await wait_shared([first, second, third])
    assert first.slots < before[0]
    assert second.slots < before[1]
    await third.stop()
    await wait_shared([first, second])
    assert first.slots >= before[0]
    assert second.slots >= before[1]


async def test_a_daemon_that_is_cut_off_lets_go_before_its_slots_are_given_away(
    start: Start, zookeeper_connect: str, toxiproxy: Toxiproxy
) -> None:
    proxy = toxiproxy.create("zookeeper", zookeeper_connect.split("/")[0])
    behind = proxied(zookeeper_connect, proxy)
    daemons = [start(behind, session_timeout_ms=SHORT_SESSION_TIMEOUT_MS), start()]
    async with never_two_owners(daemons):
        await wait_shared(daemons)
        async with AsyncExitStack() as stack:
            stack.enter_context(proxy.cut_off())
            await wait_shared(daemons[1:])
            assert not daemons[0].slots
        await wait_shared(daemons)


async def test_an_unreadable_assignment_is_made_again(start: Start, zookeeper_connect: str) -> None:
    zookeeper = ZooKeeper(zookeeper_connect)
    await zookeeper.start()
    await zookeeper.create(f"{ROOT}/{LINK}/assignment", b"what is this", make_path=True)
    await zookeeper.stop()
    await wait_shared([start()])


async def test_daemons_learn_the_settings_the_slots_and_the_failures_of_the_others(start: Start) -> None:
    daemons = [start(), start()]
    first, second = daemons
    first.sharing.ownership.own = Daemon(name="m1", settings={"whitelist": "orders"})
    second.sharing.ownership.own = Daemon(name="m2", settings={"whitelist": "payments"})
    await wait_shared(daemons)

    def hears(listener: Sharer, other: Sharer) -> bool:
        return listener.sharing.ownership.others == (DaemonShare(other.sharing.ownership.own, other.slots),)

    await eventually(lambda: hears(first, second) and hears(second, first))
    second.sharing.ownership.own = second.sharing.ownership.own._replace(problem="billing: refused")
    await eventually(lambda: hears(first, second))
    await second.stop()
    await eventually(lambda: not first.sharing.ownership.others)


async def test_registrations_go_with_their_daemon(start: Start, zookeeper_connect: str) -> None:
    daemon = start()
    await wait_shared([daemon])
    zookeeper = ZooKeeper(zookeeper_connect)
    await zookeeper.start()
    assert len(await zookeeper.children(f"{ROOT}/{LINK}/owners")) == SLOTS
    await daemon.stop()
    assert not daemon.slots
    for folder in ("owners", "ids"):
        assert not await zookeeper.children(f"{ROOT}/{LINK}/{folder}")
    await zookeeper.stop()


def proxied(connect: str, proxy: Proxy) -> str:
    """The same ZooKeeper, and the same root in it, by way of the proxy."""
    address, slash, chroot = connect.partition("/")
    assert address
    return f"{proxy.address}{slash}{chroot}"
