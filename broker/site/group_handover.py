"""The members of a link's groups on their way to the other site's coordinators, for a planned move
(`broker/groups/core/group_handover.py`).

The operator of the move asks the fenced site's brokers for the members of the groups that they
coordinate, and gives all of them to each broker of the promoted site. A broker takes the groups
that it coordinates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from kio.schema.errors import ErrorCode

from broker.coordination.state_shard import CoordinatorRefusal
from broker.groups.coordinator import GroupCoordinator
from broker.groups.core import group_records
from broker.groups.core.consumer_protocol.consumer_group_states import ConsumerFact
from broker.groups.core.group_messages import GroupStored, MemberRecord, TakeMembers
from broker.metadata.core.cluster_image import ClusterImage
from runtime.logs import get_logger
from wire.control import broker_pb2 as pb
from wire.protocol.byte_reader import Malformed
from wire.rules.links import carries_group

TAKEN_AT_ONCE = 200
"""Groups whose records are under way to the log at the same time."""

log = get_logger(__name__)


class GroupHandover:
    """Gives and takes the members of groups."""

    def __init__(self, image: Callable[[], ClusterImage], groups: GroupCoordinator) -> None:
        self._image = image
        self._groups = groups

    def describe(self, link: str) -> pb.DescribeGroupMembersReply:
        """The members of the groups that the link carries and that are coordinated here."""
        record = self._image().links.get(link)
        if record is None:
            return pb.DescribeGroupMembersReply()
        return pb.DescribeGroupMembersReply(groups=self._carried(record.name))

    def _carried(self, link: str) -> Iterable[pb.GroupMembers]:
        record = self._image().links[link]
        for group in self._groups.list_groups(is_own_tool=True):
            if not carries_group(record, group.group_id):
                continue
            try:
                records = self._groups.member_records(group)
            except CoordinatorRefusal:  # the partition has just gone to another broker
                continue
            if records:
                yield pb.GroupMembers(group=group.group_id, records=[_encoded(item) for item in records])

    async def take(self, request: pb.TakeGroupMembersRequest) -> pb.TakeGroupMembersReply:
        """Store the members of the groups that are coordinated here."""
        reply = pb.TakeGroupMembersReply()
        for first in range(0, len(request.groups), TAKEN_AT_ONCE):
            some = request.groups[first : first + TAKEN_AT_ONCE]
            outcomes = await asyncio.gather(*(self._take(group, request) for group in some))
            for group, outcome in zip(some, outcomes, strict=True):
                if outcome is ErrorCode.none:
                    reply.taken.append(group.group)
                elif outcome is not ErrorCode.not_coordinator:
                    reply.refused[group.group] = outcome.name
        if reply.taken or reply.refused:
            log.info(
                "members of groups taken over",
                link=request.link,
                epoch=request.epoch,
                groups=len(reply.taken),
                refused=dict(reply.refused),
            )
        return reply

    async def _take(self, group: pb.GroupMembers, request: pb.TakeGroupMembersRequest) -> ErrorCode:
        try:
            command = TakeMembers(group_id=group.group, records=_decoded(group.records))
            reply = await self._groups.take_members(command, link=request.link, link_epoch=request.epoch)
        except Malformed:
            return ErrorCode.invalid_record
        except CoordinatorRefusal as refusal:
            return refusal.code
        return reply.error


def _encoded(record: MemberRecord) -> pb.GroupRecord:
    encoded = group_records.encode(record)
    return pb.GroupRecord(key=encoded.key or b"", value=encoded.value or b"")


def _decoded(records: Sequence[pb.GroupRecord]) -> tuple[MemberRecord, ...]:
    """Malformed for a record of another kind."""
    found: list[MemberRecord] = []
    for record in records:
        decoded = group_records.decode(record.key, record.value)
        if not isinstance(decoded, GroupStored | ConsumerFact):
            raise Malformed("no record of a group's members")
        found.append(decoded)
    return tuple(found)
