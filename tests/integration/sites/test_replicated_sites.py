"""A pair of sites of three brokers each, from `antipode up --brokers 3`: replicas inside, a mirror
between, losses on both sides.
"""

from __future__ import annotations

import json
from functools import partial

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from runtime.clock import SystemClock
from tests.support.clients.acknowledged_load import AcknowledgedLoad
from tests.support.clients.kafka_clients import Record, librdkafka_produce
from tests.support.disks.log_batches import batch
from tests.support.embedded.embedded_sites import LINK, EmbeddedSites, SitesStarter
from tests.support.eventually import eventually, eventually_sync
from tests.support.pairs.site_comparison import caught_up, log_ends, site_client
from wire.client.client_errors import KafkaClientError
from wire.client.raw_client import KafkaClient
from wire.protocol.ids import CONSUMER, DEBUGGING_CONSUMER, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

TOPIC = "orders"
PARTITIONS = 3


async def leaders(sites: EmbeddedSites, site: str) -> dict[int, int]:
    """Leader by partition as the site itself has it."""
    async with site_client(sites.bootstrap(site)) as client:
        topic = (await client.metadata([TOPIC])).topics[TOPIC]
        return {index: partition.leader_id for index, partition in topic.partitions.items()}


async def kill_a_leader(sites: EmbeddedSites, site: str) -> None:
    """kill -9 of partition 0's leader, and wait until others lead all that it led."""
    lost = (await leaders(sites, site))[0]
    sites.process(f"broker-{lost}").kill()

    async def is_replaced() -> bool:
        try:
            return {lost, -1}.isdisjoint((await leaders(sites, site)).values())
        except KafkaClientError:  # it was the controller too, perhaps
            return False

    await eventually(is_replaced)


def commit(sites: EmbeddedSites, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": sites.bootstrap("a"), "group.id": "payers"})

    def is_done() -> bool:
        try:
            consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
        except KafkaException:  # the first group of all: its coordinator is being made
            return False
        return True

    eventually_sync(is_done)
    consumer.close()


def committed(sites: EmbeddedSites, site: str) -> int | None:
    """None while the coordinator changes."""
    consumer = Consumer({"bootstrap.servers": sites.bootstrap(site), "group.id": "payers", "log_level": 2})
    try:
        return int(consumer.committed([TopicPartition(TOPIC, 0)], timeout=30)[0].offset)
    except KafkaException:
        return None
    finally:
        consumer.close()


@pytest.mark.long
async def test_each_site_loses_a_leader_and_a_failover_still_loses_nothing(start_sites: SitesStarter) -> None:
    sites = start_sites("--brokers", "3")
    admin = AdminClient({"bootstrap.servers": sites.bootstrap("a"), "log_level": 2})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, -1)])[TOPIC].result(120)
    made = admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
    assert {len(partition.replicas) for partition in made.values()} == {3}
    commit(sites, 7)
    async with site_client(sites.bootstrap("b")) as client:

        async def is_mirrored() -> bool:
            return len([key for key in await log_ends(client) if key[0] == TOPIC]) == PARTITIONS

        await eventually(is_mirrored)
    with AcknowledgedLoad(sites.bootstrap("a"), TOPIC, PARTITIONS) as load:
        load.wait_acknowledged(500)
        await kill_a_leader(sites, "a")
        load.wait_acknowledged(500)
        await kill_a_leader(sites, "b")
        load.wait_acknowledged(500)
        eventually_sync(lambda: committed(sites, "b") == 7)
        ended = sites.command("failover", LINK, "--to", "b")
        assert ended.returncode == 0, ended.stdout + ended.stderr
        load.wait_acknowledged(500)
        load.finish()
        await load.check_log(sites.bootstrap("b"))
    eventually_sync(lambda: committed(sites, "b") == 7)


async def test_a_sync_link_between_replicated_sites_keeps_what_was_acknowledged_through_every_loss(
    start_sites: SitesStarter,
) -> None:
    """The source loses a leader, then the standby loses one, then the whole source is lost under
    load.
    """
    sites = start_sites("--brokers", "3", "--sync", "block")
    admin = AdminClient({"bootstrap.servers": sites.bootstrap("a"), "log_level": 2})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, -1)])[TOPIC].result(120)
    with AcknowledgedLoad(sites.bootstrap("a"), TOPIC, PARTITIONS) as load:
        load.wait_acknowledged(300)
        await kill_a_leader(sites, "a")
        load.wait_acknowledged(300)
        await kill_a_leader(sites, "b")
        load.wait_acknowledged(300)
        for index in range(3):
            sites.broker("a", index).kill()
        ended = sites.command("failover", LINK, "--to", "b", "--accept-data-loss")
        assert ended.returncode == 0, ended.stdout + ended.stderr
        load.wait_acknowledged(300)
        load.finish()
        await load.check_log(sites.bootstrap("b"))


@pytest.mark.long
async def test_records_on_too_few_replicas_of_the_standby_are_not_acknowledged(start_sites: SitesStarter) -> None:
    """With min.insync.replicas=2: one replica of three is left at the standby, one comes back, then
    the one that was left is lost.
    """
    sites = start_sites("--brokers", "3", "--sync", "block")
    admin = AdminClient({"bootstrap.servers": sites.bootstrap("a"), "log_level": 2})
    topic = NewTopic(TOPIC, 1, -1, config={"min.insync.replicas": "2"})
    admin.create_topics([topic])[TOPIC].result(120)
    await eventually(lambda: acknowledges(sites, timeout_ms=20_000))
    end = await shown(sites, "a")

    async def all_in_sync() -> list[int]:
        found = await in_sync(sites, "b")
        assert len(found) == 3
        return found

    leader, *others = await eventually(all_in_sync)
    for follower in others:
        sites.process(f"broker-{follower}").kill()

    async def is_alone() -> bool:
        return await in_sync(sites, "b") == [leader]

    await eventually(is_alone)
    assert not await acknowledges(sites, timeout_ms=2_000)
    assert await shown(sites, "a") == end
    sites.restart(sites.process(f"broker-{others[0]}"))

    async def is_shown() -> bool:
        return await shown(sites, "a") == end + 1

    await eventually(is_shown)
    sites.process(f"broker-{leader}").kill()

    async def is_succeeded() -> bool:
        return await in_sync(sites, "b") == [others[0]]

    await eventually(is_succeeded)
    sites.restart(sites.process(f"broker-{others[1]}"))  # one replica alone does not show which records are safe

    async def is_kept() -> bool:
        return await shown(sites, "b") == end + 1

    await eventually(is_kept)


async def acknowledges(sites: EmbeddedSites, *, timeout_ms: int) -> bool:
    """True when one record with acks=all is acknowledged at site a."""
    async with KafkaClient(sites.bootstrap("a"), site_local=True, retry_budget_ms=0) as client:
        try:
            await client.produce(
                TOPIC, 0, batch([(None, b"value")], timestamp_ms=SystemClock().now_ms()), timeout_ms=timeout_ms
            )
        except KafkaClientError:
            return False
    return True


async def in_sync(sites: EmbeddedSites, site: str) -> list[int]:
    """The leader of the only partition, then the others in sync."""
    async with site_client(sites.bootstrap(site)) as client:
        partition = (await client.metadata([TOPIC])).topics[TOPIC].partitions[0]
        return [partition.leader_id, *sorted(set(partition.isr) - {partition.leader_id})]


async def shown(sites: EmbeddedSites, site: str) -> int:
    """The offset up to which the only partition is committed at the site."""
    async with site_client(sites.bootstrap(site)) as client:
        await client.metadata([TOPIC])
        replica_id = DEBUGGING_CONSUMER if site == "b" else CONSUMER
        return (await client.offsets_at([(TOPIC, 0)], LATEST_TIMESTAMP, replica_id=replica_id))[TOPIC, 0]


@pytest.mark.long
async def test_where_logs_begin_follows_the_source_through_changes_of_leaders_at_both_sites(
    start_sites: SitesStarter,
) -> None:
    """M7: after each deletion every replica that leads at the standby begins exactly where the
    source does, no earlier and no later.
    """
    sites = start_sites("--brokers", "3")
    admin = AdminClient({"bootstrap.servers": sites.bootstrap("a"), "log_level": 2})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, -1)])[TOPIC].result(120)
    with AcknowledgedLoad(sites.bootstrap("a"), TOPIC, PARTITIONS) as load:
        for round_, loser in enumerate((None, "a", "b")):
            load.wait_acknowledged(600)
            if loser is not None:
                await kill_a_leader(sites, loser)
            first = {index: 20 * (round_ + 1) + index for index in range(PARTITIONS)}
            for index, offset in first.items():
                cut = ("topics", "delete-records", TOPIC, "--partition", str(index), "--before", str(offset))
                ended = sites.command(*cut, "--yes", "--bootstrap-server", sites.bootstrap("a"))
                assert ended.returncode == 0, ended.stdout + ended.stderr
            await eventually(partial(begin_at, sites, first))
        load.finish()
        await caught_up(sites.bootstrap("a"), sites.bootstrap("b"))
        await kill_a_leader(sites, "b")
        await eventually(partial(begin_at, sites, first))


async def begin_at(sites: EmbeddedSites, first: dict[int, int]) -> bool:
    """Raises AssertionError unless each partition begins there at both sites."""
    keys = [(TOPIC, index) for index in first]
    for site in ("a", "b"):
        async with site_client(sites.bootstrap(site)) as client:
            await client.metadata([TOPIC])
            found = await client.offsets_at(keys, EARLIEST_TIMESTAMP, replica_id=DEBUGGING_CONSUMER)
            assert {index: found[TOPIC, index] for index in first} == first, site
    return True


@pytest.mark.long
async def test_an_idle_partition_may_fail_over_after_its_leader_died(start_sites: SitesStarter) -> None:
    sites = start_sites("--brokers", "3")
    admin = AdminClient({"bootstrap.servers": sites.bootstrap("a"), "log_level": 2})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, -1)])[TOPIC].result(120)
    with AcknowledgedLoad(sites.bootstrap("a"), TOPIC, PARTITIONS) as load:
        load.wait_acknowledged(300)
        load.finish()
        await caught_up(sites.bootstrap("a"), sites.bootstrap("b"))
        await kill_a_leader(sites, "a")
        ended = sites.command("failover", LINK, "--to", "b")
        assert ended.returncode == 0, ended.stdout + ended.stderr
        await load.check_log(sites.bootstrap("b"))


@pytest.mark.long
async def test_f12_the_mirror_notices_that_the_source_has_lost_the_end_of_its_log(start_sites: SitesStarter) -> None:
    """An unclean election at the source: a replica that lacks acknowledged records leads, and
    writes others. The standby's copy of the lost ones is named, and kept when the copy is
    truncated.
    """
    sites = start_sites("--brokers", "2")
    admin = AdminClient({"bootstrap.servers": sites.bootstrap("a"), "log_level": 2})
    configs = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    admin.create_topics([NewTopic(TOPIC, 1, 2, config=configs)])[TOPIC].result(120)
    write(sites, 50)
    await caught_up(sites.bootstrap("a"), sites.bootstrap("b"))

    async def both_in_sync() -> list[int]:
        found = await in_sync(sites, "a")
        assert len(found) == 2
        return found

    leader, follower = await eventually(both_in_sync)
    sites.process(f"broker-{follower}").kill()
    write(sites, 20)
    await caught_up(sites.bootstrap("a"), sites.bootstrap("b"))
    sites.process(f"broker-{leader}").kill()
    sites.restart(sites.process(f"broker-{follower}"))
    write(sites, 5)

    def is_named() -> bool:
        found = sites.command("status")
        assert f"{TOPIC}-0 differs from offset 50 on: b has 20 records of its own" in " ".join(found.stdout.split())
        return found.returncode == 1

    eventually_sync(is_named)
    done = sites.command("links", "reinstate", LINK, "--yes")
    assert done.returncode == 0, done.stdout + done.stderr
    ends = await caught_up(sites.bootstrap("a"), sites.bootstrap("b"))
    assert sum(ends.values()) == 55
    kept = sites.command("quarantine", "list", "--bootstrap-server", sites.bootstrap("b"), "--output", "json")
    assert {(entry["first_offset"], entry["end_offset"]) for entry in json.loads(kept.stdout)} == {(50, 70)}
    sites.restart(sites.process(f"broker-{leader}"))
    write(sites, 5)
    assert sum((await caught_up(sites.bootstrap("a"), sites.bootstrap("b"))).values()) == 60
    sites.stop()


def write(sites: EmbeddedSites, count: int) -> None:
    """Records that the source acknowledges with acks=all."""
    records = [Record(value=b"%d" % number) for number in range(count)]
    librdkafka_produce(sites.bootstrap("a"), TOPIC, records, settings={"acks": "all"})
