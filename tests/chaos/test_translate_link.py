"""A translate link between two Apache Kafka brokers on a bad network: nothing lost, nothing twice,
nothing out of order.

Promised for every fault of the table, at either end, while records keep coming; the mirror heals by
itself once the network does.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
from pathlib import Path

import pytest

from tests.support.clients.steady_batches import LARGE, SteadyBatches
from tests.support.pairs.mirror_sites import start_lone_site
from tests.support.pairs.translate_links import (
    create_topic,
    mirrored_something,
    produce_batches,
    start_translate_mirror,
    until_a_random_moment,
    wait_equal,
)
from tests.support.pairs.translate_transactions import TRANSACTIONS
from tests.support.processes.apache_kafka import ApacheKafka, start_proxied_kafka
from tests.support.processes.processes import Processes
from tests.support.processes.toxiproxy import Proxy, Toxiproxy

pytestmark = [pytest.mark.chaos, pytest.mark.java, pytest.mark.timeout(600)]

FAULTS: tuple[tuple[str, str, dict[str, int]], ...] = (
    ("reset_peer", "downstream", {"timeout": 50}),
    ("limit_data", "upstream", {"bytes": 150_000}),
    ("limit_data", "downstream", {"bytes": 40_000}),
    ("slicer", "upstream", {"average_size": 500, "size_variation": 200, "delay": 10}),
    ("latency", "downstream", {"latency": 150, "jitter": 100}),
    ("timeout", "downstream", {"timeout": 0}),
    ("timeout", "upstream", {"timeout": 0}),
)
"""Toxic, direction (upstream is towards the broker), attributes."""

FAULT_LASTS_S = 2.5
PARTITIONS = 12
KILLS_LONG = 100


@pytest.mark.parametrize(
    ("side", "settings"),
    [
        pytest.param("source", {}, id="source-sequences", marks=pytest.mark.long),
        pytest.param("target", {}, id="target-sequences", marks=pytest.mark.long),
        pytest.param("source", TRANSACTIONS, id="source-transactions", marks=pytest.mark.long),
        pytest.param("target", TRANSACTIONS, id="target-transactions"),
    ],
)
async def test_records_arrive_once_and_in_order_over_a_bad_network(
    apache_kafka: ApacheKafka,
    toxiproxy: Toxiproxy,
    processes: Processes,
    tmp_path: Path,
    side: str,
    settings: dict[str, str],
) -> None:
    far, proxy = start_proxied_kafka(processes, tmp_path / "far", toxiproxy)
    ends = [apache_kafka.bootstrap_servers, far.bootstrap_servers]
    source, target = ends if side == "target" else reversed(ends)
    topic = f"bad-network-{side}-{len(settings)}"
    await create_topic(source, topic, 2)
    settings = {
        **settings,
        "whitelist": topic,
        "link.name": topic,
        "max.partition.fetch.bytes": "30000",
        "request.timeout.ms": "1500",
    }
    start_translate_mirror(processes, tmp_path, "mirror", source, target, settings)
    written = 0
    for toxic, stream, attributes in FAULTS:
        for partition in range(2):
            await produce_batches(source, topic, partition, written, 60, size=400)
        written += 60
        await under_fault(proxy, toxic, stream, attributes)
        for partition in range(2):
            await produce_batches(source, topic, partition, written, 20, size=400)
        written += 20
        await wait_equal(source, target, topic, 2)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("compression", ["none", "zstd"])
async def test_hundreds_of_kills_of_source_and_mirror_deliver_large_batches_once_and_in_order(
    apache_kafka: ApacheKafka, processes: Processes, tmp_path: Path, compression: str
) -> None:
    """The test kills with -9 at random moments under load, sometimes both. The mirror receives
    every response into a buffer that earlier responses had.
    """
    seed = int(os.environ.get("ANTIPODE_SEED") or random.randrange(2**32))
    kills = int(os.environ.get("ANTIPODE_FAULTS") or KILLS_LONG)
    print(f"ANTIPODE_SEED={seed}")
    chance = random.Random(seed)
    site = await start_lone_site(processes, tmp_path, "near")
    source, target = site.bootstrap, apache_kafka.bootstrap_servers
    topic = f"killed-{compression}"
    await create_topic(source, topic, PARTITIONS)
    settings = {
        "whitelist": topic,
        "link.name": topic,
        "request.timeout.ms": "2000",
        "antipode.source.compression.type": compression,
    }
    mirror = start_translate_mirror(processes, tmp_path, "mirror", source, target, settings)
    async with SteadyBatches(source, topic, PARTITIONS, **LARGE) as load:
        for number in range(kills):
            await load.wait_for(chance.randint(0, 4))
            await until_a_random_moment(chance)
            victims = chance.choice(("mirror", "mirror", "source", "mirror and source"))
            print(f"{number}: {victims}, {load.batches} batches", flush=True)
            if "mirror" in victims:
                mirror.kill()
                mirror.start()
            if "source" in victims:
                site.process.kill()
                await site.restart()
            if number % 10 == 9:
                await mirrored_something(target, f"a.{topic}", PARTITIONS)
    await wait_equal(source, target, topic, PARTITIONS, within_ms=120_000)
    assert not re.search("checksum|corrupt", mirror.log_text())


async def under_fault(proxy: Proxy, toxic: str, stream: str, attributes: dict[str, int]) -> None:
    """Let the link run under the fault for a while; a black hole outlasts the mirror's requests."""
    name = await asyncio.to_thread(lambda: proxy.add(toxic, stream=stream, **attributes))
    await pause(FAULT_LASTS_S)
    await asyncio.to_thread(proxy.remove, name)


async def pause(seconds: float) -> None:
    """The fault's duration is what is varied, not something that is waited for."""
    async with asyncio.timeout(seconds + 1):
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=seconds)
