"""Members of a classic group that are killed, disconnected or unable to rebalance: the others get
their partitions, and no partition has two readers.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from clients.classic.zookeeper_consumer import RebalanceFailed
from tests.support.clients.classic_consumers import WITHIN_MS, Read, Site, member
from tests.support.eventually import eventually
from tests.support.processes.toxiproxy import Toxiproxy
from tests.support.processes.zookeeper import expire_session

pytestmark = pytest.mark.integration

REPOSITORY = Path(__file__).parents[4]

SHORT = {"session_timeout_ms": 4000}


async def test_a_killed_member_is_replaced_when_its_session_expires(site: Site) -> None:
    topic = await site.new_topic(2)
    group = f"g-{topic}"
    await site.produce(topic, 0, 10, 2)
    arguments = ["--zookeeper", site.connect, "--group", group, "--from-beginning", "--session-timeout-ms", "4000"]
    line = [sys.executable, "-m", "cli.main", "consume", topic, *arguments]
    process = await asyncio.create_subprocess_exec(
        *line, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=REPOSITORY
    )
    assert process.stdout is not None
    for _ in range(10):
        await process.stdout.readline()
    async with member(site.connect, group) as survivor:
        read = Read(*await survivor.create_streams({topic: 1}))
        await eventually(lambda: len(survivor.owned) == 1, WITHIN_MS)
        process.kill()
        await process.wait()
        await eventually(lambda: len(survivor.owned) == 2, WITHIN_MS)
        await site.produce(topic, 10, 20, 2)
        await eventually(lambda: set(read.values) >= set(range(10, 20)), WITHIN_MS)


async def test_a_member_whose_session_expires_joins_again(site: Site) -> None:
    topic = await site.new_topic(2)
    group = f"g-{topic}"
    await site.produce(topic, 0, 10, 2)
    async with member(site.connect, group) as consumer:
        read = Read(*await consumer.create_streams({topic: 1}))
        await read.has(10)
        await consumer.commit()
        before = consumer.rebalances
        await expire_session(consumer._zookeeper, site.connect)
        await eventually(lambda: consumer.rebalances > before, WITHIN_MS)
        await eventually(lambda: len(consumer.owned) == 2, WITHIN_MS)
        await site.produce(topic, 10, 20, 2)
        await read.has(20)
        assert sorted(read.values) == list(range(20))


async def test_a_member_disconnected_from_zookeeper_stops_before_its_session_expires(
    site: Site, toxiproxy: Toxiproxy
) -> None:
    topic = await site.new_topic(2)
    group = f"g-{topic}"
    address, _, path = site.connect.partition("/")
    proxy = toxiproxy.create("zookeeper", address)
    async with member(f"{proxy.address}/{path}", group, **SHORT) as cut_off, member(site.connect, group) as other:
        read = Read(*await cut_off.create_streams({topic: 1}))
        await other.create_streams({topic: 1})
        await eventually(lambda: (len(cut_off.owned), len(other.owned)) == (1, 1), WITHIN_MS)
        with proxy.cut_off():
            await eventually(lambda: len(other.owned) == 2, WITHIN_MS)
            assert cut_off.reading == []
        await eventually(lambda: (len(cut_off.owned), len(other.owned)) == (1, 1), WITHIN_MS)
        others_read = Read(*other.streams)
        await site.produce(topic, 0, 10, 2)
        await eventually(lambda: sorted(read.values + others_read.values) == list(range(10)), WITHIN_MS)


async def test_no_partition_has_two_readers_while_a_members_packets_are_dropped(
    site: Site, toxiproxy: Toxiproxy
) -> None:
    """RB-06: the member gets no notice of its disconnection; no connection ends."""
    topic = await site.new_topic(2)
    group = f"g-{topic}"
    address, _, path = site.connect.partition("/")
    proxy = toxiproxy.create("black-hole", address)
    async with member(f"{proxy.address}/{path}", group, **SHORT) as cut_off, member(site.connect, group) as other:
        await cut_off.create_streams({topic: 1})
        await other.create_streams({topic: 1})
        await eventually(lambda: (len(cut_off.reading), len(other.reading)) == (1, 1), WITHIN_MS)
        both = []

        def other_reads_all() -> bool:
            if len(other.reading) == 2:
                both.extend(cut_off.reading)
            return len(other.reading) == 2

        toxics = [proxy.add("timeout", stream=stream, timeout=0) for stream in ("upstream", "downstream")]
        try:
            await eventually(other_reads_all, WITHIN_MS)
        finally:
            for toxic in toxics:
                proxy.remove(toxic)
        assert both == []
        await eventually(lambda: (len(cut_off.reading), len(other.reading)) == (1, 1), WITHIN_MS)


async def test_a_member_that_cannot_rebalance_leaves_its_partitions_to_the_others(site: Site) -> None:
    """RB-08."""
    topic = await site.new_topic(2)
    await site.produce(topic, 0, 10, 2)
    group = f"g-{topic}"
    failing = False

    async def fail(name: str) -> None:
        if failing and name == "fetch offsets":
            raise RuntimeError("the application does not want to")

    async with (
        member(site.connect, group, fail, rebalance_attempts_max=2) as broken,
        member(site.connect, group) as other,
    ):
        read = Read(*await broken.create_streams({topic: 1}))
        await read.has(10)
        failing = True
        others_read = Read(*await other.create_streams({topic: 1}))
        await eventually(lambda: len(other.reading) == 2, WITHIN_MS)
        assert isinstance(broken.failure, RebalanceFailed)
        await site.produce(topic, 10, 20, 2)
        await others_read.has(10)
        assert sorted(others_read.values) == list(range(10, 20))
