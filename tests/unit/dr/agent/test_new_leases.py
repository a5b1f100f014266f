"""A link gets a lease only if the arbiter can grant its active site a permit: with a later epoch
there, of another link with this name, the site would stop writing.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from dr.agent.answers.answering import Refusal, raising
from dr.agent.answers.link_changes import LinkChanges
from dr.agent.arbiter import ArbiterSilent, KeptRecord
from dr.agent.links_store import LinksStore
from dr.agent.own_brokers import Enforcement
from dr.sites.core.link_checks import MODE_EXACT
from dr.sites.core.record_changes import changed
from tests.support.clock import ManualClock
from tests.unit.dr.agent.test_links_store import RECORD, Znodes
from wire.control.cluster_pb2 import LinkRecord
from wire.control.site_pb2 import AlterLinkRequest, ArbiterRecord
from wire.rules.links import KEPT_POLICY, other_site
from wire.znodes import layout as znodes
from wire.znodes import link_znodes

CONTEXT: Any = None
UNLEASED = changed(RECORD, mode=MODE_EXACT)
UNLEASED.topic_whitelist.append("orders")


class Site:
    """The agent of the active site of a link without a lease, and the arbiter's record."""

    def __init__(self, held: ArbiterRecord | None) -> None:
        self.held, self.is_arbiter_reachable = held, True
        zookeeper: Any = Znodes()
        zookeeper.kept[znodes.link_path("a-b")] = link_znodes.encode_link(UNLEASED), 0
        self._store = LinksStore(zookeeper)
        parts: Any = SimpleNamespace(
            store=self._store,
            cache=SimpleNamespace(facts=SimpleNamespace(links={"a-b": UNLEASED}), topic_names=()),
            arbiter=SimpleNamespace(record=self._record),
            peers=SimpleNamespace(is_confirmed=lambda _: True),
            leases=SimpleNamespace(request_open=lambda *_, **__: None),
            brokers=SimpleNamespace(wait_enforced=self._wait_enforced),
        )
        self._answers = LinkChanges(RECORD.active_site, ManualClock())
        self._answers.run_with(parts)

    async def _record(self, _link: str, **_: Any) -> KeptRecord | None:
        if not self.is_arbiter_reachable:
            raise ArbiterSilent("the arbiter does not answer")
        return None if self.held is None else KeptRecord(record=self.held, version=0)

    async def _wait_enforced(self, _record: LinkRecord, **_: Any) -> Enforcement:
        return Enforcement(problems=[], has_leaders=True)

    async def give_lease(self) -> int:
        """An operator gives the link a lease; the lease that is stored afterwards."""
        request = AlterLinkRequest(name="a-b", lease_ms=10_000, sync_policy=KEPT_POLICY)
        await raising(self._answers.AlterLink)(request, CONTEXT)
        return await self.lease_ms()

    async def lease_ms(self) -> int:
        """The stored lease."""
        return (await self._store.get("a-b"))[0].lease_ms


def held(*, epoch: int, active: str) -> ArbiterRecord:
    """A record at the arbiter."""
    return ArbiterRecord(link="a-b", epoch=epoch, active_site=active, is_open=True, lease_ms=10_000)


HERE, THERE = RECORD.active_site, other_site(RECORD, RECORD.active_site)


@pytest.mark.parametrize(
    "known",
    [held(epoch=RECORD.epoch + 1, active=HERE), held(epoch=RECORD.epoch, active=THERE)],
    ids=["later epoch", "another active site"],
)
async def test_no_lease_under_which_the_arbiter_grants_no_permit(known: ArbiterRecord) -> None:
    site = Site(known)
    with pytest.raises(Refusal, match="the arbiter is at epoch") as refused:
        await site.give_lease()
    assert refused.value.code is grpc.StatusCode.FAILED_PRECONDITION
    assert await site.lease_ms() == 0


async def test_no_lease_while_the_arbiter_does_not_answer() -> None:
    site = Site(None)
    site.is_arbiter_reachable = False
    with pytest.raises(Refusal, match="does not answer"):
        await site.give_lease()
    assert await site.lease_ms() == 0


@pytest.mark.parametrize(
    "known",
    [None, held(epoch=RECORD.epoch, active=HERE), held(epoch=RECORD.epoch - 1, active=THERE)],
    ids=["none", "the same", "former epoch"],
)
async def test_a_lease_that_the_arbiter_can_serve(known: ArbiterRecord | None) -> None:
    assert await Site(known).give_lease() == 10_000
