"""Heartbeat: a member lives; the answer shows whether a rebalance has begun.

Behaviour: as Kafka. Versions: 0 to 4. Not done: nothing.
"""

from __future__ import annotations

from typing import Any

from broker.coordination.state_shard import CoordinatorRefusal
from broker.groups.core.group_messages import CodeReply, Heartbeat
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.services import BrokerServices

API_KEY = 12
MIN_VERSION = 0
MAX_VERSION = 4


async def handle(services: BrokerServices, context: RequestContext, request: Any) -> Any:
    """Answer a Heartbeat request."""
    command = Heartbeat(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=getattr(request, "group_instance_id", None),
        generation=request.generation_id,
    )
    try:
        reply = await services.groups.heartbeat(command)
    except CoordinatorRefusal as refusal:
        reply = CodeReply(error=refusal.code)
    return builder(API_KEY, context.api_version).response(error_code=reply.error)
