"""Producer ids for this broker's clients: blocks from the active controller, the next one fetched
before the last is used up.

A shell over `core/producer_ids.py`. One request for a block is in flight at a time; a client waits
only if the current block is used up. Called by the InitProducerId handler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from broker.transactions.core.producer_ids import ProducerIds
from runtime.logs import get_logger
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerUnavailable

log = get_logger(__name__)


class BlockSource(Protocol):
    """The source of blocks of producer ids (the controller client)."""

    async def allocate_producer_ids(self, request: pb.AllocateProducerIdsRequest) -> pb.AllocateProducerIdsReply:
        """The next block; ControllerUnavailable."""
        ...


class ProducerIdSource:
    """The producer ids that this broker may give out."""

    def __init__(self, node_id: int, controller: BlockSource, *, broker_epoch: Callable[[], int]) -> None:
        self._node_id = node_id
        self._controller = controller
        self._broker_epoch = broker_epoch
        self._ids = ProducerIds()
        self._fetch: asyncio.Task[None] | None = None

    async def next_id(self) -> int:
        """A unique id; ControllerUnavailable when no block can be had."""
        while (producer_id := self._ids.take()) is None:
            # Shielded: other clients wait for the same block if this one disconnects.
            await asyncio.shield(self._fetching())
        if self._ids.wants_block:
            self._fetching().add_done_callback(_log_failure)
        return producer_id

    def _fetching(self) -> asyncio.Task[None]:
        if self._fetch is None or self._fetch.done():
            self._fetch = asyncio.get_running_loop().create_task(self._fetch_block())
        return self._fetch

    async def _fetch_block(self) -> None:
        request = pb.AllocateProducerIdsRequest(node_id=self._node_id, broker_epoch=self._broker_epoch())
        block = await self._controller.allocate_producer_ids(request)
        self._ids.add_block(block.first_producer_id, block.count)

    async def stop(self) -> None:
        """Give up what is under way."""
        if self._fetch is not None:
            self._fetch.cancel()
            await asyncio.gather(self._fetch, return_exceptions=True)


def _log_failure(fetch: asyncio.Task[None]) -> None:
    """A block that was asked for early and did not come is asked for again by the next client."""
    error = None if fetch.cancelled() else fetch.exception()
    if isinstance(error, ControllerUnavailable):
        log.warning("no block of producer ids", reason=str(error))
    elif error is not None:
        raise error
