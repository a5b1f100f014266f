"""OffsetCommit: stores a group's offsets; answered when they are in the log of every in-sync
replica.

Behaviour: partitions that no site knows get UNKNOWN_TOPIC_OR_PARTITION, metadata that is too long
OFFSET_METADATA_TOO_LARGE, and the other offsets are stored. A request without member and generation
is for groups without members. Versions: 2 to 10; 2 to 4 may name a retention time, 10 names topics
by their ids (UNKNOWN_TOPIC_ID when there is none).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.authorization.authorizer import Authorizer, Check
from broker.authorization.authorizer import topics as read_topics
from broker.coordination.state_shard import CoordinatorRefusal
from broker.groups.coordinator import GroupCoordinator
from broker.groups.core.group_messages import CommitOffsets, PartitionsReply, Reply
from broker.handlers.groups.named_offsets import Names, name_of, named_offsets, outcome_of
from broker.metadata.cluster import Cluster
from wire.protocol.ids import TopicPartition
from wire.protocol.messages.offset_commit_codec import (
    HIGHEST_VERSION,
    LOWEST_VERSION,
    OffsetCommitRequest,
    TopicOutcome,
    encode_offset_commit_response,
    parse_offset_commit_request,
)
from wire.rules.acls import Operation, ResourceType

if TYPE_CHECKING:
    from broker.network.connection_owner import Frame
    from broker.network.exchange import Exchange

API_KEY = 8
MIN_VERSION = LOWEST_VERSION
MAX_VERSION = HIGHEST_VERSION

_MEMBER_EPOCHS_FROM: Final = 9
_TOPIC_IDS_FROM: Final = 10


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    authorizer: Authorizer
    cluster: Cluster
    groups: GroupCoordinator


def handle_frame(frame: Frame, exchange: Exchange, doors: Doors) -> None:
    """Answer an OffsetCommit request."""
    image, version = doors.cluster.image, exchange.header.api_version
    names = image.topic_names if version >= _TOPIC_IDS_FROM else None
    request = parse_offset_commit_request(frame, exchange.header.body_position, version)

    group_error, denied = _denied(doors, exchange, request, names)
    if group_error is not ErrorCode.none:
        _answer(exchange, request, PartitionsReply(error=group_error), names, denied)
        return

    def is_known(partition: TopicPartition) -> bool:
        routed = None if partition.topic in denied else image.routed_topic(partition.topic)
        return routed is not None and partition.partition in routed.topic.partitions

    command = CommitOffsets(
        group_id=request.group_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
        generation=request.generation,
        offsets=named_offsets(request, is_known, names, retention_ms=request.retention_ms),
        knows_member_epochs=version >= _MEMBER_EPOCHS_FROM,
    )
    try:
        replied = doors.groups.commit(command)
    except CoordinatorRefusal as refusal:
        _answer(exchange, request, PartitionsReply(error=refusal.code), names, denied)
        return

    group_id = request.group_id

    def finish(done: asyncio.Future[Reply]) -> None:
        reply = _reply_of(done)
        if reply.error is ErrorCode.none:
            if not doors.groups.may_acknowledge(group_id):
                # the lease has ended since the commit was written: the client commits again
                reply = PartitionsReply(error=ErrorCode.coordinator_load_in_progress)
            else:
                # it may end while the response waits for those of earlier requests
                exchange.check_before_send(lambda: doors.groups.may_acknowledge(group_id))
        _answer(exchange, request, reply, names, denied)

    exchange.defer_until(replied, finish)


def _denied(
    doors: Doors, exchange: Exchange, request: OffsetCommitRequest, names: Names | None
) -> tuple[ErrorCode, Collection[str]]:
    """The error for the whole request, and the topics for whose partitions commits are denied."""
    if not doors.authorizer.is_enabled:
        return ErrorCode.none, ()
    context = exchange.context
    if not doors.authorizer.may(context, Check(Operation.READ, ResourceType.GROUP, request.group_id)):
        return ErrorCode.group_authorization_failed, ()
    named = [name for topic in request.topics if (name := name_of(topic, names))]
    checks = read_topics(Operation.READ, named)
    return ErrorCode.none, {check.name for check in doors.authorizer.denied(context, checks)}


def _reply_of(done: asyncio.Future[Reply]) -> PartitionsReply:
    try:
        reply = done.result()
    except CoordinatorRefusal as refusal:
        return PartitionsReply(error=refusal.code)
    if not isinstance(reply, PartitionsReply):
        raise TypeError(f"a commit was answered with {reply!r}")
    return reply


def _answer(
    exchange: Exchange,
    request: OffsetCommitRequest,
    reply: PartitionsReply,
    names: Names | None,
    denied: Collection[str],
) -> None:
    outcomes = []
    for topic in request.topics:
        name = name_of(topic, names)
        codes = [
            (
                named.partition_index,
                int(
                    ErrorCode.topic_authorization_failed
                    if name in denied
                    else outcome_of(TopicPartition(name, named.partition_index), reply.error, reply.errors)
                ),
            )
            for named in topic.partitions
        ]
        outcomes.append(TopicOutcome(topic.name, topic.topic_id, codes))
        exchange.count_errors(code for _, code in codes)
    body = encode_offset_commit_response(
        outcomes, exchange.header.api_version, throttle_time_ms=exchange.throttle_time_ms()
    )
    exchange.reply_body([body], body_size=len(body))
