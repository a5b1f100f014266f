"""DescribeGroups: state, members and assignments of groups.

Behaviour: a group that does not exist is Dead; from version 6 on it also has the error
GROUP_ID_NOT_FOUND. Only STABLE groups have subscriptions and a protocol in the response, as in
Kafka; while a rebalance is being prepared, members have the assignments of the former generation.
The authorized operations contain all operations
(`broker/metadata/core/authorized_operations.py`). Versions: 0 to 6.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.coordination.state_shard import CoordinatorRefusal
from broker.groups.coordinator import GroupCoordinator
from broker.groups.core.group_states import Group, GroupState, Member
from broker.metadata.core.authorized_operations import ALL_OF_A_GROUP, NOT_ASKED, answered
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder

API_KEY = 15
MIN_VERSION = 0
MAX_VERSION = 6

_NOT_FOUND_FROM = 6


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    groups: GroupCoordinator


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a DescribeGroups request."""
    operations = answered(ALL_OF_A_GROUP, is_asked=getattr(request, "include_authorized_operations", False))
    groups = tuple(_described(doors, context, group_id, operations) for group_id in request.groups)
    return builder(API_KEY, context.api_version).response(groups=groups)


def _described(doors: Doors, context: RequestContext, group_id: str, operations: int) -> Any:
    try:
        group = doors.groups.describe(group_id, is_own_tool=context.is_own_tool)
        if doors.groups.describe_consumers(group_id, is_own_tool=context.is_own_tool) is not None:
            group = None  # KIP-848 groups are described by ConsumerGroupDescribe
    except CoordinatorRefusal as refusal:
        return _entity(context, group_id, error=refusal.code)
    if group is None:
        is_error = context.api_version >= _NOT_FOUND_FROM
        return _entity(
            context,
            group_id,
            error=ErrorCode.group_id_not_found if is_error else ErrorCode.none,
            message=f"group {group_id} does not exist" if is_error else None,
            state=GroupState.DEAD.value,
            operations=NOT_ASKED if is_error else operations,
        )
    return _of_group(context, group, operations)


def _of_group(context: RequestContext, group: Group, operations: int) -> Any:
    is_stable = group.state is GroupState.STABLE
    build = builder(API_KEY, context.api_version)
    return _entity(
        context,
        group.group_id,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol=(group.protocol or "") if is_stable else "",
        members=tuple(_member(build, group, member, is_stable=is_stable) for member in group.members.values()),
        operations=operations,
    )


def _member(build: Any, group: Group, member: Member, *, is_stable: bool) -> Any:
    return build.part(
        "DescribedGroupMember",
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=member.metadata_for(group.protocol) if is_stable else b"",
        member_assignment=member.assignment,
    )


def _entity(
    context: RequestContext,
    group_id: str,
    *,
    error: ErrorCode = ErrorCode.none,
    message: str | None = None,
    state: str = "",
    protocol_type: str = "",
    protocol: str = "",
    members: tuple[Any, ...] = (),
    operations: int = NOT_ASKED,
) -> Any:
    return builder(API_KEY, context.api_version).part(
        "DescribedGroup",
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state=state,
        protocol_type=protocol_type,
        protocol_data=protocol,
        members=members,
        authorized_operations=operations,
    )
