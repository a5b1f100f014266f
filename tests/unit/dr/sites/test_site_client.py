"""The agents of a site that is lost: a question costs two deadlines, however many there are. An
agent that is there and cannot answer at the moment is asked again.
"""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest
from kazoo.exceptions import SessionExpiredError

from dr.agent.answers.answering import Answers, answers
from dr.sites.channels import Channels
from dr.sites.site_client import SiteClient, SiteInterrupted, SiteUnreachable
from runtime.grpc_server import GrpcServer
from tests.support.clock import ManualClock
from wire.control import site_pb2 as site
from wire.control.site_pb2_grpc import add_SiteAgentServicer_to_server

AGENTS = ("one:1", "two:1", "three:1", "four:1")


class Agents:
    """Agents of which at most one answers. The calls to the silent ones after the first end when
    the client has asked all of them.
    """

    def __init__(self, answering: str = "") -> None:
        self.answering = answering
        self.asked: list[str] = []
        self.timeouts_s: set[float] = set()
        self.all_others = asyncio.Barrier(len(AGENTS) - 1)

    def site_agent(self, address: str) -> Any:
        """Plays Channels."""
        agents = self

        class Stub:
            async def ListLinks(self, request: site.ListLinksRequest, *, timeout: float) -> site.ListLinksReply:  # noqa: ASYNC109
                del request
                agents.timeouts_s.add(timeout)
                agents.asked.append(address)
                if address == agents.answering:
                    return site.ListLinksReply()
                if address != AGENTS[0]:
                    await agents.all_others.wait()
                raise grpc.aio.AioRpcError(
                    grpc.StatusCode.DEADLINE_EXCEEDED, grpc.aio.Metadata(), grpc.aio.Metadata(), details="no answer"
                )

        return Stub()


async def test_the_others_are_asked_at_once_when_one_is_silent() -> None:
    channels: Any = Agents()
    async with asyncio.timeout(5):
        with pytest.raises(SiteUnreachable, match=r"one:1 .*four:1"):
            await SiteClient("a", AGENTS, channels).links()
    assert sorted(channels.asked) == sorted(AGENTS)


async def test_the_one_that_answers_is_asked_first_next_time() -> None:
    channels: Any = Agents(answering="three:1")
    client = SiteClient("a", AGENTS, channels)
    async with asyncio.timeout(5):
        await client.links()
        channels.asked.clear()
        await client.links()
    assert channels.asked == ["three:1"]


async def test_a_question_to_a_lost_site_takes_no_longer_than_its_caller_allows() -> None:
    channels: Any = Agents(answering=AGENTS[0])
    await SiteClient("a", AGENTS, channels, ask_timeout_ms=250).links()
    assert channels.timeouts_s == {0.25}


class InterruptedAgent(Answers):
    """An agent whose ZooKeeper session is interrupted for some calls."""

    def __init__(self, interruptions: int) -> None:
        super().__init__("a", ManualClock())
        self.left = interruptions

    @answers
    async def ListLinks(self, request: site.ListLinksRequest, context: Any) -> site.ListLinksReply:
        del request, context
        if self.left:
            self.left -= 1
            raise SessionExpiredError
        return site.ListLinksReply()

    @answers
    async def DescribeLink(self, request: site.DescribeLinkRequest, context: Any) -> site.DescribeLinkReply:
        del request, context
        raise AssertionError(self._parts)


async def test_an_agent_whose_session_is_interrupted_is_asked_again_by_a_patient_client_only() -> None:
    agent, server, channels = InterruptedAgent(3), GrpcServer("127.0.0.1", 0), Channels()
    add_SiteAgentServicer_to_server(agent, server.server)  # type: ignore[no-untyped-call]
    address = f"127.0.0.1:{await server.start()}"
    try:
        with pytest.raises(SiteInterrupted, match="ZooKeeper does not answer"):
            await SiteClient("a", [address], channels).links()
        assert agent.left == 2
        patient = SiteClient("a", ["127.0.0.1:1", address], channels, patience_ms=60_000)
        await patient.links()
        assert agent.left == 0
        with pytest.raises(SiteInterrupted, match="the agent of site a is not ready"):
            await SiteClient("a", [address], channels).describe_link("a-b")
    finally:
        await channels.close()
        await server.stop()


async def test_a_patient_client_waits_for_no_site_whose_agents_are_silent() -> None:
    channels: Any = Agents()
    async with asyncio.timeout(30):
        with pytest.raises(SiteUnreachable) as raised:
            await SiteClient("a", AGENTS, channels, patience_ms=3_600_000).links()
    assert not isinstance(raised.value, SiteInterrupted)


class SlowAgent(Answers):
    """An agent that answers DescribeLink only after some small questions."""

    def __init__(self, questions: int) -> None:
        super().__init__("a", ManualClock())
        self.left = questions
        self.may_answer = asyncio.Event()

    async def ListLinks(self, request: site.ListLinksRequest, context: Any) -> site.ListLinksReply:
        del request, context
        self.left -= 1
        if not self.left:
            self.may_answer.set()
        return site.ListLinksReply()

    async def DescribeLink(self, request: site.DescribeLinkRequest, context: Any) -> site.DescribeLinkReply:
        del request, context
        await self.may_answer.wait()
        return site.DescribeLinkReply(peer_seen_at_ms=5)


async def test_a_patient_client_awaits_the_slow_answer_of_an_agent_that_is_there() -> None:
    agent, server, channels = SlowAgent(3), GrpcServer("127.0.0.1", 0), Channels()
    add_SiteAgentServicer_to_server(agent, server.server)  # type: ignore[no-untyped-call]
    address = f"127.0.0.1:{await server.start()}"
    try:
        with pytest.raises(SiteUnreachable, match="DescribeLink"):
            await SiteClient("a", [address], channels, ask_timeout_ms=100).describe_link("a-b")
        patient = SiteClient("a", [address], channels, ask_timeout_ms=1_500, patience_ms=60_000)
        assert (await patient.describe_link("a-b")).peer_seen_at_ms == 5
        assert agent.left == 0
    finally:
        agent.may_answer.set()
        await channels.close()
        await server.stop()
