"""The blocks of producer ids that brokers hand out: the latest one is in the site's ZooKeeper.

Caller: controller/event_loop.py.
"""

from __future__ import annotations

import asyncio

from kazoo.exceptions import KazooException

from controller.core.producer_ids import next_block
from controller.stored.cluster_writer import ClusterWriter
from controller.stored.tenure import Deposed
from runtime.zookeeper.client import ZooKeeper
from runtime.zookeeper.nodes import CreateNode, SetNode
from wire.znodes.cluster_znodes import ProducerIdBlock, decode_producer_id_block, encode_producer_id_block
from wire.znodes.layout import PRODUCER_ID_BLOCK


class ProducerIdBlocks:
    """Allocates blocks during one tenure, one after the other."""

    def __init__(self, zookeeper: ZooKeeper, writer: ClusterWriter) -> None:
        self._zookeeper = zookeeper
        self._writer = writer
        self._lock = asyncio.Lock()

    async def allocate(self, broker_id: int, *, range_start: int, range_size: int) -> ProducerIdBlock:
        """Store and return the next block of the site's producer ids. ProducerIdsExhausted; Deposed
        when it could not be stored.
        """
        async with self._lock:
            try:
                return await self._allocate(broker_id, range_start=range_start, range_size=range_size)
            except KazooException as error:
                raise Deposed(f"a block of producer ids could not be stored: {error!r}") from error

    async def _allocate(self, broker_id: int, *, range_start: int, range_size: int) -> ProducerIdBlock:
        found = await self._zookeeper.get_or_none(PRODUCER_ID_BLOCK)
        latest = None if found is None else decode_producer_id_block(found[0])
        block = next_block(latest, broker_id=broker_id, range_start=range_start, range_size=range_size)
        value = encode_producer_id_block(block)
        if found is None:
            await self._writer.write([CreateNode(path=PRODUCER_ID_BLOCK, value=value)])
        else:
            await self._writer.write([SetNode(path=PRODUCER_ID_BLOCK, value=value, version=found[1].version)])
        return block
