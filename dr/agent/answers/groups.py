"""Consumer groups of the topics that a link carries: their offsets and their members."""

from __future__ import annotations

from dr.agent.answers.answering import Answers, Context, answers
from wire.control import broker_pb2 as broker
from wire.control import site_pb2 as site


class GroupAnswers(Answers):
    """Asks the coordinators of the own site."""

    @answers
    async def DescribeGroups(  # noqa: N802
        self, request: site.DescribeGroupsRequest, _: Context
    ) -> site.DescribeGroupsReply:
        """Committed offsets of the groups that a link carries."""
        stored, _version = await self._parts.store.get(request.link)
        return await self._parts.brokers.describe_groups(stored.name, is_brief=request.is_brief)

    @answers
    async def DescribeGroupMembers(  # noqa: N802
        self, request: broker.DescribeGroupMembersRequest, _: Context
    ) -> broker.DescribeGroupMembersReply:
        """The members of the groups that a link carries."""
        stored, _version = await self._parts.store.get(request.link)
        return await self._parts.brokers.group_members(stored.name)

    @answers
    async def TakeGroupMembers(  # noqa: N802
        self, request: broker.TakeGroupMembersRequest, _: Context
    ) -> broker.TakeGroupMembersReply:
        """Give the members of the fenced site's groups to this site's coordinators."""
        return await self._parts.brokers.take_group_members(request)
