"""A link with a lease is deleted at its site first, and forgotten at the arbiter afterwards: until
then a failover may raise its epoch, and has to wait for the holders of permits that the arbiter
knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from dr.agent.answers.answering import Refusal, raising
from dr.agent.answers.link_changes import LinkChanges
from dr.agent.arbiter import ArbiterSilent
from dr.agent.links_store import LinkConflict
from dr.sites.core.record_changes import changed
from tests.support.clock import ManualClock
from tests.unit.dr.agent.test_links_store import RECORD
from wire.control.site_pb2 import DeleteLinkRequest
from wire.rules.links import other_site

CONTEXT: Any = None
LEASED = changed(RECORD, lease_ms=10_000)


class Site:
    """The agent of a site with one link, and the arbiter. `happens_meanwhile` is what another
    process does while the deletion is under way.
    """

    def __init__(self, happens_meanwhile: str = "", *, name: str = "", present: Sequence[str] = ()) -> None:
        self.happens_meanwhile, self._present = happens_meanwhile, present
        self.is_stored = self.is_at_arbiter = self.is_arbiter_reachable = True
        cache = SimpleNamespace(facts=SimpleNamespace(links={"a-b": LEASED}))
        parts: Any = SimpleNamespace(
            store=SimpleNamespace(get=self._get, delete=self._delete),
            arbiter=SimpleNamespace(record=self._record, delete=self._forget, present=self._brokers_at_arbiter),
            cache=cache,
        )
        self._answers = LinkChanges(name or LEASED.active_site, ManualClock())
        self._answers.run_with(parts)

    async def _get(self, _name: str) -> Any:
        return LEASED, 0

    async def _delete(self, _name: str, **_: Any) -> Any:
        if self.happens_meanwhile == "raise":
            raise LinkConflict("link 'a-b' is at a later epoch", LEASED)
        if self.happens_meanwhile == "lease":
            self.is_at_arbiter = True  # an agent finds no record there, and stores one again
        self.is_stored = False
        return LEASED

    async def _record(self, _link: str, **_: Any) -> None:
        if not self.is_arbiter_reachable:
            raise ArbiterSilent("the arbiter does not answer")

    async def _forget(self, _link: str, **_: Any) -> None:
        await self._record(_link)
        self.is_at_arbiter = False

    async def _brokers_at_arbiter(self, site: str, **_: Any) -> Sequence[str]:
        assert site == LEASED.active_site
        return self._present

    async def delete(self) -> None:
        """An operator deletes the link."""
        await raising(self._answers.DeleteLink)(DeleteLinkRequest(name="a-b", epoch=LEASED.epoch), CONTEXT)


@pytest.mark.parametrize("happens_meanwhile", ["", "lease"])
async def test_a_deleted_link_is_forgotten_at_the_arbiter(happens_meanwhile: str) -> None:
    site = Site(happens_meanwhile)
    await site.delete()
    assert (site.is_stored, site.is_at_arbiter) == (False, False)


async def test_a_link_whose_epoch_a_failover_raises_meanwhile_stays_at_the_arbiter() -> None:
    site = Site("raise")
    with pytest.raises(LinkConflict):
        await site.delete()
    assert site.is_at_arbiter


async def test_a_link_that_the_arbiter_would_keep_is_not_deleted() -> None:
    site = Site()
    site.is_arbiter_reachable = False
    with pytest.raises(Refusal, match="remove the lease first") as refused:
        await site.delete()
    assert refused.value.code is grpc.StatusCode.FAILED_PRECONDITION
    assert site.is_stored


@pytest.mark.parametrize(("present", "is_at_arbiter"), [(["1"], True), ([], False)])
async def test_a_passive_site_leaves_the_record_to_an_active_one_that_reaches_the_arbiter(
    present: Sequence[str], is_at_arbiter: bool
) -> None:
    """The operator's command may end before the active site has deleted the link."""
    site = Site(name=other_site(LEASED, LEASED.active_site), present=present)
    await site.delete()
    assert (site.is_stored, site.is_at_arbiter) == (False, is_at_arbiter)
