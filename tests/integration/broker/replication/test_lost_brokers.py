"""Three brokers, three replicas, acks=all: any process may die or be paused, and no acknowledged
record or commit is lost, doubled or moved.

Unavailability is measured and printed (`-s` shows it), never asserted.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.support.clients.acknowledged_load import AcknowledgedLoad
from tests.support.eventually import eventually_sync
from tests.support.sites.replicated_site import NODES, ReplicatedSite
from tests.support.sites.replicated_topic import TOPIC, a_follower, a_leader, finish_unharmed, print_silences

pytestmark = pytest.mark.integration

PARTITIONS = 3


async def test_every_replica_has_the_same_bytes(site: ReplicatedSite) -> None:
    site.create(TOPIC, PARTITIONS, min_insync_replicas="2")
    with AcknowledgedLoad(site.bootstrap, TOPIC, PARTITIONS) as load:
        load.wait_acknowledged(1000)
        await finish_unharmed(site, load, PARTITIONS)


VICTIMS = [
    a_leader,
    pytest.param(a_follower, marks=pytest.mark.long),
    pytest.param(ReplicatedSite.controller, marks=pytest.mark.long),
]


@pytest.mark.parametrize("victim_of", VICTIMS)
async def test_kill_9_loses_nothing(site: ReplicatedSite, victim_of: Callable[[ReplicatedSite], int]) -> None:
    site.create(TOPIC, PARTITIONS, min_insync_replicas="2")
    with AcknowledgedLoad(site.bootstrap, TOPIC, PARTITIONS) as load:
        load.wait_acknowledged(500)
        victim = site.nodes[victim_of(site)]
        since = time.monotonic()
        victim.process.kill()
        load.wait_acknowledged(1000)
        print_silences(f"kill -9 of {victim_of.__name__}", load, since)
        victim.restart()
        load.wait_acknowledged(500)
        await finish_unharmed(site, load, PARTITIONS)


@pytest.mark.parametrize("victim_of", VICTIMS)
async def test_a_paused_process_that_goes_on_harms_nothing(
    site: ReplicatedSite, victim_of: Callable[[ReplicatedSite], int]
) -> None:
    site.create(TOPIC, PARTITIONS, min_insync_replicas="2")
    with AcknowledgedLoad(site.bootstrap, TOPIC, PARTITIONS) as load:
        load.wait_acknowledged(500)
        paused = victim_of(site)
        survivors = tuple(node for node in NODES if node != paused)
        since = time.monotonic()
        site.nodes[paused].process.pause()
        site.wait_in_sync(TOPIC, survivors)
        load.wait_acknowledged(500)
        print_silences(f"SIGSTOP of {victim_of.__name__}", load, since)
        site.nodes[paused].process.resume()
        load.wait_acknowledged(500)
        await finish_unharmed(site, load, PARTITIONS)


async def test_a_short_pause_of_a_leader_is_waited_out(calm_site: ReplicatedSite) -> None:
    site = calm_site
    site.create(TOPIC, PARTITIONS, min_insync_replicas="2")
    with AcknowledgedLoad(site.bootstrap, TOPIC, PARTITIONS) as load:
        for _ in range(3):
            load.wait_acknowledged(300)
            process = site.nodes[a_leader(site)].process
            process.pause()
            load.wait_sent(100)
            process.resume()
        load.wait_acknowledged(300)
        await finish_unharmed(site, load, PARTITIONS)


async def test_every_broker_may_be_killed_in_turn(site: ReplicatedSite) -> None:
    site.create(TOPIC, PARTITIONS, min_insync_replicas="2")
    with AcknowledgedLoad(site.bootstrap, TOPIC, PARTITIONS) as load:
        load.wait_acknowledged(300)
        for node in site.nodes.values():
            since = time.monotonic()
            node.process.kill()
            load.wait_acknowledged(300)
            print_silences(f"kill -9 of broker {node.node_id}", load, since)
            node.restart()
            site.wait_in_sync(TOPIC)
        await finish_unharmed(site, load, PARTITIONS)


def committed(site: ReplicatedSite, group: str) -> int:
    """The coordinator's answer; the client drops a broker that has ceased to be the coordinator."""
    consumer = Consumer({"bootstrap.servers": site.bootstrap, "group.id": group, "log_level": 2})

    def reported() -> list[TopicPartition] | None:
        try:
            return list(consumer.committed([TopicPartition(TOPIC, 0)], timeout=30))
        except KafkaException:
            return None

    try:
        (found,) = eventually_sync(reported)
        return int(found.offset)
    finally:
        consumer.close()


def commit(site: ReplicatedSite, group: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": site.bootstrap, "group.id": group, "log_level": 2})

    def attempt() -> bool:
        try:
            consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
        except KafkaException:
            return False
        return True

    try:
        eventually_sync(attempt)
    finally:
        consumer.close()


def coordinator(site: ReplicatedSite, group: str) -> int:
    """The group's coordinator as the asked broker sees it, which may learn of an election a moment
    later.
    """

    def found() -> int:
        try:
            reported = site.admin.describe_consumer_groups([group], request_timeout=60)[group].result(120)
        except KafkaException:
            return 0
        return int(reported.coordinator.id)

    return eventually_sync(found)


@pytest.mark.long
def test_a_coordinator_that_dies_takes_no_commit_along(site: ReplicatedSite) -> None:
    site.create(TOPIC, 1)
    group = "payers"
    commit(site, group, 1)
    site.wait_in_sync("__consumer_offsets")
    for offset in range(2, 6):
        commit(site, group, offset)
        victim = site.nodes[coordinator(site, group)]
        victim.process.kill()
        assert committed(site, group) == offset
        victim.restart()
        site.wait_in_sync("__consumer_offsets")
