"""The agents of a site that is lost: a question costs two deadlines, however many there are."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from dr.sites.site_client import SiteClient, SiteUnreachable
from wire.control import site_pb2 as site

AGENTS = ("one:1", "two:1", "three:1", "four:1")


class Agents:
    """Agents of which some answer; the silent ones behind the first give up when all are asked."""

    def __init__(self, answering: str = "") -> None:
        self.answering = answering
        self.asked: list[str] = []
        self.timeouts_s: set[float] = set()
        self.all_others = asyncio.Barrier(len(AGENTS) - 1)

    def site_agent(self, address: str) -> Any:
        """As Channels."""
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
