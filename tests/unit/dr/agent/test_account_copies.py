"""Accounts of failovers reach the site that became passive, also when they are written after that
site knows the epoch.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from dr.agent.account_copies import AccountCopies
from dr.agent.epoch_work import FIRST_AFTER_MS
from dr.sites.core.loss import LossAccount
from tests.support.clock import ManualClock
from wire.control.cluster_pb2 import LinkPhase, LinkRecord, LinkSite


def account(epoch: int) -> str:
    return LossAccount(
        link="a-b", epoch=epoch, from_site="a", to_site="b", accounted_at_ms=0, partitions=(), leader_epoch_floor=1
    ).to_json()


class Store:
    """A site's store of accounts."""

    def __init__(self) -> None:
        self.kept: dict[int, str] = {}

    async def stored(self, _: str) -> dict[int, str]:
        """The stored accounts by epoch."""
        return dict(self.kept)

    async def record(self, _: str, *, epoch: int, document: str) -> None:
        """Stores one account."""
        self.kept[epoch] = document


class Peer:
    """The active site's agent."""

    def __init__(self) -> None:
        self.accounts: list[str] = []
        self.asked = 0

    async def ListFailovers(self, _: object, **_options: float) -> SimpleNamespace:
        """Lists the accounts as SiteAgent does."""
        self.asked += 1
        return SimpleNamespace(json=self.accounts)


def record(*, active: str, epoch: int) -> LinkRecord:
    return LinkRecord(
        name="a-b",
        source_site="a",
        target_site="b",
        epoch=epoch,
        active_site=active,
        phase=LinkPhase.MIRRORING,
        sites={"b": LinkSite(agents=["b:1"])},
    )


def copies_at_a() -> tuple[AccountCopies, Store, Peer, ManualClock]:
    store, peer, clock = Store(), Peer(), ManualClock()
    channels: Any = SimpleNamespace(site_agent=lambda _: peer)
    given: Any = SimpleNamespace(accounts=store)
    return AccountCopies("a", given, channels, clock), store, peer, clock


async def test_an_account_that_is_written_after_the_epoch_is_known_is_copied_when_it_is_there() -> None:
    copies, store, peer, clock = copies_at_a()
    peer.accounts = [account(2)]
    await copies.look(record(active="b", epoch=4))
    assert not store.kept, "first come the clients that move"
    clock.advance(FIRST_AFTER_MS)
    await copies.look(record(active="b", epoch=4))
    assert list(store.kept) == [2]
    peer.accounts.append(account(4))
    await copies.look(record(active="b", epoch=4))
    assert list(store.kept) == [2]
    clock.advance(1_000)
    await copies.look(record(active="b", epoch=4))
    assert list(store.kept) == [2, 4]
    clock.advance(1_000_000)
    await copies.look(record(active="b", epoch=4))
    assert peer.asked == 2


async def test_the_active_site_and_a_link_that_was_never_failed_over_have_nothing_to_copy() -> None:
    copies, store, peer, _ = copies_at_a()
    peer.accounts = [account(2)]
    await copies.look(record(active="a", epoch=4))
    await copies.look(record(active="b", epoch=1))
    assert (store.kept, peer.asked) == ({}, 0)


async def test_an_epoch_without_an_account_is_looked_for_ever_more_seldom() -> None:
    copies, _, peer, clock = copies_at_a()
    for _ in range(600):
        await copies.look(record(active="b", epoch=3))
        clock.advance(1_000)
    assert 10 <= peer.asked <= 20
