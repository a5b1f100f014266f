"""ConsumerGroupHeartbeat: a member of a KIP-848 group joins, reports its subscription and what it
owns, gets its assignment, leaves.

Behaviour: as Kafka's coordinator; assignors `uniform` and `range`. A group with members of the
classic protocol becomes one of the newer protocol when the first such member joins. Versions: 0
(the coordinator makes member ids) and 1 (the member does).
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta
from msgspec import Struct

from broker.coordination.state_shard import CoordinatorRefusal
from broker.groups.coordinator import GroupCoordinator
from broker.groups.core.consumer_protocol.consumer_group_states import (
    JOINING_EPOCH,
    LEAVING_STATIC_EPOCH,
    partitions_of,
)
from broker.groups.core.consumer_protocol.consumer_groups import NO_TIMEOUT, HeartbeatReply, MemberHeartbeat
from broker.groups.core.consumer_protocol.server_assignors import Owned, TopicIdPartition
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder, topic_id_bytes, topic_uuid
from broker.settings.dynamic_configs import DynamicConfigs
from runtime.chance import new_uuid

API_KEY = 68
MIN_VERSION = 0
MAX_VERSION = 1

_MEMBERS_MAKE_IDS_FROM = 1


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    configs: DynamicConfigs
    groups: GroupCoordinator


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a ConsumerGroupHeartbeat request."""
    said = _said(context, request)
    if "consumer" not in doors.configs.current.rebalance_protocols:
        message = "group.coordinator.rebalance.protocols does not include consumer"
        reply = HeartbeatReply(error=ErrorCode.unsupported_version, message=message)
        return _response(doors, context, request, reply)
    try:
        reply = _unusable(context, request.group_id, said) or await doors.groups.consumer_heartbeat(
            request.group_id, said
        )
    except CoordinatorRefusal as refusal:
        reply = HeartbeatReply(error=refusal.code)
    return _response(doors, context, request, reply)


def _response(doors: Doors, context: RequestContext, request: Any, reply: HeartbeatReply) -> Any:
    build = builder(API_KEY, context.api_version)
    interval_ms = doors.groups.heartbeat_interval_ms(request.group_id)
    return build.response(
        error_code=reply.error,
        error_message=reply.message,
        member_id=reply.member_id or None,
        member_epoch=reply.member_epoch,
        heartbeat_interval=i32Timedelta.parse(timedelta(milliseconds=interval_ms)),
        assignment=None if reply.assigned is None else _assignment(build, reply.assigned),
    )


def _said(context: RequestContext, request: Any) -> MemberHeartbeat:
    timeout_ms = round(request.rebalance_timeout.total_seconds() * 1000)
    is_new = (
        context.api_version < _MEMBERS_MAKE_IDS_FROM and request.member_epoch == JOINING_EPOCH and not request.member_id
    )
    return MemberHeartbeat(
        member_id=str(new_uuid()) if is_new else request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        client_id=context.client_id or "",
        client_host=f"/{context.client_host}",
        rebalance_timeout_ms=timeout_ms if timeout_ms >= 0 else NO_TIMEOUT,
        topic_names=request.subscribed_topic_names,
        topic_regex=getattr(request, "subscribed_topic_regex", None),
        server_assignor=request.server_assignor,
        owned=None if request.topic_partitions is None else _owned(request.topic_partitions),
    )


def _unusable(context: RequestContext, group_id: str, said: MemberHeartbeat) -> HeartbeatReply | None:
    """The refusal of a request that no group could accept; None for any other request."""
    is_joining = said.member_epoch == JOINING_EPOCH
    is_member_id_due = context.api_version >= _MEMBERS_MAKE_IDS_FROM or not is_joining
    texts = {"group id": group_id, "instance id": said.instance_id, "rack id": said.rack_id}
    if is_member_id_due:
        texts["member id"] = said.member_id
    blank = next((name for name, text in texts.items() if text is not None and not text.strip()), None)
    if blank is not None:
        message = f"the {blank} is empty"
    elif said.member_epoch < LEAVING_STATIC_EPOCH:
        message = f"member epoch {said.member_epoch}"
    elif said.member_epoch == LEAVING_STATIC_EPOCH and said.instance_id is None:
        message = f"a member that leaves with epoch {LEAVING_STATIC_EPOCH} must send its instance id"
    elif is_joining and said.rebalance_timeout_ms == NO_TIMEOUT:
        message = "a joining member must send its rebalance timeout"
    # a member may join without a subscription: it sends an empty list or an empty pattern
    elif is_joining and said.topic_names is None and said.topic_regex is None:
        message = "a joining member must send its topics or a pattern"
    elif is_joining and (said.owned is None or said.owned):
        message = "a joining member must send an empty list of owned partitions"
    else:
        return None
    return HeartbeatReply(error=ErrorCode.invalid_request, message=message)


def _owned(topics: Iterable[Any]) -> Owned:
    return frozenset(
        TopicIdPartition(topic_id_bytes(topic.topic_id), index) for topic in topics for index in topic.partitions
    )


def _assignment(build: Any, assigned: Owned) -> Any:
    topics = tuple(
        build.part("TopicPartitions", topic_id=topic_uuid(topic_id), partitions=indexes)
        for topic_id, indexes in partitions_of(assigned).items()
    )
    return build.part("Assignment", topic_partitions=topics)
