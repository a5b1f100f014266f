"""DeleteGroups: removes groups without members, with their offsets.

Behaviour: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND, NOT_COORDINATOR by group. Versions: 0 to 2. Not
done: nothing.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.coordination.state_shard import CoordinatorRefusal
from broker.groups.coordinator import GroupCoordinator
from broker.groups.core.group_messages import DeleteGroup
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder

API_KEY = 42
MIN_VERSION = 0
MAX_VERSION = 2


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    groups: GroupCoordinator


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a DeleteGroups request."""
    build = builder(API_KEY, context.api_version)
    results = [
        build.part("DeletableGroupResult", group_id=group_id, error_code=await _delete(doors, group_id))
        for group_id in dict.fromkeys(request.groups_names)
    ]
    return build.response(results=tuple(results))


async def _delete(doors: Doors, group_id: str) -> ErrorCode:
    try:
        return (await doors.groups.delete_group(DeleteGroup(group_id=group_id))).error
    except CoordinatorRefusal as refusal:
        return refusal.code
