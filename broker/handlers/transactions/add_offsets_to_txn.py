"""AddOffsetsToTxn: adds the group's partition of `__consumer_offsets` to a transaction that will
commit offsets of the group.

While the group has no coordinator that FindCoordinator could name, this returns an error that makes
producers retry this request until their timeout. librdkafka's producers lose that timeout once they
look for the coordinator. Versions: 0 to 4. Producers of KIP-890's protocol do not send it;
TxnOffsetCommit adds the partition.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.coordination.state_shard import CoordinatorRefusal
from broker.groups.coordinator import GroupCoordinator
from broker.metadata.cluster import Cluster
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.settings.dynamic_configs import DynamicConfigs
from broker.site.topic_creation import TopicCreator
from broker.transactions.core.transaction_messages import AddPartitions
from broker.transactions.transaction_coordinator import TransactionCoordinator
from wire.batches.group_records import OFFSETS_TOPIC
from wire.protocol.ids import NO_NODE, TopicPartition

API_KEY = 25
MIN_VERSION = 0
MAX_VERSION = 4

_KNOWS_PRODUCER_FENCED_FROM = 2


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    cluster: Cluster
    configs: DynamicConfigs
    groups: GroupCoordinator
    topic_creator: TopicCreator
    transactions: TransactionCoordinator


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer an AddOffsetsToTxn request."""
    error = await _add(doors, request)
    if error is ErrorCode.producer_fenced and context.api_version < _KNOWS_PRODUCER_FENCED_FROM:
        error = ErrorCode.invalid_producer_epoch
    return builder(API_KEY, context.api_version).response(error_code=error)


async def _add(doors: Doors, request: Any) -> ErrorCode:
    if not request.group_id:
        return ErrorCode.invalid_group_id
    # a producer may commit for a group before any FindCoordinator request names it
    doors.topic_creator.request_missing(OFFSETS_TOPIC, doors.cluster.image)
    offsets_partitions = doors.configs.current.offsets_partition_count
    if doors.cluster.image.coordinator_of(request.group_id, partition_count=offsets_partitions) == NO_NODE:
        return ErrorCode.coordinator_load_in_progress
    try:
        partition = TopicPartition(OFFSETS_TOPIC, doors.groups.partition_of(request.group_id))
        reply = await doors.transactions.add_partitions(
            AddPartitions(
                transactional_id=request.transactional_id,
                producer_id=request.producer_id,
                producer_epoch=request.producer_epoch,
                partitions=frozenset((partition,)),
            )
        )
    except CoordinatorRefusal as refusal:
        return refusal.code
    return reply.error
