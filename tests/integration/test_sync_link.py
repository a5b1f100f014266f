"""Sync links between real brokers: the standby has every acknowledged record; and the effects of a
standby that does not answer.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from kio.schema.errors import ErrorCode

from tests.support.clients.acknowledged_load import AcknowledgedLoad
from tests.support.disks.log_batches import batch
from tests.support.eventually import eventually
from tests.support.pairs.mirror_sites import Pair, Site, raw_log, start_pair
from tests.support.processes.processes import Processes
from tests.support.processes.toxiproxy import Toxiproxy
from wire.batches.records import decode_records
from wire.client.client_errors import BrokerError
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import LATEST_TIMESTAMP

pytestmark = pytest.mark.integration

TOPIC = "orders"
KEY = (TOPIC, 0)
DEGRADES_AFTER_MS = 1_500
LASTING_MS = 60_000
PATIENCE_MS = 700
TOLD_WITHIN_MS = 120_000
"""A mirror has started by then, on a busy machine too."""


async def sync_pair(
    processes: Processes, directory: Path, policy: str, toxiproxy: Toxiproxy | None = None, partitions: int = 1
) -> Pair:
    pair = await start_pair(processes, directory, toxiproxy=toxiproxy)
    await pair.make_sync(policy, DEGRADES_AFTER_MS)
    await pair.create(TOPIC, partitions)
    return pair


async def produce(pair: Pair, value: bytes, *, timeout_ms: int) -> ErrorCode:
    """One record with acks=all; returns the producer's result."""
    async with KafkaClient(pair.source.bootstrap, retry_budget_ms=0) as client:
        try:
            await client.produce(*KEY, batch([(None, value)]), timeout_ms=timeout_ms)
        except BrokerError as error:
            return error.code
        return ErrorCode.none


async def visible_end(site: Site) -> int:
    async with KafkaClient(site.bootstrap, retry_budget_ms=5_000) as client:
        return (await client.offsets_at([KEY], LATEST_TIMESTAMP))[KEY]


def consumed(bootstrap: str, count: int, within_s: float) -> list[bytes | None]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"})
    try:
        consumer.subscribe([TOPIC])
        return [message.value() for message in consumer.consume(count, timeout=within_s)]
    finally:
        consumer.close()


async def degraded(pair: Pair) -> bool:
    return any(partition.is_degraded for partition in await pair.describe_partitions(pair.source))


async def test_nothing_is_acknowledged_or_shown_before_the_standby_has_it(processes: Processes, tmp_path: Path) -> None:
    pair = await sync_pair(processes, tmp_path, "block")
    assert await produce(pair, b"held", timeout_ms=PATIENCE_MS) is ErrorCode.request_timed_out
    assert await visible_end(pair.source) == 0
    assert await asyncio.to_thread(consumed, pair.source.bootstrap, 1, 2.0) == []
    pair.start_mirror()
    assert await produce(pair, b"told", timeout_ms=TOLD_WITHIN_MS) is ErrorCode.none
    assert await visible_end(pair.source) == 2
    assert [end for _, end in await pair.ends(pair.target, TOPIC, 1)] == [2]
    assert await asyncio.to_thread(consumed, pair.source.bootstrap, 2, TOLD_WITHIN_MS / 1000) == [b"held", b"told"]
    assert not await degraded(pair)


async def test_a_mirror_that_dies_holds_everything_until_another_comes(processes: Processes, tmp_path: Path) -> None:
    """The next daemon reports the records that the killed one had delivered and not reported."""
    pair = await sync_pair(processes, tmp_path, "block")
    for round_ in range(3):
        mirror = pair.start_mirror()
        assert await produce(pair, b"told %d" % round_, timeout_ms=TOLD_WITHIN_MS) is ErrorCode.none
        mirror.kill()
        assert await produce(pair, b"held %d" % round_, timeout_ms=PATIENCE_MS) is ErrorCode.request_timed_out
        assert await visible_end(pair.source) == 2 * round_ + 1
    pair.start_mirror()

    async def is_all_visible() -> bool:
        return await visible_end(pair.source) == 6

    await eventually(is_all_visible)
    await pair.caught_up(TOPIC)


@pytest.mark.long
async def test_a_link_that_degrades_says_so_and_comes_back(processes: Processes, tmp_path: Path) -> None:
    pair = await sync_pair(processes, tmp_path, "degrade")
    mirror = pair.start_mirror()
    assert await produce(pair, b"first", timeout_ms=TOLD_WITHIN_MS) is ErrorCode.none
    mirror.kill()
    assert await produce(pair, b"alone", timeout_ms=TOLD_WITHIN_MS) is ErrorCode.none
    assert await degraded(pair)
    assert await produce(pair, b"at once", timeout_ms=TOLD_WITHIN_MS) is ErrorCode.none
    pair.start_mirror()

    async def is_back() -> bool:
        return not await degraded(pair)

    await eventually(is_back)
    await pair.caught_up(TOPIC)
    # a long time, because a machine that stops for so long would make it degrade again
    await pair.make_sync("degrade", LASTING_MS)
    assert await produce(pair, b"together", timeout_ms=TOLD_WITHIN_MS) is ErrorCode.none
    assert [end for _, end in await pair.ends(pair.target, TOPIC, 1)] == [4]


async def test_a_link_that_degrades_comes_back_over_a_long_line_while_records_keep_coming(
    processes: Processes, tmp_path: Path, toxiproxy: Toxiproxy
) -> None:
    """At every moment the newest records of the standby are some round trips old."""
    pair = await sync_pair(processes, tmp_path, "degrade", toxiproxy)
    assert pair.proxy is not None
    for stream in ("upstream", "downstream"):
        pair.proxy.add("latency", stream=stream, latency=200)
    with AcknowledgedLoad(pair.source.bootstrap, TOPIC, 1) as load:

        async def has_degraded() -> bool:
            return await degraded(pair)

        await eventually(has_degraded)
        pair.start_mirror()

        async def is_back() -> bool:
            return not await degraded(pair)

        await eventually(is_back)
        await asyncio.to_thread(load.finish)
    await pair.caught_up(TOPIC)


async def test_a_lost_source_takes_nothing_acknowledged_with_it(
    processes: Processes, tmp_path: Path, toxiproxy: Toxiproxy
) -> None:
    """Recovery point zero: the site is killed under load over a slow line, and the standby alone
    has every acknowledged record.
    """
    pair = await sync_pair(processes, tmp_path, "block", toxiproxy, partitions=2)
    assert pair.proxy is not None
    pair.proxy.add("latency", latency=15, jitter=10)
    pair.start_mirror()
    with AcknowledgedLoad(pair.source.bootstrap, TOPIC, 2) as load:
        load.wait_acknowledged(1_000)
        pair.source.process.kill()
        reported = [load.acknowledged_values(partition) for partition in range(2)]
    await pair.turn(epoch=3, active="b")
    for partition in range(2):
        end = (await pair.ends(pair.target, TOPIC, 2))[partition][1]
        kept = await values_by_offset(pair.target, partition, end)
        assert reported[partition], "nothing was acknowledged"
        for offset, value in reported[partition].items():
            assert kept.get(offset) == value


async def values_by_offset(site: Site, partition: int, end: int) -> dict[int, bytes]:
    log = await raw_log(site, TOPIC, partition, 0, end)
    return {record.offset: bytes(record.value or b"") for record in decode_records(log)}
