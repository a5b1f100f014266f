"""The parts of a broker that its control service asks: the groups of a link, and their members on
the way to the other site.
"""

from __future__ import annotations

from typing import Protocol

from wire.control import broker_pb2 as pb


class DescribeGroups(Protocol):
    """Describes the groups that a link carries, from this broker's coordinators."""

    async def __call__(self, link: str, /, *, is_brief: bool) -> pb.DescribeGroupOffsetsReply:
        """Like `GroupReports.describe`."""
        ...


class Handover(Protocol):
    """Members of groups on their way from one site's coordinators to another's."""

    def describe(self, link: str) -> pb.DescribeGroupMembersReply:
        """Like `GroupHandover.describe`."""
        ...

    async def take(self, request: pb.TakeGroupMembersRequest) -> pb.TakeGroupMembersReply:
        """Like `GroupHandover.take`."""
        ...
