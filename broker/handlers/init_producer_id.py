"""InitProducerId: an id for an idempotent producer.

Behaviour: a new id with epoch 0; a producer that names its id and epoch goes on under the next epoch (KIP-360), or gets a new id when its
epochs are used up. COORDINATOR_LOAD_IN_PROGRESS, which clients retry, while no controller can be reached. Versions: 0 to 5.
Not done: transactional ids. They get COORDINATOR_NOT_AVAILABLE here as in FindCoordinator, where clients ask first: a producer retries
until its own timeout says so, instead of writing what nobody can commit.
"""

from __future__ import annotations

from typing import Any

from kio.schema.errors import ErrorCode

from broker.core.producer_ids import bumped_epoch
from broker.entities import builder
from broker.services import BrokerServices, RequestContext
from wire.control.clients import ControllerUnavailable

API_KEY = 22
MIN_VERSION = 0
MAX_VERSION = 5

NO_ID = -1


async def handle(services: BrokerServices, context: RequestContext, request: Any) -> Any:
    """Answer an InitProducerId request."""
    if request.transactional_id is not None:
        return _answer(context, error=ErrorCode.coordinator_not_available)
    producer_id = getattr(request, "producer_id", NO_ID)
    epoch = bumped_epoch(producer_id, getattr(request, "producer_epoch", NO_ID))
    if epoch is not None:
        return _answer(context, producer_id=producer_id, epoch=epoch)
    try:
        return _answer(context, producer_id=await services.producer_ids.next_id(), epoch=0)
    except ControllerUnavailable:
        return _answer(context, error=ErrorCode.coordinator_load_in_progress)


def _answer(
    context: RequestContext, *, error: ErrorCode = ErrorCode.none, producer_id: int = NO_ID, epoch: int = NO_ID
) -> Any:
    return builder(API_KEY, context.api_version).response(
        error_code=error, producer_id=producer_id, producer_epoch=epoch
    )
