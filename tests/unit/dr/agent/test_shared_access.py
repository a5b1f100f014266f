"""The access rules that both sites of a link have had, as a site's agents keep them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import grpc
import pytest
from kazoo.exceptions import BadVersionError, NodeExistsError

from dr.agent.answers.access_rules import AccessRuleAnswers
from dr.agent.answers.answering import Refusal, raising
from dr.agent.links_store import LinkConflict, LinksStore
from dr.agent.shared_access import OtherEpoch, SharedAccessStore
from dr.sites.site_client import SiteUnreachable
from runtime.zookeeper.nodes import CreateNode
from tests.support.clock import ManualClock
from wire.control.cluster_pb2 import LinkPhase, LinkRecord, LinkSite
from wire.control.site_pb2 import GetSharedAccessReply, GetSharedAccessRequest, SharedAccess
from wire.protocol.ids import UNKNOWN
from wire.znodes.layout import link_path
from wire.znodes.link_znodes import encode_link

CONTEXT: Any = None
OLD, NEW = SharedAccess(epoch=2, by_part={"ACLs": b"oldolder"}), SharedAccess(epoch=4, by_part={"ACLs": b"newnewer"})


def record(*, active: str, epoch: int) -> LinkRecord:
    sites = {name: LinkSite(agents=[f"{name}:1"]) for name in "ab"}
    return LinkRecord(
        name="a-b",
        source_site="a",
        target_site="b",
        epoch=epoch,
        active_site=active,
        phase=LinkPhase.MIRRORING,
        sites=sites,
    )


class Znodes:
    """The znodes of one link."""

    def __init__(self, link: LinkRecord) -> None:
        self.kept = {link_path("a-b"): (encode_link(link), 0)}

    async def get_or_none(self, path: str) -> tuple[bytes, Any] | None:
        found = self.kept.get(path)
        return None if found is None else (found[0], SimpleNamespace(version=found[1]))

    async def transaction(self, steps: Any) -> None:
        for step in steps:
            if isinstance(step, CreateNode):
                if step.path in self.kept:
                    raise NodeExistsError
            elif self.kept[step.path][1] != step.version:
                raise BadVersionError
        for step in steps:
            if isinstance(step, CreateNode):
                self.kept[step.path] = step.value, 0
            elif hasattr(step, "value"):
                self.kept[step.path] = step.value, step.version + 1


class Failed(grpc.aio.AioRpcError):
    def __init__(self, code: grpc.StatusCode) -> None:
        super().__init__(code, grpc.aio.Metadata(), grpc.aio.Metadata(), "refused")


def site(name: str, znodes: Znodes, peer: Callable[[], SharedAccess]) -> SharedAccessStore:
    async def ask(request: GetSharedAccessRequest, **_options: float) -> GetSharedAccessReply:
        assert request.epoch == 5
        return GetSharedAccessReply(shared=peer(), version=7)

    channels: Any = SimpleNamespace(site_agent=lambda _: SimpleNamespace(GetSharedAccess=ask))
    zookeeper: Any = znodes
    return SharedAccessStore(name, LinksStore(zookeeper), zookeeper, channels)


def not_asked() -> SharedAccess:
    raise AssertionError("the other site was asked")


async def test_the_standby_takes_what_the_site_that_is_active_stored_as_the_earlier_standby() -> None:
    znodes = Znodes(record(active="a", epoch=5))
    standby = site("b", znodes, lambda: NEW)
    assert await standby.newest("a-b", epoch=5) == GetSharedAccessReply(shared=NEW, version=UNKNOWN)
    assert await site("a", znodes, not_asked).newest("a-b", epoch=5) == GetSharedAccessReply(version=UNKNOWN)
    mine = SharedAccess(epoch=5, by_part={"ACLs": b"mine"})
    assert await standby.replace("a-b", mine, version=UNKNOWN) == 0
    own = site("b", znodes, not_asked)
    assert await own.newest("a-b", epoch=5) == GetSharedAccessReply(shared=mine, version=0), (
        "the epoch of the link is stored"
    )


async def test_of_two_sites_the_later_epoch_counts() -> None:
    znodes = Znodes(record(active="a", epoch=4))
    await site("b", znodes, not_asked).replace("a-b", NEW, version=UNKNOWN)
    znodes.kept[link_path("a-b")] = encode_link(record(active="a", epoch=5)), 1
    assert (await site("b", znodes, lambda: OLD).newest("a-b", epoch=5)).shared == NEW


async def test_an_active_site_that_stores_none_leaves_the_own_ones() -> None:
    def refused(code: grpc.StatusCode) -> SharedAccessStore:
        def fail() -> SharedAccess:
            raise Failed(code)

        return site("b", Znodes(record(active="a", epoch=5)), fail)

    for code in (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.NOT_FOUND):
        assert await refused(code).newest("a-b", epoch=5) == GetSharedAccessReply(version=UNKNOWN)
    with pytest.raises(SiteUnreachable):
        await refused(grpc.StatusCode.UNAVAILABLE).newest("a-b", epoch=5)


async def test_only_the_expected_version_at_the_epoch_of_the_link_is_replaced() -> None:
    store = site("b", Znodes(record(active="a", epoch=4)), not_asked)
    assert await store.replace("a-b", NEW, version=UNKNOWN) == 0
    assert await store.replace("a-b", NEW, version=0) == 1
    for version in (UNKNOWN, 0):
        with pytest.raises(LinkConflict):
            await store.replace("a-b", NEW, version=version)
    with pytest.raises(LinkConflict, match="at epoch 4, not 2"):
        await store.replace("a-b", OLD, version=1)


@pytest.mark.parametrize("known", [4, 6])
async def test_an_agent_that_knows_another_epoch_than_the_asker_leaves_the_answer_to_another(known: int) -> None:
    """The agent of the standby lags: it still knows the epoch in which its site was active, and
    stored no rules. With these the mirror would take a rule that the active site has removed for
    one that only the standby has had, and the rule would be in force after a failover back.
    """
    lagging = site("b", Znodes(record(active="b", epoch=known)), not_asked)
    with pytest.raises(OtherEpoch, match=f"at epoch {known} at this agent of site b, not 5"):
        await lagging.newest("a-b", epoch=5)
    answers = AccessRuleAnswers("b", ManualClock())
    answers.run_with(cast("Any", SimpleNamespace(shared_access=lagging)))
    with pytest.raises(Refusal, match="at epoch") as refused:
        await raising(answers.GetSharedAccess)(GetSharedAccessRequest(link="a-b", epoch=5), CONTEXT)
    assert refused.value.code is grpc.StatusCode.UNAVAILABLE
    reply = await raising(answers.GetSharedAccess)(GetSharedAccessRequest(link="a-b"), CONTEXT)
    assert reply.version == UNKNOWN, "an asker of an earlier release names no epoch"
