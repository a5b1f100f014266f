"""Broker processes that each host a controller candidate: unmodified clients, kill -9, SIGSTOP, a
ZooKeeper that goes away.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from tests.support.eventually import eventually, eventually_sync
from tests.support.processes.processes import Processes
from tests.support.processes.zookeeper import ZooKeeperProcess
from tests.support.sites.site_node import SiteNode
from wire.control import controller_pb2 as pb
from wire.control.clients import ControllerClient, ControllerUnavailable

pytestmark = pytest.mark.integration

CALM = {"zookeeper.session.timeout.ms": "6000"}
"""No session is over because the machine stood still for a moment."""
DESCRIBED_WITHIN_MS = 2_000
WITHIN_MS = 120_000


@pytest.fixture
def nodes(processes: Processes, tmp_path: Path, zookeeper_connect: str) -> list[SiteNode]:
    started = [SiteNode(processes, tmp_path, zookeeper_connect, node_id, CALM) for node_id in (1001, 1002)]
    for node in started:
        node.wait_ready()
    return started


def admin_of(*nodes: SiteNode) -> AdminClient:
    return AdminClient(
        {"bootstrap.servers": ",".join(node.bootstrap for node in nodes), "topic.metadata.refresh.interval.ms": 200}
    )


def leaders(admin: AdminClient, topic: str) -> dict[int, int]:
    """Leader by partition as metadata has it now."""
    found = admin.list_topics(topic, timeout=30).topics[topic]
    return {index: partition.leader for index, partition in found.partitions.items()}


def create(admin: AdminClient, topic: str, partitions: int) -> None:
    admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(120)


async def described(nodes: list[SiteNode]) -> dict[int, pb.DescribeControllerReply]:
    """Each candidate's own report; candidates that do not answer or are passive are left out."""
    found = {}
    for node in nodes:
        client = ControllerClient(lambda at=node: [at.grpc_address], timeout_ms=DESCRIBED_WITHIN_MS)  # type: ignore[misc]
        try:
            found[node.node_id] = await client.describe_controller()
        except ControllerUnavailable:
            continue
        finally:
            await client.close()
    return found


@pytest.fixture
async def active(nodes: list[SiteNode]) -> SiteNode:
    """The node whose candidate is active."""

    async def find() -> list[SiteNode]:
        answers = await described(nodes)
        return [
            node for node in nodes if node.node_id in answers and answers[node.node_id].controller_id == node.node_id
        ]

    return (await eventually(find, WITHIN_MS))[0]


async def is_only(active: SiteNode, nodes: list[SiteNode]) -> bool:
    """A slow candidate is left out this time: callers ask again."""
    return set(await described(nodes)) == {active.node_id}


def test_topics_are_created_grown_and_deleted_by_an_unmodified_client(nodes: list[SiteNode]) -> None:
    admin = admin_of(nodes[1])
    create(admin, "t", 2)
    assert sorted(leaders(admin, "t").values()) == [1001, 1002]
    with pytest.raises(KafkaException, match="already exists"):
        create(admin, "t", 2)
    with pytest.raises(KafkaException, match="INVALID_REPLICATION_FACTOR"):
        admin.create_topics([NewTopic("wide", 1, 3)])["wide"].result(120)
    admin.create_partitions([NewPartitions("t", 4)])["t"].result(120)
    assert sorted(eventually_sync(lambda: len(leaders(admin, "t")) == 4 and leaders(admin, "t")).values()) == [
        1001,
        1001,
        1002,
        1002,
    ]
    admin.delete_topics(["t"])["t"].result(120)
    try:
        create(admin, "t", 1)
    except KafkaException as error:  # a controller that stood still is asked again, and may have made it the first time
        if "already exists" not in str(error):
            raise
    eventually_sync(lambda: len(leaders(admin, "t")) == 1)


async def test_kill_of_the_active_node_moves_the_controller_and_its_partitions_come_back_with_it(
    nodes: list[SiteNode], active: SiteNode
) -> None:
    (other,) = [node for node in nodes if node is not active]
    admin = admin_of(other)
    create(admin, "t", 2)
    lost = next(index for index, leader in leaders(admin, "t").items() if leader == active.node_id)
    found = await eventually(lambda: described([active]))
    epoch = found[active.node_id].controller_epoch
    active.process.kill()

    async def has_moved() -> bool:
        answer = (await described([other])).get(other.node_id)
        return answer is not None and answer.controller_epoch > epoch and len(answer.brokers) == 1

    await eventually(has_moved, WITHIN_MS)
    await eventually(lambda: leaders(admin, "t")[lost] == -1)
    create(admin, "meanwhile", 1)
    active.restart()
    await eventually(lambda: leaders(admin, "t")[lost] == active.node_id, WITHIN_MS)
    await eventually(lambda: is_only(other, nodes), WITHIN_MS)


async def test_a_frozen_controller_is_replaced_and_cannot_undo_that_when_it_wakes(
    nodes: list[SiteNode], active: SiteNode
) -> None:
    (other,) = [node for node in nodes if node is not active]
    admin = admin_of(other)
    create(admin, "t", 2)
    active.process.pause()

    async def has_moved() -> bool:
        answer = (await described([other])).get(other.node_id)
        return answer is not None and [broker.node_id for broker in answer.brokers] == [other.node_id]

    await eventually(has_moved, WITHIN_MS)
    create(admin_of(other), "meanwhile", 1)  # a client that knew the frozen one would wait for its answer
    active.process.resume()
    await eventually(lambda: set(leaders(admin, "t").values()) == {1001, 1002}, WITHIN_MS)
    await eventually(lambda: is_only(other, nodes), WITHIN_MS)
    woken = admin_of(active)
    await eventually(lambda: leaders(woken, "meanwhile") == {0: other.node_id})


async def test_a_zookeeper_that_goes_away_and_returns_costs_no_topic(
    processes: Processes, tmp_path: Path, own_zookeeper: ZooKeeperProcess
) -> None:
    node = SiteNode(processes, tmp_path, own_zookeeper.connect, 1001)
    node.wait_ready()
    admin = admin_of(node)
    create(admin, "before", 1)
    own_zookeeper.kill()
    assert leaders(admin, "before") == {0: 1001}
    own_zookeeper.restart()

    def is_served() -> bool:
        try:
            create(admin, "after", 1)
        except KafkaException as error:
            return "already exists" in str(error)
        except TimeoutError:  # no process has answered yet whether it was created
            return False
        return True

    await eventually(is_served)
    await eventually(lambda: leaders(admin, "before") == {0: 1001})
