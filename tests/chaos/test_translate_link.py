"""A translate link between two Apache Kafka brokers on a bad network: nothing lost, nothing twice, nothing out of order.

Promised for every fault of the table, at either end, while records keep coming; the mirror heals by itself once the network does.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support.apache_kafka import ApacheKafka, start_proxied_kafka
from tests.support.processes import Processes
from tests.support.toxiproxy import Proxy, Toxiproxy
from tests.support.translate_links import (
    create_topic,
    produce_batches,
    start_translate_mirror,
    wait_equal,
)
from tests.support.translate_transactions import TRANSACTIONS

pytestmark = [pytest.mark.chaos, pytest.mark.java, pytest.mark.timeout(300)]

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


@pytest.mark.parametrize(
    ("side", "settings"),
    [
        pytest.param("source", {}, id="source-sequences"),
        pytest.param("target", {}, id="target-sequences"),
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
        await wait_equal(source, target, topic, 2, within_ms=60_000)


async def under_fault(proxy: Proxy, toxic: str, stream: str, attributes: dict[str, int]) -> None:
    """Let the link run under the fault for a while; a black hole outlasts the mirror's requests."""
    name = await asyncio.to_thread(lambda: proxy.add(toxic, stream=stream, **attributes))
    await pause(FAULT_LASTS_S)
    await asyncio.to_thread(proxy.remove, name)


async def pause(seconds: float) -> None:
    """The fault's duration is what is varied, not something that is waited for."""
    async with asyncio.timeout(seconds + 1):
        await asyncio.wait([asyncio.get_running_loop().create_future()], timeout=seconds)
