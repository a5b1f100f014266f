"""EndTxn: commit or abort a transaction.

Behaviour: answered when the decision is in `__transaction_state`; the markers follow. From version
5 on (KIP-890) the answer has the epoch, or the new producer id, with which the producer continues.
Versions: 0 to 5.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.coordination.state_shard import CoordinatorRefusal
from broker.metadata.cluster import Cluster
from broker.metadata.request_context import RequestContext
from broker.network.entities import builder
from broker.transactions.core.transaction_messages import EndTransaction, ProducerReply
from broker.transactions.transaction_coordinator import TransactionCoordinator
from runtime.clock import Clock

API_KEY = 26
MIN_VERSION = 0
MAX_VERSION = 5

_BUMPS_EPOCH_FROM = 5
_KNOWS_PRODUCER_FENCED_FROM = 2


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    clock: Clock
    cluster: Cluster
    transactions: TransactionCoordinator


def _may_acknowledge(doors: Doors) -> bool:
    """False if the lease of a link has ended here: another site may be active."""
    permits = doors.cluster.permits
    return not permits.is_in_use or permits.may_end_transactions(doors.cluster.image, now_ms=doors.clock.monotonic_ms())


def _check_permits(doors: Doors) -> None:
    """Raises CoordinatorRefusal if the end of the transaction must not be acknowledged. The client
    asks again; a decision that was already written is then returned unchanged.
    """
    if not _may_acknowledge(doors):
        raise CoordinatorRefusal(ErrorCode.coordinator_load_in_progress)


def may_be_sent(response: Any, doors: Doors) -> bool:
    """False for an acknowledgement after the end of the lease. A response waits for those of
    earlier requests, or for a client that does not read. Offsets of a transaction need no such
    check, because they are valid only with its acknowledged end.
    """
    return response.error_code is not ErrorCode.none or _may_acknowledge(doors)


async def handle(request: Any, context: RequestContext, doors: Doors) -> Any:
    """Answer an EndTxn request."""
    command = EndTransaction(
        transactional_id=request.transactional_id,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        is_commit=request.committed,
        is_bumped=context.api_version >= _BUMPS_EPOCH_FROM,
    )
    try:
        _check_permits(doors)
        reply = await doors.transactions.end(command)
        _check_permits(doors)
    except CoordinatorRefusal as refusal:
        reply = ProducerReply(error=refusal.code)
    error = reply.error
    if error is ErrorCode.producer_fenced and context.api_version < _KNOWS_PRODUCER_FENCED_FROM:
        error = ErrorCode.invalid_producer_epoch
    return builder(API_KEY, context.api_version).response(
        error_code=error, producer_id=reply.producer_id, producer_epoch=reply.producer_epoch
    )
