"""JoinGroup: become a member of a consumer group; answered when the generation is formed.

Behaviour: from version 4 on a new dynamic member first gets its id (MEMBER_ID_REQUIRED) and joins
again with it; an id is the client id and a random UUID. Versions: 0 to 9; in version 0 the session
timeout is also the rebalance timeout. A group of the KIP-848 protocol answers at once, and the
coordinator's own assignment follows.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.coordination.state_shard import CoordinatorRefusal
from broker.groups.coordinator import GroupCoordinator
from broker.groups.core.group_messages import JoinGroup, JoinReply
from broker.groups.core.group_states import AssignmentProtocol
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from runtime.chance import new_uuid

API_KEY = 11
MIN_VERSION = 0
MAX_VERSION = 9

_HANDS_OUT_IDS_FROM = 4
_NULLABLE_PROTOCOL_FROM = 7
_MAY_SKIP_ASSIGNMENT_FROM = 9


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    groups: GroupCoordinator


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a JoinGroup request."""
    try:
        reply = await doors.groups.join(_command(context, request))
    except CoordinatorRefusal as refusal:
        reply = JoinReply(error=refusal.code, member_id=request.member_id)
    build = builder(API_KEY, context.api_version)
    return build.response(
        error_code=reply.error,
        generation_id=reply.generation,
        protocol_type=reply.protocol_type if reply.error is ErrorCode.none else None,
        protocol_name=reply.protocol if context.api_version >= _NULLABLE_PROTOCOL_FROM else reply.protocol or "",
        leader=reply.leader,
        skip_assignment=reply.skip_assignment,
        member_id=reply.member_id,
        members=tuple(
            build.part(
                "JoinGroupResponseMember",
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata,
            )
            for member in reply.members
        ),
    )


def _command(context: RequestContext, request: Any) -> JoinGroup:
    session_timeout_ms = _milliseconds(request.session_timeout)
    rebalance_timeout = getattr(request, "rebalance_timeout", None)
    group_instance_id = getattr(request, "group_instance_id", None)
    client_id = context.client_id or ""
    return JoinGroup(
        group_id=request.group_id,
        member_id=request.member_id,
        fresh_member_id=f"{group_instance_id or client_id}-{new_uuid()}",
        group_instance_id=group_instance_id,
        client_id=client_id,
        client_host=f"/{context.client_host}",
        session_timeout_ms=session_timeout_ms,
        rebalance_timeout_ms=session_timeout_ms if rebalance_timeout is None else _milliseconds(rebalance_timeout),
        protocol_type=request.protocol_type,
        protocols=tuple(AssignmentProtocol(offered.name, bytes(offered.metadata)) for offered in request.protocols),
        requires_known_member=context.api_version >= _HANDS_OUT_IDS_FROM,
        may_skip_assignment=context.api_version >= _MAY_SKIP_ASSIGNMENT_FROM,
    )


def _milliseconds(duration: Any) -> int:
    milliseconds: int = round(duration.total_seconds() * 1000)
    return milliseconds
