"""ListGroups: the groups that this broker coordinates.

Behaviour: filters by state (any case) and type; all groups here are of type `classic`. COORDINATOR_LOAD_IN_PROGRESS, with what is known,
while some partition is being loaded. Versions: 0 to 5. Not done: nothing.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from broker.entities import builder
from broker.services import BrokerServices, RequestContext

API_KEY = 16
MIN_VERSION = 0
MAX_VERSION = 5

CLASSIC_TYPE = "classic"


async def handle(services: BrokerServices, context: RequestContext, request: Any) -> Any:
    """Answer a ListGroups request."""
    build = builder(API_KEY, context.api_version)
    states = {state.lower() for state in getattr(request, "states_filter", ())}
    types = {kind.lower() for kind in getattr(request, "types_filter", ())}
    groups = services.groups.list_groups(is_own_tool=context.is_own_tool) if not types or CLASSIC_TYPE in types else ()
    error = ErrorCode.coordinator_load_in_progress if services.groups.is_loading else ErrorCode.none
    return build.response(
        error_code=error,
        groups=tuple(
            build.part(
                "ListedGroup",
                group_id=group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state.value,
                group_type=CLASSIC_TYPE,
            )
            for group in groups
            if not states or group.state.value.lower() in states
        ),
    )
