"""A writer that knows one broker only and notes the time of each response. By it tests find the
site that acknowledges, and the time at which a site stops.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from kio.schema.errors import ErrorCode

from runtime.clock import SystemClock
from tests.support.disks.log_batches import batch
from tests.support.eventually import eventually
from wire.client.client_errors import KafkaClientError
from wire.client.raw_client import KafkaClient
from wire.protocol.messages.produce_codec import PartitionRecords, ProduceRequest, TopicRecords

PAUSE_S = 0.01
ANSWERED_WITHIN_MS = 2_000


@dataclass(frozen=True, slots=True)
class Answer:
    """The broker's answer to one record, and the times of the request and the answer (monotonic
    ms); no code: nothing. The offset is that of an acknowledged record.
    """

    value: bytes
    offset: int
    sent_at_ms: float
    answered_at_ms: float
    code: ErrorCode | None

    @property
    def is_acknowledged(self) -> bool:
        """True if the record counts as written."""
        return self.code is ErrorCode.none


class SiteWriter:
    """Writes record after record with acks=all to one broker, after any answer, until the block
    ends.
    """

    def __init__(self, bootstrap_servers: str, node_id: int, topic: str) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._node_id = node_id
        self._topic = topic
        self._clock = SystemClock()
        self._writing: asyncio.Task[None] | None = None
        self.answers: list[Answer] = []

    async def __aenter__(self) -> Self:
        self._writing = asyncio.create_task(self._write())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._writing is not None
        self._writing.cancel()
        await asyncio.gather(self._writing, return_exceptions=True)

    @property
    def acknowledged(self) -> list[Answer]:
        """The records that were written."""
        return [answer for answer in tuple(self.answers) if answer.is_acknowledged]

    async def writes(self, count: int = 20) -> None:
        """Wait until so many more records are acknowledged."""
        known = len(self.acknowledged)
        await eventually(lambda: _true(len(self.acknowledged) >= known + count))

    async def is_refused(self, count: int = 20) -> None:
        """Wait until the last so many responses were no acknowledgements."""
        await eventually(
            lambda: _true(
                len(self.answers) >= count and not any(answer.is_acknowledged for answer in self.answers[-count:])
            ),
            60_000,
        )

    async def _write(self) -> None:
        number = 0
        while True:
            try:
                async with AsyncExitStack() as closing:
                    client = await closing.enter_async_context(
                        KafkaClient(self._bootstrap_servers, site_local=True, retry_budget_ms=0)
                    )
                    while True:
                        await self._one(client, b"%d-%d" % (self._node_id, number))
                        number += 1
                        await asyncio.sleep(PAUSE_S)
            except (KafkaClientError, OSError):
                await asyncio.sleep(PAUSE_S)  # the broker is away

    async def _one(self, client: KafkaClient, value: bytes) -> None:
        records = batch([(None, value)], timestamp_ms=self._clock.now_ms())
        request = ProduceRequest(
            None, -1, ANSWERED_WITHIN_MS, [TopicRecords(self._topic, None, [PartitionRecords(0, records)])]
        )
        sent_at_ms, code, offset = self._clock.monotonic_ms(), None, -1
        try:
            response = await client.produce_to(self._node_id, request)
            assert response is not None
            (produced,) = response.topics[0].partitions
            code, offset = ErrorCode(produced.error_code), produced.base_offset
        finally:
            self.answers.append(Answer(value, offset, sent_at_ms, self._clock.monotonic_ms(), code))


async def _true(condition: bool) -> bool:
    return condition
