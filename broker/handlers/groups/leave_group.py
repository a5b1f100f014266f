"""LeaveGroup: removes members, and the others rebalance.

Behaviour: from version 3 on several members at once, each with its own outcome; earlier versions
return the outcome of one member. Versions: 0 to 5. Not done: nothing.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.coordination.state_shard import CoordinatorRefusal
from broker.groups.coordinator import GroupCoordinator
from broker.groups.core.group_messages import LeaveGroup, LeavingMember
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder

API_KEY = 13
MIN_VERSION = 0
MAX_VERSION = 5

_BATCHED_FROM = 3


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    groups: GroupCoordinator


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a LeaveGroup request."""
    build, is_batched = builder(API_KEY, context.api_version), context.api_version >= _BATCHED_FROM
    members = (
        tuple(LeavingMember(leaving.member_id, leaving.group_instance_id) for leaving in request.members)
        if is_batched
        else (LeavingMember(request.member_id, None),)
    )
    try:
        reply = await doors.groups.leave(LeaveGroup(group_id=request.group_id, members=members))
    except CoordinatorRefusal as refusal:
        return build.response(error_code=refusal.code, members=())
    if not is_batched:
        return build.response(error_code=reply.errors[0])
    return build.response(
        error_code=ErrorCode.none,
        members=tuple(
            build.part(
                "MemberResponse",
                member_id=leaving.member_id,
                group_instance_id=leaving.group_instance_id,
                error_code=error,
            )
            for leaving, error in zip(members, reply.errors, strict=True)
        ),
    )
