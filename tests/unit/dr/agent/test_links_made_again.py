"""A link is made again under the name of a former one whose record the arbiter still has, because
it did not answer after the deletion.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from dr.agent.answers.answering import Refusal, raising
from dr.agent.answers.link_changes import LinkChanges
from dr.agent.arbiter import ArbiterSilent, KeptRecord
from dr.agent.links_store import LinkConflict, LinksStore
from dr.sites.core.fencing import FIRST_EPOCH
from dr.sites.core.link_checks import MODE_EXACT
from tests.support.clock import ManualClock
from tests.unit.dr.agent.test_links_store import Znodes
from wire.control.cluster_pb2 import LinkPhase, LinkRecord, LinkSite
from wire.control.site_pb2 import ArbiterRecord, CreateLinkRequest

CONTEXT: Any = None


def leased(epoch: int = FIRST_EPOCH) -> LinkRecord:
    """The record of a link from a to b."""
    return LinkRecord(
        name="a-b",
        source_site="a",
        target_site="b",
        mode=MODE_EXACT,
        epoch=epoch,
        active_site="a",
        phase=LinkPhase.MIRRORING,
        topic_whitelist=[".*"],
        lease_ms=10_000,
        sites={name: LinkSite(bootstrap_servers=f"{name}:1", agents=[f"{name}:2"]) for name in "ab"},
    )


def without_links() -> Any:
    """The znodes of a site that has no link."""
    found = Znodes()
    found.kept.clear()
    return found


class World:
    """The arbiter with the record of a former link, and the agents of two sites."""

    def __init__(self, *, epoch: int = 3, active: str = "a") -> None:
        self.held: ArbiterRecord | None = ArbiterRecord(link="a-b", epoch=epoch, active_site=active, is_open=True)
        self.answers_left = 100
        self.stores = {site: LinksStore(without_links()) for site in "ab"}

    async def _record(self, _link: str, **_: Any) -> KeptRecord | None:
        if not self.answers_left:
            raise ArbiterSilent("the arbiter does not answer")
        self.answers_left -= 1
        return None if self.held is None else KeptRecord(record=self.held, version=0)

    async def _delete(self, link: str, *, epoch: int, **_: Any) -> None:
        found = await self._record(link)
        assert found is not None
        assert found.record.epoch == epoch
        self.held = None

    async def create(self, record: LinkRecord, *sites: str) -> None:
        """Create the link at the sites, one after the other."""
        for site in sites:
            parts: Any = SimpleNamespace(
                store=self.stores[site],
                cache=SimpleNamespace(facts=SimpleNamespace(links={}), topic_names=()),
                arbiter=SimpleNamespace(record=self._record, delete=self._delete),
            )
            answers = LinkChanges(site, ManualClock())
            answers.run_with(parts)
            await raising(answers.CreateLink)(CreateLinkRequest(record=record), CONTEXT)


@pytest.mark.parametrize("active", ["a", "b"])
async def test_the_site_that_was_active_removes_the_record_of_the_former_link(active: str) -> None:
    world = World(active=active)
    await world.create(leased(), "b", "a")
    assert world.held is None
    assert (await world.stores["a"].get("a-b"))[0] == leased()


async def test_the_record_stays_while_the_site_that_was_active_has_the_link() -> None:
    world = World()
    await world.stores["a"].create(leased(epoch=3))
    with pytest.raises(LinkConflict):
        await world.create(leased(), "b", "a")
    assert world.held is not None


async def test_the_record_of_other_sites_and_of_a_later_epoch_of_this_link_stays() -> None:
    for record, world in ((leased(), World(active="c")), (leased(epoch=2), World())):
        with pytest.raises(Refusal, match="the arbiter knows another link 'a-b', at epoch 3"):
            await world.create(record, "a")
        assert world.held is not None


async def test_the_operator_learns_that_the_record_could_not_be_removed() -> None:
    world = World()
    world.answers_left = 1
    with pytest.raises(Refusal, match="make the link again when the arbiter answers") as refused:
        await world.create(leased(), "a")
    assert refused.value.code is grpc.StatusCode.FAILED_PRECONDITION
