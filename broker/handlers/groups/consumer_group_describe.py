"""ConsumerGroupDescribe: members, epochs and assignments of KIP-848 groups.

Behaviour: GROUP_ID_NOT_FOUND for groups of the classic protocol (use DescribeGroups). Versions: 0
and 1.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.coordination.state_shard import CoordinatorRefusal
from broker.groups.coordinator import GroupCoordinator
from broker.groups.core.consumer_protocol.consumer_group_states import ConsumerGroup, partitions_of
from broker.groups.core.consumer_protocol.consumer_targets import assignor_of
from broker.groups.core.consumer_protocol.server_assignors import Owned
from broker.metadata.core.authorized_operations import ALL_OF_A_GROUP, NOT_ASKED, answered
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder, topic_uuid
from wire.batches.consumer_group_records import MemberMetadata

API_KEY = 69
MIN_VERSION = 0
MAX_VERSION = 1

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    groups: GroupCoordinator


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a ConsumerGroupDescribe request."""
    build = builder(API_KEY, context.api_version)
    operations = answered(ALL_OF_A_GROUP, is_asked=request.include_authorized_operations)
    groups = tuple(_described(doors, context, build, name, operations) for name in request.group_ids)
    return build.response(groups=groups)


def _described(doors: Doors, context: RequestContext, build: Any, group_id: str, operations: int) -> Any:
    try:
        group = doors.groups.describe_consumers(group_id, is_own_tool=context.is_own_tool)
    except CoordinatorRefusal as refusal:
        return _entity(build, group_id, error=refusal.code)
    if group is None:
        is_classic = doors.groups.describe(group_id, is_own_tool=context.is_own_tool) is not None
        message = f"group {group_id} {'uses the classic protocol' if is_classic else 'does not exist'}"
        return _entity(build, group_id, error=ErrorCode.group_id_not_found, message=message)
    names = {topic_id: name for name, (topic_id, _) in doors.groups.topic_shapes().items()}
    return _entity(
        build,
        group_id,
        state=group.state,
        epoch=group.epoch,
        target_epoch=group.target_epoch,
        assignor=assignor_of(group, doors.groups.assignors),
        members=tuple(_member(build, group, name, member, names) for name, member in group.members.items()),
        operations=operations,
    )


def _member(build: Any, group: ConsumerGroup, member_id: str, member: MemberMetadata, names: dict[bytes, str]) -> Any:
    reached = group.reached_by(member_id)
    return build.part(
        "Member",
        member_id=member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=reached.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.topic_names,
        subscribed_topic_regex=member.topic_regex,
        assignment=_assignment(build, reached.assigned, names),
        target_assignment=_assignment(build, group.targets.get(member_id, frozenset()), names),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _assignment(build: Any, owned: Owned, names: dict[bytes, str]) -> Any:
    topics = tuple(
        build.part(
            "TopicPartitions", topic_id=topic_uuid(topic_id), topic_name=names.get(topic_id, ""), partitions=indexes
        )
        for topic_id, indexes in partitions_of(owned).items()
    )
    return build.part("Assignment", topic_partitions=topics)


def _entity(
    build: Any,
    group_id: str,
    *,
    error: ErrorCode = ErrorCode.none,
    message: str | None = None,
    state: str = "",
    epoch: int = 0,
    target_epoch: int = 0,
    assignor: str = "",
    members: tuple[Any, ...] = (),
    operations: int = NOT_ASKED,
) -> Any:
    return build.part(
        "DescribedGroup",
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state=state,
        group_epoch=epoch,
        assignment_epoch=target_epoch,
        assignor_name=assignor,
        members=members,
        authorized_operations=operations,
    )
