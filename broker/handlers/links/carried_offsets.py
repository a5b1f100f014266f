"""CarriedOffsets (private): a mirror asks which offsets of groups the mirrors of its link have
written here at this epoch.

Behaviour: an offset that the group has committed since is not among them, and neither is one that a
mirror wrote before the active role last moved, or for a former link of that name. A mirror that
starts learns by this which offsets to remove when the active site does not have them. Versions: 0.
Not done: nothing.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64
from msgspec import Struct

from broker.coordination.state_shard import CoordinatorRefusal
from broker.groups.coordinator import GroupCoordinator
from broker.metadata.request_context import RequestContext
from wire.protocol.messages.group_offset_messages import (
    CARRIED_OFFSETS,
    CarriedGroup,
    CarriedOffset,
    CarriedOffsetsResponse,
)
from wire.protocol.messages.private import PRIVATE_VERSIONS

API_KEY = CARRIED_OFFSETS
MIN_VERSION, MAX_VERSION = PRIVATE_VERSIONS[CARRIED_OFFSETS]


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    groups: GroupCoordinator


async def handle(request: Any, _context: RequestContext, doors: Doors) -> Any:
    """Answer a CarriedOffsets request."""
    mark = doors.groups.mirror_mark(request.link, request.link_epoch)
    return CarriedOffsetsResponse(
        groups=tuple(_carried(doors.groups, group_id, mark) for group_id in request.group_ids)
    )


def _carried(groups: GroupCoordinator, group_id: str, mark: str) -> CarriedGroup:
    try:
        offsets = groups.offsets_of(group_id, is_own_tool=True)
    except CoordinatorRefusal as refusal:
        return CarriedGroup(error_code=refusal.code, offsets=())
    carried = tuple(
        CarriedOffset(
            topic=TopicName(key.topic), partition_index=i32(key.partition), committed_offset=i64(value.offset)
        )
        for key, value in offsets.items()
        if value.carried_by == mark
    )
    return CarriedGroup(error_code=ErrorCode.none, offsets=carried)
