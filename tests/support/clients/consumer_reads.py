"""Reads of a consumer over a scripted cluster, for its tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from clients.consumer.consumer import Consumer
from clients.consumer.consumer_options import ConsumerOptions
from clients.reader.core.positions import Position, ResetPolicy
from clients.reader.core.readings import Start
from clients.reader.reader_options import Chunk, ReaderOptions
from tests.support.clients.scripted_cluster import ScriptedCluster
from wire.client.raw_client import KafkaClient

P0, P1 = ("t", 0), ("t", 1)


FROM_0 = Start(Position(0))


@asynccontextmanager
async def consuming(
    cluster: ScriptedCluster, policy: ResetPolicy = ResetPolicy.FAIL, **options: Any
) -> AsyncIterator[Consumer]:
    reader = ReaderOptions(policy=policy, max_wait_ms=20, leader_backoff_ms=5, partition_bytes=400)
    given = ConsumerOptions(is_auto_commit=False, reader=reader, **options)
    async with Consumer(lambda: KafkaClient(cluster.bootstrap, retry_budget_ms=2000), given) as consumer:
        yield consumer


def numbers(consumer: Consumer, chunks: Sequence[Chunk]) -> list[int]:
    return [int(record.value or b"") for chunk in chunks for record in consumer.opened(chunk)]


async def read(consumer: Consumer, count: int) -> list[int]:
    found: list[int] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += numbers(consumer, await consumer.poll(1000))
    return found


async def read_on(consumer: Consumer, found: list[int]) -> None:
    while True:
        found += numbers(consumer, await consumer.poll(5000))
