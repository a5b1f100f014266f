"""AddPartitionsToTxn: adds the partitions to which a transaction will write.

Behaviour: producers of the older protocol send it before they write (versions 0 to 3); leaders of
partitions send several transactions at once, to add or only to verify (versions 4 and 5, KIP-890).
Partitions that no site knows get UNKNOWN_TOPIC_OR_PARTITION, and those of internal topics
TOPIC_AUTHORIZATION_FAILED from the older protocol; then none of the transaction is added (the
others get OPERATION_NOT_ATTEMPTED), as in Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.authorization.authorizer import CLUSTER_ACTION, Authorizer, Check
from broker.authorization.authorizer import topics as written_topics
from broker.coordination.state_shard import CoordinatorRefusal
from broker.handlers.registry import request_label
from broker.metadata.cluster import Cluster
from broker.metadata.request_context import RequestContext
from broker.metrics import BrokerMetrics
from broker.transactions.core.transaction_messages import AddPartitions, AddReply, VerifyPartitions
from broker.transactions.core.transaction_states import BUMPING_CLIENT_VERSION
from broker.transactions.transaction_coordinator import TransactionCoordinator
from wire.protocol.ids import TopicPartition
from wire.protocol.messages.add_partitions_codec import TopicResults, encode_add_partitions_response
from wire.rules.acls import Operation, ResourceType
from wire.rules.topic_names import INTERNAL_TOPICS

API_KEY = 24
MIN_VERSION = 0
MAX_VERSION = 5

_SEVERAL_TRANSACTIONS_FROM = 4
_KNOWS_PRODUCER_FENCED_FROM = 2
_NEWER_PROTOCOL_FROM = 5

Errors = Mapping[TopicPartition, ErrorCode]


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    authorizer: Authorizer
    cluster: Cluster
    metrics: BrokerMetrics
    transactions: TransactionCoordinator


async def handle(request: Any, context: RequestContext, doors: Doors) -> bytes:
    """Answer an AddPartitionsToTxn request; the answer is encoded already."""
    version = context.api_version
    if version >= _SEVERAL_TRANSACTIONS_FROM:
        if not doors.authorizer.may(context, CLUSTER_ACTION):
            return _refused(doors, context, request, ErrorCode.cluster_authorization_failed)
        results = [
            (one.transactional_id, _by_topic(one.topics, await _add(doors, context, one, one.topics)))
            for one in request.transactions
        ]
        _count_errors(doors, results)
        return encode_add_partitions_response(version, results)
    one, topics = _Older(request), request.v3_and_below_topics
    writes = Check(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, one.transactional_id)
    if not doors.authorizer.may(context, writes):
        return _refused(doors, context, request, ErrorCode.transactional_id_authorization_failed)
    errors = await _add(doors, context, one, topics)
    results = [(one.transactional_id, _by_topic(topics, errors))]
    _count_errors(doors, results)
    return encode_add_partitions_response(version, results)


def _refused(doors: Doors, context: RequestContext, request: Any, error: ErrorCode) -> bytes:
    """The same error for every partition of every transaction."""
    transactions = (
        [(one.transactional_id, one.topics) for one in request.transactions]
        if context.api_version >= _SEVERAL_TRANSACTIONS_FROM
        else [(_Older(request).transactional_id, request.v3_and_below_topics)]
    )
    results = [
        (
            name,
            _by_topic(
                topics,
                {TopicPartition(topic.name, index): error for topic in topics for index in topic.partitions},
            ),
        )
        for name, topics in transactions
    ]
    _count_errors(doors, results)
    return encode_add_partitions_response(context.api_version, results)


def _count_errors(doors: Doors, results: list[tuple[str, TopicResults]]) -> None:
    metrics = doors.metrics.api(request_label(API_KEY))
    for _, topics in results:
        for partitions in topics.values():
            metrics.count_errors(code for _, code in partitions)


class _Older:
    """The one transaction of a request before version 4."""

    def __init__(self, request: Any) -> None:
        self.transactional_id: str = request.v3_and_below_transactional_id
        self.producer_id: int = request.v3_and_below_producer_id
        self.producer_epoch: int = request.v3_and_below_producer_epoch
        self.verify_only = False


async def _add(doors: Doors, context: RequestContext, transaction: Any, topics: Any) -> Errors:
    partitions = [TopicPartition(topic.name, index) for topic in topics for index in topic.partitions]
    failed = dict.fromkeys(_unknown(doors, partitions), ErrorCode.unknown_topic_or_partition)
    if context.api_version < _SEVERAL_TRANSACTIONS_FROM:
        checks = written_topics(Operation.WRITE, {partition.topic for partition in partitions})
        denied = {check.name for check in doors.authorizer.denied(context, checks)}
        denied |= INTERNAL_TOPICS  # a producer adds a group's offsets by AddOffsetsToTxn
        failed |= {one: ErrorCode.topic_authorization_failed for one in partitions if one.topic in denied}
    if failed and not transaction.verify_only:
        return {partition: failed.get(partition, ErrorCode.operation_not_attempted) for partition in partitions}
    try:
        reply = await _ask(doors, context, transaction, frozenset(partitions))
    except CoordinatorRefusal as refusal:
        reply = AddReply(error=refusal.code)
    translated = _translation(context)
    if reply.error is not ErrorCode.none:
        return dict.fromkeys(partitions, translated(reply.error))
    return {partition: translated(error) for partition, error in reply.errors.items()}


async def _ask(
    doors: Doors, context: RequestContext, transaction: Any, partitions: frozenset[TopicPartition]
) -> AddReply:
    producer = {
        "transactional_id": transaction.transactional_id,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
    }
    if transaction.verify_only:
        return await doors.transactions.verify_partitions(VerifyPartitions(**producer, partitions=partitions))
    is_newer = context.api_version >= _NEWER_PROTOCOL_FROM
    version = BUMPING_CLIENT_VERSION if is_newer else 0
    return await doors.transactions.add_partitions(
        AddPartitions(**producer, partitions=partitions, client_version=version)
    )


def _unknown(doors: Doors, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
    image = doors.cluster.image
    routed = {topic: image.routed_topic(topic) for topic in {partition.topic for partition in partitions}}
    return {
        partition
        for partition in partitions
        if (found := routed[partition.topic]) is None or partition.partition not in found.topic.partitions
    }


def _translation(context: RequestContext) -> Callable[[ErrorCode], ErrorCode]:
    """Errors in the form that this version knows."""
    version = context.api_version

    def translated(error: ErrorCode) -> ErrorCode:
        if error is ErrorCode.producer_fenced and version < _KNOWS_PRODUCER_FENCED_FROM:
            return ErrorCode.invalid_producer_epoch
        return error

    return translated


def _by_topic(topics: Any, errors: Errors) -> TopicResults:
    results: dict[str, list[tuple[int, int]]] = {}
    for topic in topics:
        found = results.setdefault(topic.name, [])
        found += [(index, errors[TopicPartition(topic.name, index)]) for index in topic.partitions]
    return results
