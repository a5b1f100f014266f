"""Links over a line that has every fault of the table, at either end of the mirror, while records keep coming.

Promised on exact links: at every moment the target is a byte-exact prefix of the source (M1), nothing is shown that the source does not
have (M2), and all of it arrives once the line is well, without anybody's help. On translate links, with Apache Kafka at the source, at
the target and at both ends: each record once, in order, its bytes unchanged. The order of the faults is by chance; the seed is printed.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.apache_kafka import ApacheKafka, start_proxied_kafka
from tests.support.link_faults import LINE_FAULTS, LineFault, strike
from tests.support.mirror_sites import start_lone_site, start_pair
from tests.support.processes import Processes
from tests.support.steady_batches import SteadyBatches
from tests.support.toxiproxy import Proxy, Toxiproxy
from tests.support.translate_links import create_topic, start_translate_mirror, wait_equal

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]

TOPIC = "orders"
PARTITIONS = 3
SHORT_S = 0.8
LONG_S = 43.0
"""As long as the partition between two coasts that made a large site's two databases diverge."""
HEALED_WITHIN_MS = 60_000
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
