"""TxnOffsetCommit: offsets of a group that become valid when the producer's transaction is
committed.

Behaviour: before the first offsets of a transaction its coordinator is asked whether the group's
partition takes part, unless `transaction.partition.verification.enable` is false; from version 5 on
(KIP-890) the coordinator adds it. Members are checked as for OffsetCommit where the request names
one (KIP-447). Versions: 0 to 5.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.coordination.state_shard import CoordinatorRefusal
from broker.groups.coordinator import GroupCoordinator
from broker.groups.core.group_messages import CommitTransactionOffsets, PartitionsReply
from broker.groups.core.group_states import NO_GENERATION
from broker.handlers.groups.named_offsets import named_offsets, response
from broker.metadata.cluster import Cluster
from broker.metadata.request_context import RequestContext
from broker.settings.dynamic_configs import DynamicConfigs
from broker.transactions.transaction_admission import QUESTIONS_MAX, TransactionAdmission, Writer
from wire.batches.group_records import OFFSETS_TOPIC
from wire.protocol.ids import TopicPartition

API_KEY = 28
MIN_VERSION = 0
MAX_VERSION = 5

_ADDS_PARTITION_FROM = 5
_KNOWS_ABORTABLE_FROM = 4
NO_GUARD = 0


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    cluster: Cluster
    configs: DynamicConfigs
    groups: GroupCoordinator
    transaction_admission: TransactionAdmission


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer a TxnOffsetCommit request."""
    try:
        reply = await _commit(doors, context, request)
    except CoordinatorRefusal as refusal:
        reply = PartitionsReply(error=refusal.code)
    return response(API_KEY, context, request, _translated(context, reply.error), reply.errors)


async def _commit(doors: Doors, context: RequestContext, request: Any) -> PartitionsReply:
    if not request.group_id:
        return PartitionsReply(error=ErrorCode.invalid_group_id)
    shard = doors.groups.admission(request.group_id)
    producer_id, epoch = request.producer_id, request.producer_epoch
    if shard.has_transaction(producer_id, epoch):
        return await doors.groups.commit_in_transaction(shard, _command(doors, request, NO_GUARD))
    partition = TopicPartition(OFFSETS_TOPIC, doors.groups.partition_of(request.group_id))
    writer = Writer(request.transactional_id, producer_id, epoch)
    is_added = context.api_version >= _ADDS_PARTITION_FROM
    is_asked = is_added or doors.configs.current.is_transaction_partition_verified
    for _ in range(QUESTIONS_MAX):
        guard = shard.guards.begin(producer_id)
        try:
            error = ErrorCode.none
            if is_asked:
                outcomes = await doors.transaction_admission.admit(writer, [partition], is_added=is_added)
                error = outcomes[partition]
            if error is not ErrorCode.none:
                return PartitionsReply(error=error)
            # the marker of the previous transaction may have been written meanwhile; then the
            # coordinator is asked again
            if shard.guards.is_valid(producer_id, guard):
                return await doors.groups.commit_in_transaction(shard, _command(doors, request, guard))
        finally:
            shard.guards.end(producer_id, guard)
    return PartitionsReply(error=ErrorCode.concurrent_transactions)


def _command(doors: Doors, request: Any, guard: int) -> CommitTransactionOffsets:
    image = doors.cluster.image

    def is_known(partition: TopicPartition) -> bool:
        routed = image.routed_topic(partition.topic)
        return routed is not None and partition.partition in routed.topic.partitions

    return CommitTransactionOffsets(
        group_id=request.group_id,
        member_id=getattr(request, "member_id", ""),
        group_instance_id=getattr(request, "group_instance_id", None),
        generation=getattr(request, "generation_id", NO_GENERATION),
        offsets=named_offsets(request, is_known),
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        guard=guard,
    )


def _translated(context: RequestContext, error: ErrorCode) -> ErrorCode:
    """Errors of the transaction's coordinator as this request's clients know them."""
    match error:
        case ErrorCode.producer_fenced:
            return ErrorCode.invalid_producer_epoch
        case ErrorCode.network_exception:
            return ErrorCode.coordinator_load_in_progress
        case ErrorCode.transaction_abortable if context.api_version < _KNOWS_ABORTABLE_FROM:
            return ErrorCode.invalid_txn_state
        case _:
            return error
