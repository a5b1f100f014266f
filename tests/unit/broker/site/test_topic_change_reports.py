"""Reports to the brokers of a peer: which broker gets which report, and how long an answer waits
for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from broker.metadata.core.cluster_image import ClusterImage
from broker.metadata.core.image_updates import apply_batch, with_peer_view
from broker.site.topic_change_reports import TopicChangeReports
from tests.support.clients.scripted_broker import ScriptedBroker
from tests.support.eventually import eventually
from wire.control.broker_pb2 import ControlBatch
from wire.control.cluster_pb2 import (
    BrokerInfo,
    Endpoint,
    LinkPhase,
    LinkRecord,
    PartitionState,
    SiteView,
    TopicInfo,
)
from wire.protocol.messages.topics_changed_messages import TOPICS_CHANGED

OWN_ID, COPY_ID = b"o" * 16, b"c" * 16


class Peer:
    """A broker of site b that answers reports when it may."""

    def __init__(self, broker: ScriptedBroker) -> None:
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        self._broker = broker
        broker.on(TOPICS_CHANGED, self._answer)

    async def _answer(self, *_: Any) -> Any:
        await self.may_answer.wait()
        return {"error_code": ErrorCode.none}

    @property
    def reported(self) -> list[list[tuple[str, bool, int]]]:
        """For each report the topics: name, whether deleted, number of partitions."""
        return [
            [(topic.name, topic.is_deleted, len(topic.partitions)) for topic in request.topics]
            for request in self._broker.requests(TOPICS_CHANGED)
        ]

    def image(self, *, is_routed: bool = True) -> ClusterImage:
        """Site a's, which is active for topics that begin with a and passive for those that begin
        with b.
        """
        state = PartitionState(partition=0, leader=1, leader_epoch=0, replicas=[1], isr=[1])
        names = {"a1": OWN_ID, "b1": COPY_ID, "home": b"h" * 16, "__consumer_offsets": b"i" * 16}
        batch = ControlBatch(
            is_full=True,
            controller_epoch=1,
            brokers=[BrokerInfo(node_id=1)],
            topics=[TopicInfo(name=name, topic_id=key, partitions=[state]) for name, key in names.items()],
            links=[_link("there", "a", is_routed=is_routed), _link("back", "b", is_routed=is_routed)],
        )
        endpoint = Endpoint(listener="LINK", host=self._broker.address.host, port=self._broker.address.port)
        view = SiteView(site="b", version=1, brokers=[BrokerInfo(node_id=1001, endpoints=[endpoint])])
        return with_peer_view(apply_batch(ClusterImage(site="a", node_id=1), batch), view)


def _link(name: str, active: str, *, is_routed: bool) -> LinkRecord:
    return LinkRecord(
        name=name,
        source_site="a",
        target_site="b",
        epoch=1,
        active_site=active,
        phase=LinkPhase.MIRRORING,
        topic_whitelist=[f"{active}.*"],
        is_routed=is_routed,
    )


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    """A peer that answers."""
    async with ScriptedBroker() as broker:
        yield Peer(broker)


@pytest.fixture
async def news() -> AsyncIterator[TopicChangeReports]:
    """Reports that the fixture closes after the test."""
    made = TopicChangeReports()
    try:
        yield made
    finally:
        await made.close()


async def test_peers_get_the_topics_that_clients_may_request_and_no_copy(peer: Peer, news: TopicChangeReports) -> None:
    image = peer.image()
    await news.report(lambda: image, image.topics)
    await news.report(lambda: image, (), {"a2": OWN_ID, "b2": COPY_ID})
    await news.report(lambda: image, ["b1"])
    assert peer.reported == [[("a1", False, 1), ("home", False, 1)], [("a2", True, 0)]]


async def test_without_routing_no_report_is_sent(peer: Peer, news: TopicChangeReports) -> None:
    image = peer.image(is_routed=False)
    await news.report(lambda: image, ["a1", "home"])
    assert peer.reported == []


async def test_an_answer_waits_until_the_peers_broker_has_taken_the_report(
    peer: Peer, news: TopicChangeReports
) -> None:
    image = peer.image()
    peer.may_answer.clear()
    telling = asyncio.ensure_future(news.report(lambda: image, ["a1"]))
    await eventually(lambda: peer.reported)
    assert not telling.done()
    peer.may_answer.set()
    await telling


async def test_of_a_silent_broker_one_answer_waits_a_moment_and_those_after_it_not_at_all(
    peer: Peer, news: TopicChangeReports
) -> None:
    image = peer.image()
    peer.may_answer.clear()
    await news.report(lambda: image, ["a1"])
    for _ in range(100):
        await news.report(lambda: image, ["home"])
    assert peer.reported == [[("a1", False, 1)]], "one report is under way at a time"
    peer.may_answer.set()
    await eventually(lambda: _told_again(news, image, peer))
    peer.may_answer.clear()
    telling = asyncio.ensure_future(news.report(lambda: image, ["a1"]))
    before = len(peer.reported)
    await eventually(lambda: len(peer.reported) > before)
    assert not telling.done(), "it answers again, so that answers wait for it again"
    peer.may_answer.set()
    await telling


async def _told_again(news: TopicChangeReports, image: ClusterImage, peer: Peer) -> bool:
    await news.report(lambda: image, ["home"])
    return len(peer.reported) > 1


async def test_a_broker_that_is_not_there_delays_nothing_for_long(peer: Peer, news: TopicChangeReports) -> None:
    image = peer.image()
    await peer._broker.stop()
    for _ in range(5):
        await news.report(lambda: image, ["a1"])
    await peer._broker.start()
    await eventually(lambda: _reported(news, image, peer))


async def _reported(news: TopicChangeReports, image: ClusterImage, peer: Peer) -> bool:
    await news.report(lambda: image, ["a1"])
    return bool(peer.reported)
