"""The watch over a peer continues after every error, at the peer and at home."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from dr.agent.core import answer_times
from dr.agent.peer_watch import PeerWatch
from runtime.clock import SystemClock
from tests.support.eventually import eventually
from wire.control.broker_pb2 import ConfirmLinkReply, PeerViewConfirmedReply, UpdatePeerViewReply
from wire.control.cluster_pb2 import LinkRecord, LinkSite, SiteView, TopicInfo
from wire.control.site_pb2 import GetSiteViewReply, ListLinksReply
from wire.znodes.documents import MalformedZnode

LINK = LinkRecord(
    name="a-b",
    source_site="a",
    target_site="b",
    active_site="a",
    epoch=1,
    sites={"a": LinkSite(agents=["a:1"]), "b": LinkSite(agents=["b:1"])},
)
REFUSED = grpc.aio.AioRpcError(grpc.StatusCode.UNKNOWN, grpc.aio.Metadata(), grpc.aio.Metadata(), "a defect")


class Home:
    """The own broker and the peer's agent, with the behaviour that the test sets."""

    def __init__(self) -> None:
        self.views: list[SiteView] = []
        self.confirmed: list[str] = []
        self.stood: list[str] = []
        """Peers of which the broker learned that their view is still the same."""
        self.in_the_way: list[BaseException] = []
        """What the next questions to the peer meet."""

    def broker_control(self, _: str) -> Any:
        return self

    def site_agent(self, _: str) -> Any:
        return self

    async def GetSiteView(self, _: Any, *, timeout: float) -> GetSiteViewReply:  # noqa: ASYNC109
        if self.in_the_way:
            raise self.in_the_way.pop()
        return GetSiteViewReply(view=SiteView(site="b", version=1, links=[LINK]))

    async def UpdatePeerView(self, view: SiteView, *, timeout: float) -> UpdatePeerViewReply:  # noqa: ASYNC109
        self.views.append(view)
        return UpdatePeerViewReply()

    async def PeerViewConfirmed(self, request: Any, *, timeout: float) -> PeerViewConfirmedReply:  # noqa: ASYNC109
        self.stood.append(request.site)
        return PeerViewConfirmedReply()

    async def ConfirmLink(self, request: Any, *, timeout: float) -> ConfirmLinkReply:  # noqa: ASYNC109
        self.confirmed.append(request.link)
        return ConfirmLinkReply(is_confirmed=True)


def watching(home: Home, on_level: Callable[[LinkRecord], Any]) -> PeerWatch:
    cache: Any = SimpleNamespace(facts=SimpleNamespace(links={"a-b": LINK}), on_change=lambda _: None)

    async def unchanged(*_: object) -> bool:
        return False

    parts: Any = {"store": NotImplemented, "channels": home, "leases": NotImplemented, "on_answers": unchanged}
    return PeerWatch(site="a", cache=cache, broker_address="a:1", clock=SystemClock(), on_level=on_level, **parts)


@pytest.mark.parametrize("met", [REFUSED, KeyError("a malformed answer"), asyncio.CancelledError()])
async def test_an_unexpected_failure_of_the_peer_or_of_the_way_to_it_delays_the_watch_and_does_not_end_it(
    met: BaseException,
) -> None:
    home = Home()
    home.in_the_way = [met]

    async def on_level(_: LinkRecord) -> None:
        """Nothing is to be done."""

    watch = watching(home, on_level)
    watch.start()
    try:
        await eventually(lambda: home.views and home.confirmed)
    finally:
        await watch.stop()


async def test_a_link_that_was_made_again_is_confirmed_again() -> None:
    """It begins with the same epoch, and a tick may last longer than its deletion."""
    home = Home()

    async def level(_: LinkRecord) -> None:
        pass

    watch = watching(home, level)
    await watch.tick()
    await watch.tick()
    assert home.confirmed == ["a-b"]
    again = LinkRecord()
    again.CopyFrom(LINK)
    again.made_at_ms = 1_000
    links: Any = watch._cache.facts.links
    links["a-b"] = again
    assert not watch.is_confirmed(again)
    await watch.tick()
    assert home.confirmed == ["a-b", "a-b"]


async def test_the_own_broker_gets_the_peers_view_although_the_links_cannot_be_looked_after() -> None:
    home, looks = Home(), 0

    async def on_level(_: LinkRecord) -> None:
        nonlocal looks
        looks += 1
        raise REFUSED

    watch = watching(home, on_level)
    watch.start()
    try:
        await eventually(lambda: home.views and looks >= 2)
    finally:
        await watch.stop()


async def test_the_own_broker_learns_at_every_look_that_a_view_which_it_has_still_stands() -> None:
    """Reports of peers' brokers are dropped only if a newer view contradicts them."""
    home = Home()

    async def on_level(_: LinkRecord) -> None:
        """Nothing is to be done."""

    watch = watching(home, on_level)
    for _ in range(3):
        await watch.tick()
    assert (len(home.views), home.stood) == (1, ["b", "b"])


async def test_topics_that_peer_and_broker_have_are_left_out_until_the_broker_lacks_them() -> None:
    home, asked = Home(), list[int]()
    topics = [TopicInfo(name="flights", topic_id=b"i" * 16)]

    async def get_site_view(request: Any, *, timeout: float) -> GetSiteViewReply:  # noqa: ASYNC109
        asked.append(request.known_topics_version)
        is_brief = request.known_topics_version == 5
        view = SiteView(site="b", version=len(asked), links=[LINK], topics_version=5, has_known_topics=is_brief)
        view.topics.extend([] if is_brief else topics)
        return GetSiteViewReply(view=view)

    async def update_peer_view(view: SiteView, *, timeout: float) -> UpdatePeerViewReply:  # noqa: ASYNC109
        home.views.append(view)
        return UpdatePeerViewReply(lacks_topics=len(home.views) == 3)

    async def on_level(_: LinkRecord) -> None:
        """Nothing is to be done."""

    home.GetSiteView, home.UpdatePeerView = get_site_view, update_peer_view  # type: ignore[method-assign]
    watch = watching(home, on_level)
    for _ in range(3):
        await watch.tick()
    assert asked == [0, 5, 5]
    assert list(watch.peer("b").view.topics) == topics
    pushed = [(view.version, view.has_known_topics, len(view.topics)) for view in home.views]
    assert pushed == [(1, False, 1), (2, True, 0), (3, True, 0), (3, False, 1)]


async def test_a_link_whose_znode_is_malformed_keeps_no_other_link_to_the_peer_from_its_turn() -> None:
    home = Home()
    second = LinkRecord()
    second.CopyFrom(LINK)
    second.name = "a-b-2"

    async def on_level(record: LinkRecord) -> None:
        if record.name == "a-b":
            raise MalformedZnode("/antipode/links/a-b", "it is no link")

    watch = watching(home, on_level)
    watch._cache = SimpleNamespace(facts=SimpleNamespace(links={"a-b": LINK, "a-b-2": second}))  # type: ignore[assignment]

    async def both(_: Any, *, timeout: float) -> GetSiteViewReply:  # noqa: ASYNC109
        return GetSiteViewReply(view=SiteView(site="b", version=1, links=[LINK, second]))

    home.GetSiteView = both  # type: ignore[method-assign]
    await watch.tick()
    assert home.confirmed == ["a-b", "a-b-2"]


class Slow(Home):
    """The peer's agent does not answer with its view in time."""

    def __init__(self, *, is_there: bool) -> None:
        super().__init__()
        self.is_there = is_there
        self.deadlines_s: list[float] = []
        self.probed = asyncio.Event()

    async def GetSiteView(self, _: Any, *, timeout: float) -> GetSiteViewReply:  # noqa: ASYNC109
        self.deadlines_s.append(timeout)
        await self.probed.wait()
        raise grpc.aio.AioRpcError(grpc.StatusCode.DEADLINE_EXCEEDED, grpc.aio.Metadata(), grpc.aio.Metadata())

    async def ListLinks(self, _: Any, *, timeout: float) -> ListLinksReply:  # noqa: ASYNC109
        self.probed.set()
        if self.is_there:
            return ListLinksReply()
        raise grpc.aio.AioRpcError(grpc.StatusCode.DEADLINE_EXCEEDED, grpc.aio.Metadata(), grpc.aio.Metadata())


@pytest.mark.parametrize(("is_there", "deadlines_s"), [(True, [0.05, 0.1, 0.1]), (False, [0.05, 0.05, 0.05])])
async def test_only_an_agent_that_is_there_is_awaited_for_longer(
    monkeypatch: pytest.MonkeyPatch, is_there: bool, deadlines_s: list[float]
) -> None:
    monkeypatch.setattr(answer_times, "DEADLINE_MS_MIN", 50.0)
    monkeypatch.setattr(answer_times, "DEADLINE_MS_MAX", 100.0)
    home = Slow(is_there=is_there)
    watch = watching(home, lambda _: None)
    for _ in deadlines_s:
        home.probed = asyncio.Event()
        await watch.tick()
        assert not watch.peer("b").is_reachable
    assert home.deadlines_s == deadlines_s
