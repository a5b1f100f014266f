"""SyncGroup: a member asks for its assignment; the leader's request has the assignments of all
members.

Behaviour: answered when the leader's assignment is committed. From version 5 on, a request must
name the protocol and its type. Versions: 0 to 5. Not done: nothing.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.coordination.state_shard import CoordinatorRefusal
from broker.groups.coordinator import GroupCoordinator
from broker.groups.core.group_messages import SyncGroup, SyncReply
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder

API_KEY = 14
MIN_VERSION = 0
MAX_VERSION = 5

_NAMES_PROTOCOL_FROM = 5


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    groups: GroupCoordinator


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a SyncGroup request."""
    reply = await _reply(request, context, doors)
    return builder(API_KEY, context.api_version).response(
        error_code=reply.error,
        protocol_type=reply.protocol_type,
        protocol_name=reply.protocol,
        assignment=reply.assignment,
    )


async def _reply(request: Any, context: RequestContext, doors: Doors) -> SyncReply:
    command = SyncGroup(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=getattr(request, "group_instance_id", None),
        generation=request.generation_id,
        protocol_type=getattr(request, "protocol_type", None),
        protocol=getattr(request, "protocol_name", None),
        assignments={given.member_id: bytes(given.assignment) for given in request.assignments},
    )
    if context.api_version >= _NAMES_PROTOCOL_FROM and None in (command.protocol_type, command.protocol):
        return SyncReply(error=ErrorCode.inconsistent_group_protocol)
    try:
        return await doors.groups.sync(command)
    except CoordinatorRefusal as refusal:
        return SyncReply(error=refusal.code)
