"""Heartbeat: reports that a member is alive; the answer shows whether a rebalance has begun.

Behaviour: as Kafka. Versions: 0 to 4. Not done: nothing.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from broker.coordination.state_shard import CoordinatorRefusal
from broker.groups.coordinator import GroupCoordinator
from broker.groups.core.group_messages import CodeReply, Heartbeat
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder

API_KEY = 12
MIN_VERSION = 0
MAX_VERSION = 4


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    groups: GroupCoordinator


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a Heartbeat request."""
    command = Heartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=getattr(request, "group_instance_id", None),
        generation=request.generation_id,
    )
    try:
        reply = await doors.groups.heartbeat(command)
    except CoordinatorRefusal as refusal:
        reply = CodeReply(error=refusal.code)
    return builder(API_KEY, context.api_version).response(error_code=reply.error)
