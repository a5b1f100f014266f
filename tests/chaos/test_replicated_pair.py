"""Two sites of three brokers each, from `antipode up`, while any process of either is killed with
-9 at random moments under load.

Victims are the mirror, brokers of the source and of the target (one by chance, or the one that
hosts the controller) and both ZooKeepers, one or two at once, and again while they come back.
Promised: the target is a byte-exact prefix of the source at every moment (M1) and catches up; every
record acknowledged with acks=all by two of three replicas is there once, in order, where it was
acknowledged, at both sites (A1 to A4, A9).

On a sync link that blocks, the target has every acknowledged record at every moment. Where logs
begin follows the source through all of it (M7).

`ANTIPODE_FAULTS` says how many kills the run makes, `ANTIPODE_SEED` repeats its choices.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.clients.acknowledged_load import AcknowledgedLoad
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.eventually import eventually, eventually_sync
from tests.support.pairs.site_comparison import Ends, caught_up, check_prefix, log_ends, site_client
from tests.support.pairs.translate_links import until_a_random_moment
from tests.support.processes.processes import RunningProcess
from wire.client.client_errors import KafkaClientError
from wire.protocol.ids import DEBUGGING_CONSUMER, EARLIEST_TIMESTAMP

pytestmark = [pytest.mark.chaos, pytest.mark.long]

TOPIC = "orders"
BLOCK = "block"
PARTITIONS = 3
KILLS = int(os.environ.get("ANTIPODE_FAULTS") or 200)
SECONDS_PER_KILL_MAX = 30
RECORDS_PER_SECOND = 50
BACK_AFTER_S_MAX = 2.5
"""Longer than the embedded brokers' ZooKeeper sessions last (2 s), so that a victim is missed or is
not.
"""
PROGRESS_WITHIN_MS = 120_000
CHECKED_EACH = 10
BROKERS = 3
DELETIONS = 20
DELETION_LASTS_S = 3.0
"""About as long as the command takes, its start included."""
VICTIMS = ("mirror", "broker a", "broker b", "controller a", "controller b", "zookeeper a", "zookeeper b")


@pytest.fixture
def sync() -> str:
    """The link's policy; a test may be given others."""
    return "none"


@pytest.fixture
def sites(tmp_path: Path, sync: str) -> Iterator[EmbeddedSites]:
    starter = SitesStarter(tmp_path)
    try:
        yield starter("--brokers", str(BROKERS), *(() if sync == "none" else ("--sync", sync)))
    finally:
        starter.end_all()


async def victim(sites: EmbeddedSites, chance: random.Random, role: str) -> RunningProcess:
    """The process of a role; a random broker if the controller's host is unknown."""
    if role == "mirror":
        return sites.mirror
    kind, site = role.split()
    if kind == "zookeeper":
        return sites.zookeeper(site)
    by_chance = sites.broker(site, chance.randrange(BROKERS))
    if kind == "controller":
        with suppress(KafkaClientError):
            async with site_client(sites.bootstrap(site)) as client:
                controller_id = (await client.metadata()).controller_id
                return by_chance if controller_id < 0 else sites.process(f"broker-{controller_id}")
    return by_chance


async def kill_and_start(sites: EmbeddedSites, chance: random.Random, number: int) -> None:
    """Kill one or two victims, each for a random time, and start them again. At random the call
    waits until they are ready.
    """
    roles = chance.sample(VICTIMS, k=chance.choice((1, 1, 2)))
    is_awaited = chance.choice((True, False))
    found = {process.name: process for process in [await victim(sites, chance, role) for role in roles]}
    victims = dict(sorted(found.items(), reverse=True))  # a broker that is waited for needs its ZooKeeper
    print(f"{number}: {', '.join(roles)} ({', '.join(victims)})", flush=True)
    for process in victims.values():
        process.kill()
    await until_a_random_moment(chance, BACK_AFTER_S_MAX)
    for process in victims.values():
        if is_awaited:
            await asyncio.to_thread(sites.restart, process)
        else:
            process.start()


@pytest.mark.timeout(SECONDS_PER_KILL_MAX * KILLS + 300)
@pytest.mark.parametrize("sync", ["none", BLOCK, "degrade"])
async def test_hundreds_of_kills_of_any_process_of_replicated_sites_lose_repeat_and_reorder_nothing(
    sites: EmbeddedSites, sync: str
) -> None:
    seed = int(os.environ.get("ANTIPODE_SEED") or random.randrange(2**32))
    print(f"ANTIPODE_SEED={seed}")
    chance = random.Random(seed)
    admin = AdminClient({"bootstrap.servers": sites.bootstrap("a"), "log_level": 2})
    topic = NewTopic(TOPIC, PARTITIONS, -1, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])[TOPIC].result(120)
    load = AcknowledgedLoad(sites.bootstrap("a"), TOPIC, PARTITIONS, records_per_second=RECORDS_PER_SECOND)
    with load:
        load.wait_acknowledged(PARTITIONS)
        async with site_client(sites.bootstrap("b")) as client:

            async def is_mirrored() -> bool:
                return sum(1 for end in (await log_ends(client)).values() if end) == PARTITIONS

            await eventually(is_mirrored)
        for number in range(KILLS):
            await kill_and_start(sites, chance, number)
            await asyncio.to_thread(load.wait_acknowledged, chance.randint(1, RECORDS_PER_SECOND), PROGRESS_WITHIN_MS)
            if number % CHECKED_EACH == CHECKED_EACH - 1:
                reported = [max(load.acknowledged_values(index), default=-1) for index in range(PARTITIONS)]
                ends = await all_agree(sites)
                if sync == BLOCK:
                    assert all(ends[TOPIC, index] > reported[index] for index in range(PARTITIONS)), (reported, ends)
                print(f"after {number + 1} kills: a prefix, {load.acknowledged} records acknowledged", flush=True)
        acknowledged = await asyncio.to_thread(load.finish, PROGRESS_WITHIN_MS)
        ends = await caught_up(sites.bootstrap("a"), sites.bootstrap("b"), within_ms=PROGRESS_WITHIN_MS)
        assert sum(ends.values()) == acknowledged
        for site in "ab":
            await load.check_log(sites.bootstrap(site))
    print(f"{KILLS} kills, {acknowledged} records acknowledged and found at both sites, once and in order")
    sites.stop()


async def all_agree(sites: EmbeddedSites) -> Ends:
    """Check M1 as soon as enough brokers of both sites are back to read all of it. Returns the ends
    of the target.
    """

    async def prefix() -> Ends:
        try:
            compared = await check_prefix(sites.bootstrap("a"), sites.bootstrap("b"))
        except KafkaClientError as error:
            raise AssertionError(f"cannot be read yet: {error!r}") from error
        return {key: end for key, (_, end) in compared.items()}

    ends = await eventually(prefix, PROGRESS_WITHIN_MS)
    parts = [sites.mirror]
    for site in "ab":
        parts += [sites.zookeeper(site), *(sites.broker(site, index) for index in range(BROKERS))]
    assert [part.name for part in parts if not part.is_running] == []
    return ends


@pytest.mark.timeout(SECONDS_PER_KILL_MAX * DELETIONS + 300)
async def test_where_logs_begin_follows_the_source_while_leaders_die_at_any_moment_of_a_deletion(
    sites: EmbeddedSites,
) -> None:
    """M7: records are deleted at the source again and again, a leader of either site dies before,
    with or after each time.
    """
    seed = int(os.environ.get("ANTIPODE_SEED") or random.randrange(2**32))
    print(f"ANTIPODE_SEED={seed}")
    chance = random.Random(seed)
    admin = AdminClient({"bootstrap.servers": sites.bootstrap("a"), "log_level": 2})
    topic = NewTopic(TOPIC, PARTITIONS, -1, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])[TOPIC].result(120)
    with AcknowledgedLoad(sites.bootstrap("a"), TOPIC, PARTITIONS, records_per_second=RECORDS_PER_SECOND) as load:
        begin = dict.fromkeys(range(PARTITIONS), 0)
        for number in range(DELETIONS):
            await asyncio.to_thread(load.wait_acknowledged, 5 * RECORDS_PER_SECOND, PROGRESS_WITHIN_MS)
            partition, site = chance.randrange(PARTITIONS), chance.choice("ab")
            begin[partition] += chance.randint(1, RECORDS_PER_SECOND)
            leader = await leader_of(sites, site, partition)
            print(
                f"{number}: {TOPIC}-{partition} from {begin[partition]}, {leader.name} of site {site} dies", flush=True
            )
            await asyncio.gather(
                asyncio.to_thread(delete_before, sites, partition, begin[partition]),
                die_at_a_random_moment(leader, chance),
            )
            await eventually(partial(begin_there, sites, begin), PROGRESS_WITHIN_MS)
            await asyncio.to_thread(sites.restart, leader)
        await asyncio.to_thread(load.finish, PROGRESS_WITHIN_MS)
        await caught_up(sites.bootstrap("a"), sites.bootstrap("b"), within_ms=PROGRESS_WITHIN_MS)
    assert await begin_there(sites, begin)


async def leader_of(sites: EmbeddedSites, site: str, partition: int) -> RunningProcess:
    """The broker that leads the partition at a site, as soon as there is one."""

    async def found() -> RunningProcess | None:
        async with site_client(sites.bootstrap(site)) as client:
            partitions = (await client.metadata([TOPIC])).topics[TOPIC].partitions
            leads = partition in partitions and partitions[partition].leader_id >= 0
            return sites.process(f"broker-{partitions[partition].leader_id}") if leads else None

    return await eventually(found, PROGRESS_WITHIN_MS)


async def die_at_a_random_moment(process: RunningProcess, chance: random.Random) -> None:
    await until_a_random_moment(chance, DELETION_LASTS_S)
    process.kill()


def delete_before(sites: EmbeddedSites, partition: int, offset: int) -> None:
    """Delete records by the command, and retry it while leaders change."""

    def is_deleted() -> bool:
        place = ("--partition", str(partition), "--before", str(offset), "--bootstrap-server", sites.bootstrap("a"))
        ended = sites.command("topics", "delete-records", TOPIC, *place, "--yes")
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return True

    eventually_sync(is_deleted, PROGRESS_WITHIN_MS)


async def begin_there(sites: EmbeddedSites, begin: dict[int, int]) -> bool:
    """Raises AssertionError unless each partition begins there at both sites, by the responses of
    the present leaders.
    """
    keys = [(TOPIC, partition) for partition in begin]
    for site in "ab":
        async with site_client(sites.bootstrap(site)) as client:
            try:
                await client.metadata([TOPIC])
                found = await client.offsets_at(keys, EARLIEST_TIMESTAMP, replica_id=DEBUGGING_CONSUMER)
            except KafkaClientError as error:
                raise AssertionError(f"site {site} does not say: {error!r}") from error
            assert {partition: found[TOPIC, partition] for partition in begin} == begin, (site, begin, found)
    return True
