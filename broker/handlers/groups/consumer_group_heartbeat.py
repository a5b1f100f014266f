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
        reply = _unusable(said) or await doors.groups.consumer_heartbeat(request.group_id, said)
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
    is_new = request.member_epoch == JOINING_EPOCH and not request.member_id
    return MemberHeartbeat(
        member_id=str(new_uuid()) if is_new else request.member_id,
        member_epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        client_id=context.client_id or "",
        client_host=f"/{context.client_address}",
        rebalance_timeout_ms=timeout_ms if timeout_ms >= 0 else NO_TIMEOUT,
        topic_names=request.subscribed_topic_names,
        topic_regex=getattr(request, "subscribed_topic_regex", None),
        server_assignor=request.server_assignor,
        owned=None if request.topic_partitions is None else _owned(request.topic_partitions),
    )


def _unusable(said: MemberHeartbeat) -> HeartbeatReply | None:
    """True for a request that no group could accept."""
    is_joining = said.member_epoch == JOINING_EPOCH
    wants_nothing = said.topic_names is None and not said.topic_regex
    if not said.member_id:
        message = "the member id is empty; accepted: an id that is not empty"
    elif said.member_epoch < LEAVING_STATIC_EPOCH:
        message = f"member epoch {said.member_epoch}"
    elif said.member_epoch == LEAVING_STATIC_EPOCH and said.instance_id is None:
        message = f"a member that leaves with epoch {LEAVING_STATIC_EPOCH} must send its instance id"
    elif is_joining and (said.rebalance_timeout_ms == NO_TIMEOUT or wants_nothing):
        message = "a joining member must send its rebalance timeout and its topics"
    elif is_joining and said.owned:
        message = "a joining member must not own partitions"
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
