"""A mirror that shares its link is paused for a minute (SIGSTOP) while it has many batches in
flight; another one takes over its partitions.

It resumes with its fetched batches. Its delayed requests arrive at the same moment, and it cannot
ask which daemon owns its partitions. Promised (M11): the target refuses its late batches or has
them already, so the target shows each record once and in order at every moment; the mirror
continues only after the others have assigned its share again. So for exact links, and for translate
links by sequences and in transactions.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import pytest

from tests.support.clients.steady_batches import SteadyBatches
from tests.support.eventually import eventually
from tests.support.pairs.mirror_calls import describe_mirror
from tests.support.pairs.mirror_sites import Pair, start_lone_site, start_pair
from tests.support.pairs.translate_links import create_topic, shares_of
from tests.support.pairs.translate_transactions import TRANSACTIONS, TransactionalLink
from tests.support.processes.apache_kafka import ApacheKafka, start_kafka_with_lines
from tests.support.processes.processes import Processes, RunningProcess
from tests.support.processes.toxiproxy import Proxy, Toxiproxy

pytestmark = [pytest.mark.chaos, pytest.mark.long, pytest.mark.timeout(600)]

TOPIC = "stopped"
PARTITIONS = 4
STOPPED_S = 60.0
STOPPED_WITHIN_MS = 120_000
ON_HAND_BYTES = 100_000
SOME_BATCHES = 200
BATCHES_PER_SECOND = 40
SHARED_WITHIN_MS = 120_000
EQUAL_WITHIN_MS = 120_000
SHARING = {"antipode.sharing.enabled": "true", "antipode.sharing.session.timeout.ms": "3000"}


class Link(Protocol):
    """The requirements of the scenario for a link of one topic."""

    @property
    def source(self) -> str: ...

    @property
    def topic(self) -> str: ...

    def start_mirror(self, name: str, settings: Mapping[str, str]) -> RunningProcess: ...

    async def each_partition_went_on(self) -> None: ...

    async def demand_prefixes(self) -> None: ...

    async def wait_equal(self, within_ms: float) -> None: ...


@dataclass
class ExactLink:
    """An exact link of a pair of sites."""

    pair: Pair
    topic: str

    @property
    def source(self) -> str:
        return self.pair.source.bootstrap

    def start_mirror(self, _: str, settings: Mapping[str, str]) -> RunningProcess:
        return self.pair.start_mirror(settings)

    async def each_partition_went_on(self) -> None:
        before = await self.pair.ends(self.pair.target, self.topic, PARTITIONS)

        async def have_more() -> bool:
            now = await self.pair.ends(self.pair.target, self.topic, PARTITIONS)
            return all(end > was for (_, end), (_, was) in zip(now, before, strict=True))

        await eventually(have_more, SHARED_WITHIN_MS)

    async def demand_prefixes(self) -> None:
        await self.pair.check_prefix(self.topic, PARTITIONS)

    async def wait_equal(self, within_ms: float) -> None:
        await self.pair.caught_up(self.topic, PARTITIONS, within_ms=within_ms)


async def demand_that_it_writes_nothing(link: Link, line: Proxy, zookeeper: Proxy, zookeeper_connect: str) -> None:
    """`line` is the proxy between the paused mirror and its target, `zookeeper` the one between the
    mirror and the other daemons of the link.
    """
    connect = "antipode.sharing.zookeeper.connect"
    behind = zookeeper.address + zookeeper_connect[zookeeper_connect.index("/") :]
    stopped = link.start_mirror("stopped", {**SHARING, connect: behind, "target.bootstrap.servers": line.address})
    other = link.start_mirror("other", {**SHARING, connect: zookeeper_connect})

    async def is_split(*sizes: int) -> None:
        found = [stopped, other] if len(sizes) == 2 else [other]
        await eventually(lambda: shares_of(found, link.topic, sizes), SHARED_WITHIN_MS)

    async def has_much_on_hand() -> bool:
        return (await describe_mirror(stopped)).queued_bytes > ON_HAND_BYTES

    async with SteadyBatches(link.source, link.topic, PARTITIONS, batches_per_second=BATCHES_PER_SECOND) as load:
        await is_split(PARTITIONS // 2, PARTITIONS // 2)
        await link.each_partition_went_on()
        held_back = await asyncio.to_thread(line.add, "bandwidth", stream="upstream", rate=0)
        await eventually(has_much_on_hand, SHARED_WITHIN_MS)
        stopped.pause()
        until_s = time.monotonic() + STOPPED_S
        zookeeper.cut()
        await is_split(PARTITIONS)
        await link.each_partition_went_on()
        await eventually(lambda: time.monotonic() > until_s, STOPPED_WITHIN_MS)
        await asyncio.to_thread(line.remove, held_back)
        stopped.resume()
        await is_split(0, PARTITIONS)
        await load.wait_for(SOME_BATCHES)
        await link.demand_prefixes()
        zookeeper.restore()
        await is_split(PARTITIONS // 2, PARTITIONS // 2)
        await load.wait_for(SOME_BATCHES)
        await link.each_partition_went_on()
        await link.demand_prefixes()
    await link.wait_equal(within_ms=EQUAL_WITHIN_MS)


async def test_a_mirror_of_an_exact_link_that_wakes_up_writes_nothing_of_what_another_one_took_over(
    processes: Processes, tmp_path: Path, toxiproxy: Toxiproxy, zookeeper_connect: str
) -> None:
    pair = await start_pair(processes, tmp_path, target_toxiproxy=toxiproxy, lines=1)
    await pair.create(TOPIC, PARTITIONS, {"retention.ms": "-1"})  # the batches are dated 1970
    zookeeper = toxiproxy.create("zookeeper", zookeeper_connect.partition("/")[0])
    await demand_that_it_writes_nothing(ExactLink(pair, TOPIC), pair.target.lines[0], zookeeper, zookeeper_connect)


@pytest.mark.java
@pytest.mark.parametrize(
    "settings",
    [
        pytest.param({"antipode.target.transactions": "false"}, id="sequences"),
        pytest.param(TRANSACTIONS, id="transactions"),
    ],
)
@pytest.mark.parametrize("is_antipode_the_target", [False, True], ids=["apache kafka", "antipode"])
async def test_a_mirror_of_a_translate_link_that_wakes_up_writes_nothing_of_what_another_one_took_over(
    is_antipode_the_target: bool,
    settings: Mapping[str, str],
    apache_kafka: ApacheKafka,
    processes: Processes,
    tmp_path: Path,
    toxiproxy: Toxiproxy,
    zookeeper_connect: str,
) -> None:
    if is_antipode_the_target:
        site = await start_lone_site(processes, tmp_path, "target", toxiproxy=toxiproxy, lines=1)
        target, (line,) = site.bootstrap, site.lines
    else:
        kafka, (line,) = start_kafka_with_lines(processes, tmp_path / "target", toxiproxy, 1)
        target = kafka.bootstrap_servers
    source = apache_kafka.bootstrap_servers
    topic = f"{TOPIC}-{is_antipode_the_target}-{settings is TRANSACTIONS}"
    await create_topic(source, topic, PARTITIONS)
    link = TransactionalLink(processes, tmp_path, source, target, topic, PARTITIONS, settings)
    zookeeper = toxiproxy.create("zookeeper", zookeeper_connect.partition("/")[0])
    await demand_that_it_writes_nothing(link, line, zookeeper, zookeeper_connect)
