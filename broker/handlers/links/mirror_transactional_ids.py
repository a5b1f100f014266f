"""MirrorTransactionalIds (private): a mirror reports the active site's transactional producers.

Behaviour: accepted only at the link's epoch, and only while the link's other site coordinates
transactions instead of this one. The ids are stored as carried producers
(`broker/transactions/core/transaction_machine.py`); an id whose transaction this site has not ended
stays unchanged. Versions: 0. Not done: nothing.
"""

from __future__ import annotations

import asyncio
from typing import Any

from kio.schema.errors import ErrorCode
from msgspec import Struct

from broker.coordination.state_shard import CoordinatorRefusal
from broker.metadata.request_context import RequestContext
from broker.transactions.core.transaction_messages import CarryProducer
from broker.transactions.transaction_coordinator import TransactionCoordinator
from wire.protocol.messages.link_messages import (
    MIRROR_TRANSACTIONAL_IDS,
    MirroredProducerOutcome,
    MirrorTransactionalIdsResponse,
)
from wire.protocol.messages.private import PRIVATE_VERSIONS

API_KEY = MIRROR_TRANSACTIONAL_IDS
MIN_VERSION, MAX_VERSION = PRIVATE_VERSIONS[MIRROR_TRANSACTIONAL_IDS]


class Doors(Struct, frozen=True, kw_only=True):
    """The parts of the broker that the handler uses."""

    transactions: TransactionCoordinator


async def handle(request: Any, _context: RequestContext, doors: Doors) -> Any:
    """Answer a MirrorTransactionalIds request."""
    errors = await asyncio.gather(
        *(_carry(doors, producer, link=request.link, link_epoch=request.link_epoch) for producer in request.producers)
    )
    return MirrorTransactionalIdsResponse(
        outcomes=tuple(
            MirroredProducerOutcome(transactional_id=producer.transactional_id, error_code=error)
            for producer, error in zip(request.producers, errors, strict=True)
        )
    )


async def _carry(doors: Doors, producer: Any, *, link: str, link_epoch: int) -> ErrorCode:
    command = CarryProducer(
        transactional_id=producer.transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        timeout_ms=producer.timeout_ms,
    )
    try:
        return await doors.transactions.carry(command, link=link, link_epoch=link_epoch)
    except CoordinatorRefusal as refusal:
        return refusal.code
