"""Several producers behind one interface; each partition always uses the same one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Self

from clients.core.slots import stable_slot
from clients.producer.producer import Producer
from clients.producer.producer_options import Delivered, ProducerRecord
from wire.protocol.ids import PartitionKey


class ProducerPool:
    """Several producers with separate connections; a partition always uses the same one, so its
    order is kept.
    """

    def __init__(self, producers: Sequence[Producer]) -> None:
        self.producers = tuple(producers)

    async def __aenter__(self) -> Self:
        for producer in self.producers:
            producer.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await asyncio.gather(*(producer.close(timeout_ms=None if kind is None else 0) for producer in self.producers))

    async def send(self, record: ProducerRecord) -> asyncio.Future[Delivered]:
        """Send like `Producer.send`; the first producer's partitioner decides for all producers."""
        chooser = self.producers[0]
        partition = await chooser.partition_of(record)
        return await self._of((record.topic, partition)).send_to(partition, record, chosen_by=chooser)

    async def flush(self) -> None:
        """Flush all producers like `Producer.flush`."""
        await asyncio.gather(*(producer.flush() for producer in self.producers))

    def _of(self, place: PartitionKey) -> Producer:
        return self.producers[stable_slot(place, len(self.producers))]
