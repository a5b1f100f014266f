"""A renewal whose answer arrives after the site has released the link gives the broker no permit:
the other site opens its epoch as soon as no holder is registered.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from dr.agent.arbiter import KeptRecord
from dr.agent.leases.keeper import LeaseKeeper
from dr.agent.leases.permits import WITHDRAWN
from dr.sites.core.fencing import fenced, given_back
from tests.support.eventually import eventually
from wire.control.broker_pb2 import ConfirmLinkReply, ConfirmLinkRequest
from wire.control.cluster_pb2 import LinkPhase, LinkRecord
from wire.control.site_pb2 import ArbiterRecord
from wire.znodes.arbiter_znodes import Holder

ADDRESS = "127.0.0.1:1"
RECORD = LinkRecord(
    name="a-b",
    source_site="a",
    target_site="b",
    active_site="a",
    epoch=1,
    phase=LinkPhase.MIRRORING,
    lease_ms=600_000,
)


class Site:
    """Site a with one broker, and the arbiter: the doors of the keeper under test.
    `answer_renewals` lets the arbiter's answers arrive.
    """

    def __init__(self) -> None:
        self.answer_renewals = asyncio.Event()
        self.knows_epochs = True
        """False while the broker's image of the link lags."""
        self.renewals = self.ended_renewals = 0
        self._on_change: Callable[[], None] = lambda: None
        self.holders: set[Holder] = set()
        self.permits: list[int] = []
        """The permits that the broker has received; a negative one is a withdrawal."""
        broker = SimpleNamespace(ConfirmLink=self._confirm)
        self.facts = SimpleNamespace(
            links={"a-b": RECORD},
            brokers={1: (SimpleNamespace(grpc_address=ADDRESS), None)},
            has_lowest_node_id=lambda _address: False,
        )
        arbiter: Any = SimpleNamespace(
            silence="",
            is_reachable=False,
            record=self._record,
            keep_presence=self._nothing,
            register_holder=self._register,
            release_holder=self._release,
            renew=self._renew,
        )
        store: Any = SimpleNamespace(store_opened=self._nothing, vows=self._no_vows)
        cache: Any = SimpleNamespace(facts=self.facts, on_change=self._note_callback)
        channels: Any = SimpleNamespace(broker_control=lambda _address: broker)
        clock: Any = SimpleNamespace(monotonic_ms=lambda: 1_000.0)
        self.keeper = LeaseKeeper(
            site="a",
            arbiter=arbiter,
            cache=cache,
            store=store,
            channels=channels,
            broker_address=ADDRESS,
            clock=clock,
        )

    def change(self, record: LinkRecord) -> None:
        """The site's ZooKeeper has this record from now on, as this agent sees it."""
        self.facts.links["a-b"] = record
        self._on_change()

    def _note_callback(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change

    async def _confirm(self, request: ConfirmLinkRequest, *, timeout: float) -> ConfirmLinkReply:  # noqa: ASYNC109
        self.permits.append(request.permit_until_ms)
        return ConfirmLinkReply(is_confirmed=self.knows_epochs and request.permit_until_ms > 0)

    async def _record(self, _link: str, **_: Any) -> KeptRecord:
        epoch = self.facts.links["a-b"].epoch
        record = ArbiterRecord(link="a-b", epoch=epoch, active_site="a", is_open=True, lease_ms=RECORD.lease_ms)
        return KeptRecord(record=record, version=1)

    async def _register(self, _link: str, holder: Holder, **_: Any) -> tuple[int, bool]:
        self.holders.add(holder)
        return 0, False

    async def _release(self, _link: str, holder: Holder, **_: Any) -> None:
        self.holders.discard(holder)

    async def _renew(self, _link: str, **_: Any) -> None:
        self.renewals += 1
        await self.answer_renewals.wait()
        self.ended_renewals += 1

    async def _no_vows(self, _link: str) -> dict[str, int]:
        return {}

    async def _nothing(self, *_: Any, **__: Any) -> None:
        return


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    site.keeper.start()
    yield site
    await site.keeper.stop()


async def test_a_renewal_gives_a_permit(site: Site) -> None:
    site.answer_renewals.set()
    await eventually(lambda: site.keeper.has_permit(RECORD))
    assert [until_ms > 0 for until_ms in site.permits] == [True]


async def test_a_renewal_that_is_answered_after_the_release_gives_none(site: Site) -> None:
    await eventually(lambda: site.renewals > 0)
    site.change(fenced(RECORD, now_ms=1))
    await eventually(lambda: site.permits == [WITHDRAWN] and not site.holders)
    site.answer_renewals.set()
    await eventually(lambda: site.ended_renewals == site.renewals)
    await site.keeper.stop()
    assert site.permits == [WITHDRAWN]
    assert not site.keeper.has_permit(RECORD)


async def test_a_holder_is_released_although_its_broker_has_accepted_no_permit_since_the_last_release(
    site: Site,
) -> None:
    """The other site would wait for a whole lease before it opens its epoch."""
    site.answer_renewals.set()
    await eventually(lambda: site.keeper.has_permit(RECORD))
    site.change(fenced(RECORD, now_ms=1))
    await eventually(lambda: site.permits[-1] == WITHDRAWN and not site.holders)
    site.knows_epochs = False
    site.change(given_back(fenced(RECORD, now_ms=1), now_ms=2))
    await eventually(lambda: site.permits[-1] > 0 and bool(site.holders))
    site.change(fenced(site.facts.links["a-b"], now_ms=3))
    await eventually(lambda: not site.holders)
    assert site.permits[-1] == WITHDRAWN
