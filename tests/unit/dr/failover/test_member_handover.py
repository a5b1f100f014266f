"""A run fetches the members of groups beside its other steps, and those of its last fence count."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from dr.failover.journal import Journal
from dr.failover.member_handover import MemberHandover
from runtime.process import OperationalFailure
from tests.support.clock import ManualClock
from wire.control.broker_pb2 import GroupMembers, TakeGroupMembersReply


class Source:
    """A fenced site; each request for its members waits for the next answer."""

    def __init__(self) -> None:
        self.answers: asyncio.Queue[str | OperationalFailure] = asyncio.Queue()
        self.requests = 0

    async def group_members(self, _: str, *, timeout_ms: int) -> list[GroupMembers]:
        """Plays SiteClient."""
        assert timeout_ms > 0
        self.requests += 1
        answer = await self.answers.get()
        if isinstance(answer, OperationalFailure):
            raise answer
        return [GroupMembers(group=answer)]


class Target:
    """The promoted site."""

    def __init__(self) -> None:
        self.taken: list[str] = []

    async def take_group_members(self, _: str, *, groups: Any, **__: int) -> TakeGroupMembersReply:
        """Plays SiteClient."""
        self.taken += [group.group for group in groups]
        return TakeGroupMembersReply(taken=[group.group for group in groups])


@pytest.fixture
def sites() -> tuple[Any, Any]:
    return Source(), Target()


def handover(sites: tuple[Any, Any]) -> MemberHandover:
    return MemberHandover("a-b", source=sites[0], target=sites[1], journal=Journal(None, ManualClock()))


async def test_the_members_of_the_last_fence_are_given(sites: tuple[Any, Any]) -> None:
    source, target = sites
    members = handover(sites)
    members.begin()
    await asyncio.sleep(0)
    # the fence was ended by another operator, and members joined
    members.begin()
    source.answers.put_nowait("new")
    await members.give(epoch=2)
    assert (source.requests, target.taken) == (2, ["new"])
    await members.close()


async def test_a_run_that_found_the_fence_fetches_the_members_itself(sites: tuple[Any, Any]) -> None:
    source, target = sites
    source.answers.put_nowait("found")
    await handover(sites).give(epoch=2)
    assert target.taken == ["found"]


async def test_a_source_that_does_not_answer_costs_only_its_members(sites: tuple[Any, Any]) -> None:
    source, target = sites
    source.answers.put_nowait(OperationalFailure("no answer"))
    await handover(sites).give(epoch=2)
    assert target.taken == []


async def test_a_run_that_ends_before_its_promotion_leaves_no_request(sites: tuple[Any, Any]) -> None:
    members = handover(sites)
    fetching = members.begin()
    await asyncio.sleep(0)
    await members.close()
    assert fetching.cancelled()
