"""A steady load of raw batches to every partition in turn; the load does not retry a batch whose
fate is unknown.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Self

from tests.support.disks.log_batches import batch
from tests.support.eventually import eventually
from wire.client.client_errors import KafkaClientError
from wire.client.raw_client import KafkaClient

RECORDS_A_BATCH = 20
RECORD_BYTES = 500
LARGE = {"record_bytes": 50_000, "batches_per_second": 8}
"""A load of batches of a megabyte, as large as brokers take them by default: each answer and each
request is received by itself.
"""


class SteadyBatches:
    """Produces while the block runs, at most so fast; a source that is away is tried again."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        *,
        batches_per_second: float = 200,
        record_bytes: int = RECORD_BYTES,
    ) -> None:
        self._record_bytes = record_bytes
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._pause_s = 1 / batches_per_second
        self._task: asyncio.Task[None] | None = None
        self.batches = 0

    async def __aenter__(self) -> Self:
        self._task = asyncio.get_running_loop().create_task(self._produce())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Produce no more, before the block ends."""
        assert self._task is not None
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    async def wait_for(self, batches: int) -> None:
        """Wait until so many more have been produced."""
        goal = self.batches + batches
        await eventually(lambda: self.batches >= goal)

    async def _produce(self) -> None:
        async with KafkaClient(self._bootstrap) as client:
            while True:
                values = [self._value(index) for index in range(RECORDS_A_BATCH)]
                with suppress(KafkaClientError):
                    await client.produce(self._topic, self.batches % self._partitions, batch(values))
                    self.batches += 1
                await asyncio.sleep(self._pause_s)

    def _value(self, index: int) -> bytes:
        """Names its batch in every field, so that another batch in its place is noticed."""
        name = f"{self.batches}-{index}-".encode()
        return (name * (self._record_bytes // len(name) + 1))[: self._record_bytes]
