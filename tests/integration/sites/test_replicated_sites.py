"""A pair of sites of three brokers each, from `antipode up --brokers 3`: replicas inside, a mirror between, losses on both sides."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.support.acknowledged_load import AcknowledgedLoad
from tests.support.embedded_sites import LINK, EmbeddedSites, SitesStarter
from tests.support.eventually import eventually, eventually_sync
from tests.support.site_comparison import caught_up, log_ends, site_client

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

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
        return {lost, -1}.isdisjoint((await leaders(sites, site)).values())

    await eventually(is_replaced)


def commit(sites: EmbeddedSites, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": sites.bootstrap("a"), "group.id": "payers"})
    consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
    consumer.close()


def committed(sites: EmbeddedSites, site: str) -> int:
    consumer = Consumer({"bootstrap.servers": sites.bootstrap(site), "group.id": "payers", "log_level": 2})
    try:
        return int(consumer.committed([TopicPartition(TOPIC, 0)], timeout=30)[0].offset)
    finally:
        consumer.close()


async def test_each_site_loses_a_leader_and_a_failover_still_loses_nothing(start_sites: SitesStarter) -> None:
    sites = start_sites("--brokers", "3")
    admin = AdminClient({"bootstrap.servers": sites.bootstrap("a"), "log_level": 2})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, -1)])[TOPIC].result(20)
    made = admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions
    assert {len(partition.replicas) for partition in made.values()} == {3}
    commit(sites, 7)
    async with site_client(sites.bootstrap("b")) as client:

        async def is_mirrored() -> bool:
            return len([key for key in await log_ends(client) if key[0] == TOPIC]) == PARTITIONS

        await eventually(is_mirrored, 30_000)
    with AcknowledgedLoad(sites.bootstrap("a"), TOPIC, PARTITIONS) as load:
        load.wait_acknowledged(500)
        await kill_a_leader(sites, "a")
        load.wait_acknowledged(500)
        await kill_a_leader(sites, "b")
        load.wait_acknowledged(500)
        eventually_sync(lambda: committed(sites, "b") == 7, 30_000)
        ended = sites.command("failover", LINK, "--to", "b")
        assert ended.returncode == 0, ended.stdout + ended.stderr
        load.wait_acknowledged(500)
        load.finish()
        await load.check_log(sites.bootstrap("b"))
    assert committed(sites, "b") == 7


async def test_a_sync_link_between_replicated_sites_keeps_what_was_acknowledged_through_every_loss(
    start_sites: SitesStarter,
) -> None:
    """The source loses a leader, then the standby loses one, then the whole source is lost under load."""
    sites = start_sites("--brokers", "3", "--sync", "block")
    admin = AdminClient({"bootstrap.servers": sites.bootstrap("a"), "log_level": 2})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, -1)])[TOPIC].result(20)
    with AcknowledgedLoad(sites.bootstrap("a"), TOPIC, PARTITIONS) as load:
        load.wait_acknowledged(300)
        await kill_a_leader(sites, "a")
        load.wait_acknowledged(300)
        await kill_a_leader(sites, "b")
        load.wait_acknowledged(300)
        for index in range(3):
            sites.broker("a", index).kill()
        for command in (
            ("failover", LINK, "--to", "b", "--accept-data-loss"),
            # Until then the new source waits for its own standby, the site that is lost.
            ("links", "delete", LINK, "--skip-unreachable", "--yes"),
        ):
            ended = sites.command(*command)
            assert ended.returncode == 0, ended.stdout + ended.stderr
        load.wait_acknowledged(300)
        load.finish()
        await load.check_log(sites.bootstrap("b"))


async def test_a_partition_that_nobody_writes_to_may_fail_over_after_its_leader_died(start_sites: SitesStarter) -> None:
    sites = start_sites("--brokers", "3")
    admin = AdminClient({"bootstrap.servers": sites.bootstrap("a"), "log_level": 2})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, -1)])[TOPIC].result(20)
    with AcknowledgedLoad(sites.bootstrap("a"), TOPIC, PARTITIONS) as load:
        load.wait_acknowledged(300)
        load.finish()
        await caught_up(sites.bootstrap("a"), sites.bootstrap("b"))
        await kill_a_leader(sites, "a")
        ended = sites.command("failover", LINK, "--to", "b")
        assert ended.returncode == 0, ended.stdout + ended.stderr
        await load.check_log(sites.bootstrap("b"))
