"""Controlled shutdown: before a broker stops, the controller moves its leaderships elsewhere.

Producers must lose nothing and wait only briefly. Once the controller is asked, Produce requests
wait. Earlier ones get time to be replicated, so that the move truncates nothing. Then the waiting
requests, and all later ones until the connection closes, are answered with the new leader
(KIP-951).

A leadership that cannot move (no other in-sync replica, no controller) does not keep the broker
from stopping. Called first by `main.Broker.stop`, while the broker still serves clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from kio.schema.errors import ErrorCode

from broker.metadata.core.cluster_image import ClusterImage
from broker.replication.core.wake_ups import DelayedOperation
from broker.replication.replicas import Replicas
from broker.settings.config import BrokerSettings
from runtime.logs import get_logger
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient, ControllerUnavailable

log = get_logger(__name__)

ATTEMPT_TIMEOUT_S: Final = 3.0
"""A stop does not wait long for a controller that is not there."""
REPLICATED_WITHIN_S: Final = 0.5
"""Time (s) that records for which producers wait may take to reach the followers."""


class ControlledShutdown:
    """The state of it; Produce asks whether it is under way."""

    def __init__(self) -> None:
        self._is_moved = asyncio.Event()
        self.is_under_way = False
        """True if the future leaders are unknown yet."""

    async def moved(self) -> None:
        """Wait until the controller has answered; from then on the image names the new leaders."""
        await self._is_moved.wait()

    async def run(
        self,
        controller: ControllerClient,
        settings: BrokerSettings,
        *,
        broker_epoch: int,
        replicas: Replicas,
        image: Callable[[], ClusterImage],
    ) -> None:
        """Ask until this broker leads nothing that another in-sync replica could lead, or the
        attempts are used up.
        """
        # no leadership can move, so producers need not wait
        if all(len(hosted.state.replicas) <= 1 for hosted in replicas):
            return
        # before the wait: appends from here on would lengthen it
        self.is_under_way = not self._is_moved.is_set()
        try:
            await _replicated(replicas)
            request = pb.ControlledShutdownRequest(node_id=settings.node_id, broker_epoch=broker_epoch)
            for attempt in range(settings.controlled_shutdown_retries_max + 1):
                if attempt:
                    await asyncio.sleep(settings.controlled_shutdown_backoff_ms / 1000)
                is_over = await _ask(controller, request, attempt)
                # after the first answer, though some leaderships may stay: requests must not wait
                # for those
                self._end()
                # no other broker is left that could take a leadership later
                if is_over or image().brokers.keys() <= {settings.node_id}:
                    return
        finally:
            # also when the stop is cancelled: a waiting request must always get an answer
            self._end()

    def _end(self) -> None:
        self.is_under_way = False
        self._is_moved.set()


async def _replicated(replicas: Replicas) -> None:
    """Wait until no producer waits for followers; new appends are held back meanwhile."""
    try:
        async with asyncio.timeout(REPLICATED_WITHIN_S):
            await replicas.purgatory.emptied(DelayedOperation.PRODUCE)
    except TimeoutError:
        log.warning("replication took too long: waiting producers get an error, but their records may be kept")


async def _ask(controller: ControllerClient, request: pb.ControlledShutdownRequest, attempt: int) -> bool:
    """Ask the controller once; return True if nothing is left to ask for."""
    try:
        async with asyncio.timeout(ATTEMPT_TIMEOUT_S):
            reply = await controller.controlled_shutdown(request)
    except (ControllerUnavailable, TimeoutError) as error:
        log.warning("controlled shutdown failed", reason=str(error) or "the controller does not answer")
        return True
    if reply.error_code:
        log.warning("controlled shutdown refused", code=ErrorCode(reply.error_code).name)
        return True
    if not reply.remaining_count:
        log.info("controlled shutdown moved all leaderships")
        return True
    log.warning("no in-sync replica can become leader", partitions=reply.remaining_count, attempt=attempt + 1)
    return False
