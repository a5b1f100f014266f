"""InitProducerId: an id for an idempotent or a transactional producer.

Behaviour: a new id with epoch 0; a producer that sends its id and epoch continues with the next
epoch (KIP-360), or gets a new id when its epochs are used up; an id without an epoch, or the
reverse, is INVALID_REQUEST. COORDINATOR_LOAD_IN_PROGRESS, which clients retry, while no controller
can be reached. Versions: 0 to 5. With a transactional id, its coordinator decides: the former
producer is fenced, and its open transaction is aborted first. Not done: prepared transactions of
two-phase commit (KIP-939, version 6, which Apache Kafka 4.3 does not offer by default).
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.authorization.authorizer import Authorizer
from broker.coordination.state_shard import CoordinatorRefusal
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.transactions.core.producer_ids import bumped_epoch
from broker.transactions.core.transaction_messages import InitProducer
from broker.transactions.producer_id_source import ProducerIdSource
from broker.transactions.transaction_coordinator import TransactionCoordinator
from wire.control.clients import ControllerUnavailable
from wire.protocol.ids import NO_EPOCH, NO_PRODUCER_ID
from wire.rules.acls import Operation, ResourceType

API_KEY = 22
MIN_VERSION = 0
MAX_VERSION = 5

_KNOWS_PRODUCER_FENCED_FROM = 4


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    authorizer: Authorizer
    producer_ids: ProducerIdSource
    transactions: TransactionCoordinator


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer an InitProducerId request."""
    producer_id, named_epoch = (
        getattr(request, "producer_id", NO_PRODUCER_ID),
        getattr(request, "producer_epoch", NO_EPOCH),
    )
    if (producer_id == NO_PRODUCER_ID) is not (named_epoch == NO_EPOCH):
        return _answer(context, error=ErrorCode.invalid_request)
    if request.transactional_id is not None:
        return await _transactional(doors, context, request)
    if not _may_write_idempotently(doors, context):
        return _answer(context, error=ErrorCode.cluster_authorization_failed)
    epoch = bumped_epoch(producer_id, named_epoch)
    if epoch is not None:
        return _answer(context, producer_id=producer_id, epoch=epoch)
    try:
        return _answer(context, producer_id=await doors.producer_ids.next_id(), epoch=0)
    except ControllerUnavailable:
        return _answer(context, error=ErrorCode.coordinator_load_in_progress)


def _may_write_idempotently(doors: Doors, context: RequestContext) -> bool:
    """A producer that may write to any topic needs no right of the cluster (KIP-679)."""
    authorizer = doors.authorizer
    if not authorizer.is_enabled or authorizer.may_cluster(context, Operation.IDEMPOTENT_WRITE, is_logged=False):
        return True
    return authorizer.may_any(context, Operation.WRITE, ResourceType.TOPIC)


async def _transactional(doors: Doors, context: RequestContext, request: Any) -> Any:
    command = InitProducer(
        transactional_id=request.transactional_id,
        timeout_ms=round(request.transaction_timeout.total_seconds() * 1000),
        producer_id=getattr(request, "producer_id", NO_PRODUCER_ID),
        producer_epoch=getattr(request, "producer_epoch", NO_EPOCH),
    )
    try:
        reply = await doors.transactions.init_producer(command)
    except CoordinatorRefusal as refusal:
        return _answer(context, error=refusal.code)
    error = reply.error
    if error is ErrorCode.producer_fenced and context.api_version < _KNOWS_PRODUCER_FENCED_FROM:
        error = ErrorCode.invalid_producer_epoch
    return _answer(context, error=error, producer_id=reply.producer_id, epoch=reply.producer_epoch)


def _answer(
    context: RequestContext,
    *,
    error: ErrorCode = ErrorCode.none,
    producer_id: int = NO_PRODUCER_ID,
    epoch: int = NO_EPOCH,
) -> Any:
    return builder(API_KEY, context.api_version).response(
        error_code=error, producer_id=producer_id, producer_epoch=epoch
    )
