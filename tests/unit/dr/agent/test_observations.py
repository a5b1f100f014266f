"""Answers that consist of other answers, and that are given again while nothing changes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from kazoo.exceptions import ConnectionLoss

from dr.agent.answers.answering import answers
from dr.agent.answers.link_descriptions import LinkDescriptions
from dr.agent.answers.observations import Observations
from dr.sites.core.unprotected_topics import unprotected_topics
from tests.support.clock import ManualClock
from wire.control import site_pb2 as site
from wire.control.cluster_pb2 import LinkRecord, PartitionState, SiteView, TopicInfo
from wire.znodes.topic_znodes import TopicAssignment


class Aborted(Exception):
    """What gRPC raises in a handler that aborts its call."""


class Call:
    """The context of one call, which may be aborted once."""

    def __init__(self) -> None:
        self.statuses: list[grpc.StatusCode] = []

    def set_trailing_metadata(self, _: Any) -> None:
        """Nothing reads it here."""

    async def abort(self, code: grpc.StatusCode, _: str) -> None:
        self.statuses.append(code)
        raise Aborted


@answers
async def without_zookeeper(_agent: Any, _request: Any, _context: Any) -> Any:
    raise ConnectionLoss


class Agent(Observations):
    """An agent that has lost its ZooKeeper."""

    def __init__(self) -> None:
        """Without the parts of an agent."""

    DescribeLink = GetSiteView = ListLinks = ListFailovers = DescribeGroups = without_zookeeper  # type: ignore[assignment]


async def test_a_call_whose_parts_all_fail_has_one_status() -> None:
    call: Any = Call()
    with pytest.raises(Aborted):
        await Agent().ObserveLink(site.ObserveLinkRequest(link="a-b"), call)
    assert call.statuses == [grpc.StatusCode.UNAVAILABLE]


def test_the_topics_that_a_site_lacks_are_found_anew_when_a_topic_or_the_link_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """There may be thousands of partitions, and writers wait while a failover asks."""
    calls: list[str] = []

    def find(own: Any, peer: Any, link: LinkRecord, *, site: str) -> Any:
        calls.append(link.name)
        return unprotected_topics(own, peer, link, site=site)

    monkeypatch.setattr("dr.agent.answers.link_descriptions.unprotected_topics", find)
    view = SiteView(topics=[TopicInfo(name="t", partitions=[PartitionState(partition=3)])], topics_version=1)
    cache = SimpleNamespace(topic_changes=1, facts=SimpleNamespace(topics={}))
    peers = SimpleNamespace(peer=lambda _: SimpleNamespace(view=view))
    agent: Any = LinkDescriptions("b", ManualClock())
    agent._running = SimpleNamespace(cache=cache, peers=peers)
    link = LinkRecord(name="a-b", source_site="a", target_site="b", active_site="a", topic_whitelist=["t"], epoch=1)

    def lacking() -> list[tuple[str, tuple[int, ...]]]:
        return [(one.topic, one.partitions) for one in agent._unprotected(link)]

    assert lacking() == lacking() == [("t", (3,))]
    link = LinkRecord(name="a-b", source_site="a", target_site="b", active_site="a", topic_whitelist=["t"], epoch=2)
    view.version = 2
    assert lacking() == [("t", (3,))]
    assert len(calls) == 1
    view.topics_version = 2
    view.topics[0].partitions.add(partition=4)
    assert lacking() == [("t", (3, 4))]
    cache.topic_changes = 2
    cache.facts.topics = {"t": TopicAssignment(topic_id=b"", partitions={3: (1,)})}
    assert lacking() == [("t", (4,))]
    link = LinkRecord(name="a-b", source_site="a", target_site="b", active_site="a", topic_whitelist=["u"], epoch=2)
    assert lacking() == []
    # a peer of an earlier release sends no version of its topics
    view.topics_version = 0
    assert lacking() == lacking() == []
    assert len(calls) == 6
