"""Translate links with Apache Kafka at the source, at the target and at both ends."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.apache_kafka import ApacheKafka, start_apache_kafka
from tests.support.eventually import eventually
from tests.support.examples import examples
from tests.support.processes import Processes
from tests.support.translate_links import (
    create_topic,
    produce_batches,
    start_translate_mirror,
    total_end,
    wait_equal,
)
from wire.record_batch import Compression

KILLS = examples(6)

pytestmark = [pytest.mark.integration, pytest.mark.java]


@pytest.fixture(scope="module")
def kafka_b(
    apache_kafka: ApacheKafka, session_processes: Processes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApacheKafka]:
    """A second Apache Kafka; the first one says whether there are any."""
    yield start_apache_kafka(session_processes, tmp_path_factory.mktemp("kafka-b"))


async def test_records_arrive_as_they_are_under_every_codec(
    apache_kafka: ApacheKafka, kafka_b: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    source, target = apache_kafka.bootstrap_servers, kafka_b.bootstrap_servers
    await create_topic(source, "codecs", 5)
    for codec in Compression:
        await produce_batches(source, "codecs", int(codec), 0, 20, compression=codec)
    settings = {"whitelist": "codecs"}
    start_translate_mirror(processes, tmp_path, "mirror", source, target, settings)
    await wait_equal(source, target, "codecs", 5)
    for codec in Compression:
        await produce_batches(source, "codecs", int(codec), 20, 20, compression=codec)
    await wait_equal(source, target, "codecs", 5)


async def test_a_mirror_killed_at_random_moments_loses_and_repeats_nothing(
    apache_kafka: ApacheKafka, kafka_b: ApacheKafka, processes: Processes, tmp_path: Path
) -> None:
    source, target = apache_kafka.bootstrap_servers, kafka_b.bootstrap_servers
    await create_topic(source, "killed", 3)
    settings = {"whitelist": "killed", "max.partition.fetch.bytes": "20000", "num.producers": "2"}
    mirror = start_translate_mirror(processes, tmp_path, "mirror", source, target, settings)
    chance = random.Random(8)
    stop = asyncio.Event()

    async def load() -> int:
        rounds = 0
        while not stop.is_set():
            for partition in range(3):
                await produce_batches(source, "killed", partition, rounds * 40, 40, size=400)
            rounds += 1
        return rounds

    loading = asyncio.create_task(load())
    for _ in range(KILLS):
        await mirrored_something(target, "a.killed", 3)
        await asyncio.sleep(chance.uniform(0, 0.6))  # the moment of the kill is what is varied
        mirror.kill()
        mirror.start()
    stop.set()
    assert await loading > 0
    await wait_equal(source, target, "killed", 3, within_ms=60_000)


async def mirrored_something(target: str, topic: str, partitions: int) -> None:
    """Wait until the target has more than it has now."""
    before = await total_end(target, topic, partitions)

    async def has_more() -> bool:
        return await total_end(target, topic, partitions) > before

    await eventually(has_more, 30_000)
