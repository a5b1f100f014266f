"""Controlled shutdown: before a broker stops, the controller moves what it leads to replicas in sync elsewhere.

Whatever cannot be moved (no other replica in sync, no controller) does not keep the broker from stopping; it is then missed as after
any other stop. Called first of all by `main.Broker.stop`, while clients are still served.
"""

from __future__ import annotations

import asyncio
from typing import Final

from kio.schema.errors import ErrorCode

from broker.config import BrokerSettings
from broker.replicas import Replicas
from runtime.logs import get_logger
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient, ControllerUnavailable

log = get_logger(__name__)

ATTEMPT_TIMEOUT_S: Final = 3.0
"""A stop does not wait long for a controller that is not there."""


async def hand_over(
    controller: ControllerClient, settings: BrokerSettings, *, broker_epoch: int, replicas: Replicas
) -> None:
    """Ask until nothing with other replicas is led here, or the attempts are used up."""
    if all(len(hosted.state.replicas) <= 1 for hosted in replicas):
        return
    request = pb.ControlledShutdownRequest(node_id=settings.node_id, broker_epoch=broker_epoch)
    for attempt in range(settings.controlled_shutdown_retries_max + 1):
        if attempt:
            await asyncio.sleep(settings.controlled_shutdown_backoff_ms / 1000)
        try:
            async with asyncio.timeout(ATTEMPT_TIMEOUT_S):
                reply = await controller.controlled_shutdown(request)
        except (ControllerUnavailable, TimeoutError) as error:
            log.warning("leaderships cannot be handed over", reason=str(error) or "the controller does not answer")
            return
        if reply.error_code:
            log.warning("leaderships are not handed over", code=ErrorCode(reply.error_code).name)
            return
        if not reply.remaining_count:
            log.info("leaderships are handed over")
            return
        log.warning("no replica in sync can take over", partitions=reply.remaining_count, attempt=attempt + 1)
