"""DeleteGroups: forget groups without members, with their offsets.

Behaviour: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, NOT_COORDINATOR by group. Versions: 0 to 2. Not
done: nothing.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from broker.coordination.state_shard import CoordinatorRefusal
from broker.groups.core.group_messages import DeleteGroup
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.services import BrokerServices

API_KEY = 42
MIN_VERSION = 0
MAX_VERSION = 2


async def handle(services: BrokerServices, context: RequestContext, request: Any) -> Any:
    """Answer a DeleteGroups request."""
    build = builder(API_KEY, context.api_version)
    results = [
        build.part("DeletableGroupResult", group_id=group_id, error_code=await _delete(services, group_id))
        for group_id in dict.fromkeys(request.groups_names)
    ]
    return build.response(results=tuple(results))


async def _delete(services: BrokerServices, group_id: str) -> ErrorCode:
    try:
        return (await services.groups.delete_group(DeleteGroup(group_id=group_id))).error
    except CoordinatorRefusal as refusal:
        return refusal.code
