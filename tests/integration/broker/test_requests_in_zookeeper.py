"""Kafka's older tools write their requests to ZooKeeper, and the controller carries them out: moves
of partitions and elections of preferred leaders.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from runtime.zookeeper.client import ZooKeeper
from tests.support.eventually import eventually
from tests.support.processes.processes import Processes
from tests.support.sites.replicated_site import CALM, NODES, ReplicatedSite
from wire.znodes.admin_znodes import PREFERRED_ELECTION, REASSIGN_PARTITIONS

pytestmark = pytest.mark.integration

TOPIC = "orders"
FIRST, SECOND, THIRD = NODES
WITHIN_MS = 120_000


@pytest.fixture
def site(processes: Processes, tmp_path: Path, zookeeper_connect: str) -> ReplicatedSite:
    return ReplicatedSite(processes, tmp_path, zookeeper_connect, {**CALM, "auto.leader.rebalance.enable": "false"})


@pytest.fixture
async def zookeeper(zookeeper_connect: str) -> AsyncIterator[ZooKeeper]:
    client = ZooKeeper(zookeeper_connect)
    await client.start()
    yield client
    await client.stop()


def create(site: ReplicatedSite, *replicas: list[int]) -> None:
    site.admin.create_topics([NewTopic(TOPIC, len(replicas), replica_assignment=list(replicas))])[TOPIC].result(120)
    producer = Producer({"bootstrap.servers": site.bootstrap, "acks": "all"})
    for number in range(2000):
        producer.produce(TOPIC, bytes(1000), partition=number % len(replicas))
    assert producer.flush(120) == 0


def request(*partitions: dict[str, Any]) -> bytes:
    return json.dumps({"version": 1, "partitions": list(partitions)}).encode()


def moved(partition: int, *replicas: int, topic: str = TOPIC) -> dict[str, Any]:
    return {"topic": topic, "partition": partition, "replicas": list(replicas)}


async def until_gone(zookeeper: ZooKeeper, path: str) -> None:
    async def is_gone() -> bool:
        return await zookeeper.exists(path) is None

    await eventually(is_gone, WITHIN_MS)


async def test_partitions_move_and_leave_the_request_which_goes_with_the_last(
    site: ReplicatedSite, zookeeper: ZooKeeper
) -> None:
    create(site, [FIRST, SECOND], [SECOND, FIRST], [FIRST, SECOND])
    impossible = [moved(0, FIRST, topic="unknown"), moved(2, FIRST, 77), moved(1, SECOND, FIRST)]
    await zookeeper.create(REASSIGN_PARTITIONS, request(moved(0, SECOND, THIRD), *impossible))
    await until_gone(zookeeper, REASSIGN_PARTITIONS)
    await eventually(lambda: site.replicas(TOPIC) == [[SECOND, THIRD], [SECOND, FIRST], [FIRST, SECOND]], WITHIN_MS)
    await zookeeper.create(REASSIGN_PARTITIONS, b"no plan")
    await zookeeper.set(REASSIGN_PARTITIONS, request(moved(0, FIRST, SECOND)))
    await until_gone(zookeeper, REASSIGN_PARTITIONS)
    await eventually(lambda: site.replicas(TOPIC)[0] == [FIRST, SECOND], WITHIN_MS)


@pytest.mark.long
async def test_a_request_outlives_the_controller_that_read_it(site: ReplicatedSite, zookeeper: ZooKeeper) -> None:
    create(site, [FIRST, SECOND])
    office = site.controller()
    target = [node for node in NODES if node != office]
    await zookeeper.create(REASSIGN_PARTITIONS, request(moved(0, *target)))
    site.nodes[office].process.kill()
    await until_gone(zookeeper, REASSIGN_PARTITIONS)
    site.nodes[office].restart()
    await eventually(lambda: site.replicas(TOPIC) == [target], WITHIN_MS)


async def test_preferred_leaders_are_elected_and_the_request_is_gone_after_any_outcome(
    site: ReplicatedSite, zookeeper: ZooKeeper
) -> None:
    create(site, [FIRST, SECOND, THIRD])
    site.nodes[FIRST].process.kill()
    await eventually(lambda: site.leaders(TOPIC)[0] == SECOND, WITHIN_MS)
    site.nodes[FIRST].restart()
    site.wait_in_sync(TOPIC)
    assert site.leaders(TOPIC)[0] == SECOND
    wanted = [{"topic": "unknown", "partition": 0}, {"topic": TOPIC, "partition": 0}]
    await zookeeper.create(PREFERRED_ELECTION, request(*wanted))
    await eventually(lambda: site.leaders(TOPIC)[0] == FIRST, WITHIN_MS)
    await until_gone(zookeeper, PREFERRED_ELECTION)
