"""Links over a line that has every fault of the table, at either end of the mirror, while records keep coming.

Promised on exact links: at every moment the target is a byte-exact prefix of the source (M1), nothing is shown that the source does not
have (M2), and all of it arrives once the line is well, without anybody's help. On translate links, with Apache Kafka at the source, at
the target and at both ends: each record once, in order, its bytes unchanged. The order of the faults is by chance; the seed is printed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.support.apache_kafka import ApacheKafka, start_kafka_with_lines, start_proxied_kafka
from tests.support.eventually import eventually
from tests.support.link_faults import LINE_FAULTS, LineFault, strike
from tests.support.many_lines import strike_all
from tests.support.mirror_sites import start_lone_site, start_pair
from tests.support.processes import Processes
from tests.support.steady_batches import SteadyBatches
from tests.support.toxiproxy import Proxy, Toxiproxy
from tests.support.translate_links import create_topic, start_translate_mirror, total_end, wait_equal
from wire.client_errors import KafkaClientError

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

TOPIC = "orders"
PARTITIONS = 3
SHORT_S = 0.8
LONG_S = 43.0
"""As long as the partition between two coasts that made a large site's two databases diverge."""
LONGER_S = (150.0, 660.0)
"""Longer than what has a time limit in the path by default: requests, transactions, deliveries, fetch sessions and copies of metadata; and
longer than ten minutes, after which brokers end connections that are idle and Apache Kafka looks which producers it forgets."""
HEALED_WITHIN_MS = 60_000
HEALED_AT_ONCE_WITHIN_MS = 240_000
"""All lines heal at the same moment."""
QUICK = {"request.timeout.ms": "2000", "max.partition.fetch.bytes": "30000"}


def shuffled(faults: Sequence[LineFault]) -> list[LineFault]:
    seed = int(os.environ.get("ANTIPODE_SEED") or random.randrange(2**32))
    print(f"ANTIPODE_SEED={seed}")
    found = list(faults)
    random.Random(seed).shuffle(found)
    return found


async def exact_link_under(
    faults: Sequence[LineFault], lasting_s: float, end: str, processes: Processes, tmp_path: Path, toxiproxy: Toxiproxy
) -> None:
    pair = await start_pair(processes, tmp_path, **{"toxiproxy" if end == "source" else "target_toxiproxy": toxiproxy})
    proxy = pair.proxy if end == "source" else pair.target_proxy
    assert proxy is not None
    await pair.create(TOPIC, PARTITIONS, {"retention.ms": "-1"})  # the batches are dated 1970
    pair.start_mirror(QUICK)
    async with SteadyBatches(pair.source.bootstrap, TOPIC, PARTITIONS) as load:
        await load.wait_for(PARTITIONS)
        await pair.caught_up_once(TOPIC, PARTITIONS)
        for fault in faults:
            await strike(proxy, fault, lasting_s)
            await pair.check_prefix(TOPIC, PARTITIONS)
            await pair.caught_up_once(TOPIC, PARTITIONS, within_ms=HEALED_WITHIN_MS)
    await pair.caught_up(TOPIC, PARTITIONS, within_ms=HEALED_WITHIN_MS)


@pytest.mark.parametrize("end", ["source", "target"])
async def test_an_exact_link_stays_a_prefix_and_heals_by_itself(
    end: str, processes: Processes, tmp_path: Path, toxiproxy: Toxiproxy
) -> None:
    await exact_link_under(shuffled(LINE_FAULTS), SHORT_S, end, processes, tmp_path, toxiproxy)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("end", ["source", "target"])
async def test_an_exact_link_outlasts_long_faults(
    end: str, processes: Processes, tmp_path: Path, toxiproxy: Toxiproxy
) -> None:
    await exact_link_under(shuffled(LINE_FAULTS), LONG_S, end, processes, tmp_path, toxiproxy)


LINE = {
    "max.partition.fetch.bytes": "30000",
    "queue.byte.size": "1048576",
    "topics.refresh.interval.ms": "1000",
    "group.sync.interval.ms": "1000",
    "config.sync.interval.ms": "5000",
}
"""Time limits are the defaults; a queue that is full while the target is away is what most outages look like."""


def load_of(bootstrap: str, topic: str, fault: LineFault) -> SteadyBatches:
    """More than a line with little bandwidth takes, and little over the others; past all proxies."""
    return SteadyBatches(bootstrap, topic, PARTITIONS, batches_per_second=15 if fault.attributes.get("rate") else 4)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("lasting_s", LONGER_S)
@pytest.mark.parametrize("end", ["source", "target"])
async def test_exact_links_outlast_faults_longer_than_every_time_limit(
    end: str, lasting_s: float, processes: Processes, tmp_path: Path, toxiproxy: Toxiproxy
) -> None:
    """A link, a mirror and a line for each fault, all at once."""
    proxied = {"toxiproxy" if end == "source" else "target_toxiproxy": toxiproxy}
    pair = await start_pair(processes, tmp_path, whitelist=["nothing"], lines=len(LINE_FAULTS), **proxied)
    site = pair.source if end == "source" else pair.target
    async with AsyncExitStack() as running:
        for number, (fault, line) in enumerate(zip(LINE_FAULTS, site.lines, strict=True)):
            topic = f"{TOPIC}-{number}"
            await pair.create(topic, PARTITIONS, {"retention.ms": "-1"})  # the batches are dated 1970
            await pair.add_link(topic)
            pair.start_mirror({**LINE, "link.name": topic, f"{end}.bootstrap.servers": line.address})
            load = await running.enter_async_context(load_of(pair.source.bootstrap, topic, fault))
            await load.wait_for(PARTITIONS)
            await pair.caught_up_once(topic, PARTITIONS, within_ms=HEALED_WITHIN_MS)

        async def mirrored(number: int) -> object:
            return await pair.ends(pair.target, f"{TOPIC}-{number}", PARTITIONS)

        async def heal(number: int) -> None:
            topic = f"{TOPIC}-{number}"
            await pair.check_prefix(topic, PARTITIONS)
            await pair.caught_up_once(topic, PARTITIONS, within_ms=HEALED_AT_ONCE_WITHIN_MS)

        await strike_all(list(zip(LINE_FAULTS, site.lines, strict=True)), lasting_s, mirrored=mirrored, heal=heal)
    for number in range(len(LINE_FAULTS)):
        await pair.caught_up(f"{TOPIC}-{number}", PARTITIONS, within_ms=HEALED_WITHIN_MS)


async def translate_link_under(
    faults: Sequence[LineFault],
    lasting_s: float,
    ends: tuple[str, str],
    proxy: Proxy,
    processes: Processes,
    tmp_path: Path,
) -> None:
    """The batches are dated 1970, as those of a topic that is moved in with its history."""
    source, target = ends
    topic = f"lines-{tmp_path.name.lower().replace('_', '-')}"
    await create_topic(source, topic, PARTITIONS)
    start_translate_mirror(
        processes, tmp_path, "mirror", source, target, {"whitelist": topic, "link.name": topic, **QUICK}
    )
    for fault in faults:
        async with SteadyBatches(source, topic, PARTITIONS, batches_per_second=40) as load:
            await load.wait_for(2)
            await strike(proxy, fault, lasting_s)
        await wait_equal(source, target, topic, PARTITIONS, within_ms=HEALED_WITHIN_MS)
        print(f"passed {fault} for {lasting_s} s", flush=True)


@pytest.mark.java
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("lasting_s", [SHORT_S, LONG_S])
@pytest.mark.parametrize("faulty", ["source", "target"])
@pytest.mark.parametrize("far", ["antipode", "apache kafka"])
async def test_a_translate_link_with_apache_kafka_delivers_once_and_in_order(
    far: str,
    faulty: str,
    lasting_s: float,
    apache_kafka: ApacheKafka,
    processes: Processes,
    tmp_path: Path,
    toxiproxy: Toxiproxy,
) -> None:
    """The proxied end is Apache Kafka, the other one either; so each stands at either end, and both at once."""
    proxied, proxy = start_proxied_kafka(processes, tmp_path / "far", toxiproxy)
    near = apache_kafka.bootstrap_servers
    if far == "antipode":
        near = (await start_lone_site(processes, tmp_path, "near")).bootstrap
    ends = (proxied.bootstrap_servers, near) if faulty == "source" else (near, proxied.bootstrap_servers)
    await translate_link_under(shuffled(LINE_FAULTS), lasting_s, ends, proxy, processes, tmp_path)


@pytest.mark.java
async def test_records_of_long_ago_arrive_once_though_apache_kafka_forgets_who_writes_them(
    apache_kafka: ApacheKafka, processes: Processes, tmp_path: Path, toxiproxy: Toxiproxy
) -> None:
    """A broker forgets a producer whose last records are older than a day, here at every look; then repetitions are news to it."""
    forgetting = {"producer.id.expiration.check.interval.ms": "20"}
    proxied, proxy = start_proxied_kafka(processes, tmp_path / "far", toxiproxy, forgetting)
    ends = (apache_kafka.bootstrap_servers, proxied.bootstrap_servers)
    faults = [fault for fault in LINE_FAULTS if fault.name in ("a black hole, back", "resets, back")]
    await translate_link_under(faults, 4.0, ends, proxy, processes, tmp_path)


@pytest.mark.java
@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("lasting_s", LONGER_S)
@pytest.mark.parametrize("faulty", ["source", "target"])
@pytest.mark.parametrize("far", ["antipode", "apache kafka"])
async def test_translate_links_with_apache_kafka_outlast_faults_longer_than_every_time_limit(
    far: str,
    faulty: str,
    lasting_s: float,
    apache_kafka: ApacheKafka,
    processes: Processes,
    tmp_path: Path,
    toxiproxy: Toxiproxy,
) -> None:
    """A link, a mirror and a line for each fault, all at once; the lines lead to Apache Kafka."""
    proxied, lines = start_kafka_with_lines(processes, tmp_path / "far", toxiproxy, len(LINE_FAULTS))
    near = apache_kafka.bootstrap_servers
    if far == "antipode":
        near = (await start_lone_site(processes, tmp_path, "near")).bootstrap
    name = tmp_path.name.lower().replace("_", "-")
    source, target = (proxied.bootstrap_servers, near) if faulty == "source" else (near, proxied.bootstrap_servers)
    loads = []
    async with AsyncExitStack() as running:
        for number, (fault, line) in enumerate(zip(LINE_FAULTS, lines, strict=True)):
            topic = f"{name}-{number}"
            await create_topic(source, topic, PARTITIONS)
            ends = (line.address, target) if faulty == "source" else (source, line.address)
            settings = {"whitelist": topic, "link.name": topic, **LINE}
            start_translate_mirror(processes, tmp_path, f"mirror-{number}", *ends, settings)
            loads.append(await running.enter_async_context(load_of(source, topic, fault)))
            await loads[-1].wait_for(PARTITIONS)
            await has_as_many(source, target, topic, within_ms=HEALED_WITHIN_MS)

        async def mirrored(number: int) -> object:
            return await total_end(target, f"a.{name}-{number}", PARTITIONS)

        async def heal(number: int) -> None:
            await loads[number].stop()
            topic = f"{name}-{number}"
            await has_as_many(source, target, topic, within_ms=HEALED_AT_ONCE_WITHIN_MS)
            await wait_equal(source, target, topic, PARTITIONS, within_ms=HEALED_AT_ONCE_WITHIN_MS)

        await strike_all(list(zip(LINE_FAULTS, lines, strict=True)), lasting_s, mirrored=mirrored, heal=heal)


async def has_as_many(source: str, target: str, topic: str, *, within_ms: float) -> None:
    """Until the target has as many records as the source has now, by their logs' ends: there are no transactions here."""
    goal = await total_end(source, topic, PARTITIONS)

    async def has_them() -> bool:
        try:
            found = await total_end(target, f"a.{topic}", PARTITIONS)
        except KafkaClientError as error:
            raise AssertionError(f"no answer yet: {error!r}") from error
        assert found >= goal, f"{found} of {goal} records of {topic}"
        return True

    await eventually(has_them, within_ms)
