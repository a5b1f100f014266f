"""Two whole sites from `antipode up`, under load, with one part after the other broken.

Promised: the target is a byte-exact prefix of the source at every moment (M1) and catches up after
the fault. Every record that was acknowledged with acks=all is on both sites once, in order, at its
acknowledged offset (A1 to A4, A9). A reconciliation meanwhile names no difference but a lag.
Afterwards the sites still stop cleanly, on one SIGTERM, and no process is left.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cli.spark.reconcile import NOT_COMPARED
from dr.drill.faults import Toxic
from runtime.process import ExitCode
from tests.support.clients.acknowledged_load import RECORDS_MAX, RECORDS_PER_SECOND, AcknowledgedLoad
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.eventually import eventually
from tests.support.pairs.site_comparison import caught_up, check_prefix, log_ends, site_client
from tests.support.processes.processes import RunningProcess
from wire.client.raw_client import NewTopic

pytestmark = pytest.mark.chaos

TOPIC = "orders"
PARTITIONS = 4
SOME_RECORDS = 300
MORE_THAN_A_SESSION = 1200
"""Records that take longer to send than the embedded brokers' ZooKeeper sessions last (2 s)."""
SEED_VARIABLE = "ANTIPODE_SEED"
LONG_ROUNDS = 100
RUNS_VARIABLE = "ANTIPODE_RECONCILIATIONS"
"""How many reconciliations must find the sites equal."""


def one_of(kinds: Iterable[str], quick: str) -> list[Any]:
    """Parameters of which `make test` takes one; `make chaos` takes all."""
    return [kind if kind == quick else pytest.param(kind, marks=pytest.mark.long) for kind in sorted(kinds)]


@pytest.fixture
def start_sites(tmp_path: Path) -> Iterator[SitesStarter]:
    starter = SitesStarter(tmp_path)
    try:
        yield starter
    finally:
        starter.end_all()


@pytest.fixture
def sites(start_sites: SitesStarter) -> EmbeddedSites:
    return start_sites()


@asynccontextmanager
async def mirrored_load(
    sites: EmbeddedSites, *, records_per_second: int = RECORDS_PER_SECOND, records_max: int = RECORDS_MAX
) -> AsyncIterator[AcknowledgedLoad]:
    """A load on site a, every partition of which is being mirrored."""
    async with site_client(sites.bootstrap("a")) as client:
        await client.create_topics([NewTopic(name=TOPIC, partition_count=PARTITIONS, replication_factor=1)])
    with AcknowledgedLoad(
        sites.bootstrap("a"), TOPIC, PARTITIONS, records_per_second=records_per_second, records_max=records_max
    ) as running:
        running.wait_acknowledged(SOME_RECORDS)

        async def is_mirrored() -> bool:
            async with site_client(sites.bootstrap("b")) as client:
                ends = await log_ends(client)
                return len(ends) == PARTITIONS and all(ends.values())

        await eventually(is_mirrored)
        yield running


@pytest.fixture
async def load(sites: EmbeddedSites) -> AsyncIterator[AcknowledgedLoad]:
    """The load of most tests."""
    async with mirrored_load(sites) as running:
        yield running


async def prefix(sites: EmbeddedSites) -> int:
    """That the target is a prefix; how many records it is behind."""
    compared = await check_prefix(sites.bootstrap("a"), sites.bootstrap("b"))
    return sum(source_end - target_end for source_end, target_end in compared.values())


async def all_is_well(sites: EmbeddedSites, load: AcknowledgedLoad) -> None:
    """The promises that hold after every fault."""
    load.wait_acknowledged(SOME_RECORDS)
    assert load.finish() > 0
    ends = await caught_up(sites.bootstrap("a"), sites.bootstrap("b"))
    assert sum(ends.values()) == load.acknowledged
    for site in "ab":
        await load.check_log(sites.bootstrap(site))
    sites.stop()


def kill_and_restart(sites: EmbeddedSites, process: RunningProcess, load: AcknowledgedLoad) -> None:
    """kill -9 in the middle of the load, which goes on until the process is started again."""
    process.kill()
    load.wait_sent(SOME_RECORDS)
    sites.restart(process)


@pytest.mark.long
async def test_a_mirror_killed_again_and_again_leaves_a_prefix_and_catches_up(
    sites: EmbeddedSites, load: AcknowledgedLoad
) -> None:
    for _ in range(3):
        kill_and_restart(sites, sites.mirror, load)
        await prefix(sites)
    await all_is_well(sites, load)


async def test_a_killed_source_broker_loses_nothing_that_it_acknowledged(
    sites: EmbeddedSites, load: AcknowledgedLoad
) -> None:
    for _ in range(2):
        kill_and_restart(sites, sites.broker("a"), load)
        load.wait_acknowledged(SOME_RECORDS)
        await prefix(sites)
    await all_is_well(sites, load)


@pytest.mark.long
async def test_a_killed_target_broker_is_filled_where_it_stopped(sites: EmbeddedSites, load: AcknowledgedLoad) -> None:
    for _ in range(2):
        kill_and_restart(sites, sites.broker("b"), load)
        await prefix(sites)
    await all_is_well(sites, load)


@pytest.mark.parametrize(
    "is_silent",
    [
        pytest.param(False, id="refused", marks=pytest.mark.long),
        pytest.param(True, id="black-hole", marks=pytest.mark.long),
    ],
)
async def test_a_cut_link_is_made_up_for(sites: EmbeddedSites, load: AcknowledgedLoad, is_silent: bool) -> None:
    faults = sites.network
    for _ in range(2):
        faults.cut(faults.selected(), is_silent=is_silent)
        load.wait_acknowledged(2 * SOME_RECORDS)
        assert await prefix(sites) > SOME_RECORDS
        faults.heal()
        load.wait_acknowledged(SOME_RECORDS)
    await all_is_well(sites, load)


SLOW = {
    "latency": [Toxic(kind="latency", attributes={"latency": 150, "jitter": 100})],
    "bandwidth": [Toxic(kind="bandwidth", attributes={"rate": 100})],
    "tiny-packets": [Toxic(kind="slicer", attributes={"average_size": 300, "size_variation": 200, "delay": 50})],
}


@pytest.mark.long
@pytest.mark.parametrize("kind", one_of(SLOW, "latency"))
async def test_a_slow_link_costs_time_and_nothing_else(sites: EmbeddedSites, load: AcknowledgedLoad, kind: str) -> None:
    faults = sites.network
    faults.add(faults.selected(), SLOW[kind])
    load.wait_acknowledged(3 * SOME_RECORDS)
    await prefix(sites)
    faults.heal()
    await all_is_well(sites, load)


BROKEN_OFF = {
    "reset": Toxic(kind="reset_peer", attributes={"timeout": 100}),
    "mid-batch": Toxic(kind="limit_data", attributes={"bytes": 20_000}, streams=("downstream",)),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", one_of(BROKEN_OFF, "mid-batch"))
async def test_connections_broken_off_in_the_middle_of_a_batch_leave_no_trace(
    sites: EmbeddedSites, load: AcknowledgedLoad, kind: str
) -> None:
    faults = sites.network
    faults.add(faults.selected(kind="link"), [BROKEN_OFF[kind]])
    load.wait_acknowledged(3 * SOME_RECORDS)
    await prefix(sites)
    faults.heal()
    await all_is_well(sites, load)


@pytest.mark.long
async def test_a_killed_toxiproxy_is_a_cut_link_until_it_is_back(sites: EmbeddedSites, load: AcknowledgedLoad) -> None:
    sites.toxiproxy.kill()
    load.wait_acknowledged(2 * SOME_RECORDS)
    assert await prefix(sites) > SOME_RECORDS
    sites.restart(sites.toxiproxy)
    await all_is_well(sites, load)


@pytest.mark.parametrize("site", one_of("ab", "a"))
async def test_a_zookeeper_that_goes_and_comes_back_stops_no_record(
    sites: EmbeddedSites, load: AcknowledgedLoad, site: str
) -> None:
    zookeeper = sites.zookeeper(site)
    zookeeper.kill()
    load.wait_acknowledged(MORE_THAN_A_SESSION)
    sites.restart(zookeeper)
    await prefix(sites)
    await all_is_well(sites, load)


@pytest.mark.long
@pytest.mark.parametrize("site", one_of("ab", "a"))
async def test_sessions_that_a_paused_zookeeper_ends_are_taken_up_again(
    sites: EmbeddedSites, load: AcknowledgedLoad, site: str
) -> None:
    zookeeper = sites.zookeeper(site)
    zookeeper.pause()
    load.wait_sent(MORE_THAN_A_SESSION)
    zookeeper.resume()
    await prefix(sites)
    await all_is_well(sites, load)


@pytest.mark.long
async def test_a_paused_target_is_waited_for(sites: EmbeddedSites, load: AcknowledgedLoad) -> None:
    target = sites.broker("b")
    target.pause()
    load.wait_acknowledged(4 * SOME_RECORDS)
    target.resume()
    await all_is_well(sites, load)


def _cut_for_a_while(sites: EmbeddedSites, load: AcknowledgedLoad, is_silent: bool) -> None:
    faults = sites.network
    faults.cut(faults.selected(), is_silent=is_silent)
    load.wait_sent(SOME_RECORDS)
    faults.heal()


def _sick_for_a_while(sites: EmbeddedSites, load: AcknowledgedLoad, toxics: list[Toxic]) -> None:
    faults = sites.network
    faults.add(faults.selected(), toxics)
    load.wait_sent(SOME_RECORDS)
    faults.heal()


def _paused_for_a_while(sites: EmbeddedSites, load: AcknowledgedLoad, process: RunningProcess) -> None:
    process.pause()
    load.wait_sent(SOME_RECORDS)
    process.resume()


def _a_fault(chance: random.Random, sites: EmbeddedSites) -> tuple[str, Callable[[AcknowledgedLoad], None]]:
    """One fault of all kinds, by name and as something that breaks, waits and heals."""
    processes = [sites.mirror, sites.toxiproxy]
    processes += [part for site in "ab" for part in (sites.broker(site), sites.zookeeper(site))]
    process = chance.choice(processes)
    toxics = chance.choice([*SLOW.values(), *([toxic] for toxic in BROKEN_OFF.values())])
    is_silent = chance.choice([True, False])
    return chance.choice(
        [
            (f"kill {process.name}", lambda load: kill_and_restart(sites, process, load)),
            (f"kill {process.name}", lambda load: kill_and_restart(sites, process, load)),
            (f"pause {process.name}", lambda load: _paused_for_a_while(sites, load, process)),
            (f"cut, silent: {is_silent}", lambda load: _cut_for_a_while(sites, load, is_silent)),
            (f"{toxics[0].kind}", lambda load: _sick_for_a_while(sites, load, toxics)),
        ]
    )


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_a_random_schedule_of_faults_leaves_both_sites_equal(
    sites: EmbeddedSites, load: AcknowledgedLoad
) -> None:
    seed = os.environ.get(SEED_VARIABLE) or str(random.SystemRandom().randrange(10**9))
    print(f"{SEED_VARIABLE}={seed}")
    chance = random.Random(seed)
    for number in range(LONG_ROUNDS):
        name, fault = _a_fault(chance, sites)
        print(f"{number}: {name}, {load.sent} records sent, {load.acknowledged} acknowledged", flush=True)
        fault(load)
        load.wait_acknowledged(chance.randrange(1, SOME_RECORDS))
        await prefix(sites)
    await all_is_well(sites, load)


def alarms(report: dict[str, Any]) -> list[dict[str, Any]]:
    """The findings that a lag of the target does not explain. A target that lags lacks only the end
    of a log.
    """
    ends = {(one["topic"], one["partition"]): one["source"]["end_offset"] for one in report["partitions"]}
    return [
        one
        for one in report["findings"]
        if one["kind"] != "missing" or one["last_offset"] + 1 < ends[one["topic"], one["partition"]]
    ]


async def compared(sites: EmbeddedSites) -> bool:
    """Compare the sites; False if they were not equal for a reason that is no alarm: a site did not
    answer, or the target was behind.
    """
    command = ("reconcile", "--link", "a-b", "--records-only", "--output", "json")
    done = await asyncio.to_thread(sites.command, *command)
    if done.returncode == NOT_COMPARED:
        return False
    report = json.loads(done.stdout)
    assert not alarms(report), alarms(report)
    return bool(done.returncode == ExitCode.DONE)


@pytest.mark.long
@pytest.mark.timeout(3_600)
async def test_reconciliations_under_load_and_faults_raise_no_false_alarm(sites: EmbeddedSites) -> None:
    seed = os.environ.get(SEED_VARIABLE) or str(random.SystemRandom().randrange(10**9))
    runs_wanted = int(os.environ.get(RUNS_VARIABLE, "100"))
    print(f"{SEED_VARIABLE}={seed}")
    chance = random.Random(seed)
    runs = equal = 0
    async with mirrored_load(sites, records_per_second=100, records_max=1_000_000) as load:
        while equal < runs_wanted:
            during = asyncio.create_task(compared(sites))
            name, fault = _a_fault(chance, sites)
            await asyncio.to_thread(fault, load)
            found = [await during, await compared(sites)]
            runs, equal = runs + len(found), equal + sum(found)
            print(f"{name}: {equal} of {runs} runs equal, {load.acknowledged} records acknowledged", flush=True)
            await asyncio.to_thread(load.wait_acknowledged, SOME_RECORDS)
        await all_is_well(sites, load)
