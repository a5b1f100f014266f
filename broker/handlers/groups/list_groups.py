"""ListGroups: the groups that this broker coordinates.

Behaviour: filters by state (any case) and type (`classic`, or `consumer` for those of KIP-848).
COORDINATOR_LOAD_IN_PROGRESS, with the known groups, while a partition is being loaded, and without
groups while the broker does not know whether it is still registered. Versions: 0 to 5. Not done:
nothing.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.coordination.state_shard import CoordinatorRefusal
from broker.groups.coordinator import GroupCoordinator
from broker.groups.core.group_states import CONSUMER_PROTOCOL_TYPE
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder

API_KEY = 16
MIN_VERSION = 0
MAX_VERSION = 5

CLASSIC_TYPE = "classic"
CONSUMER_TYPE = "consumer"


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    groups: GroupCoordinator


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a ListGroups request."""
    build = builder(API_KEY, context.api_version)
    states = {state.lower() for state in getattr(request, "states_filter", ())}
    types = {kind.lower() for kind in getattr(request, "types_filter", ())}
    is_loading = doors.groups.is_loading
    try:
        groups = [
            (group, doors.groups.describe_consumers(group.group_id, is_own_tool=True))
            for group in doors.groups.list_groups(is_own_tool=context.is_own_tool)
        ]
    except CoordinatorRefusal:  # the process was paused and does not know yet whether it still coordinates
        groups, is_loading = [], True
    error = ErrorCode.coordinator_load_in_progress if is_loading else ErrorCode.none
    return build.response(
        error_code=error,
        groups=tuple(
            build.part(
                "ListedGroup",
                group_id=group.group_id,
                protocol_type=(group.protocol_type or "") if consumers is None else CONSUMER_PROTOCOL_TYPE,
                group_state=group.state.value if consumers is None else consumers.state,
                group_type=CLASSIC_TYPE if consumers is None else CONSUMER_TYPE,
            )
            for group, consumers in groups
            if not states or (group.state.value if consumers is None else consumers.state).lower() in states
            if not types or (CLASSIC_TYPE if consumers is None else CONSUMER_TYPE) in types
        ),
    )
