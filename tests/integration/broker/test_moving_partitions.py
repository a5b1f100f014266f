"""Partitions moved by Apache Kafka's own tool with a throttle: the throttle slows the replicas that
move, not those in sync, and no throttle stays set.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import ConfigResource, NewTopic, ResourceType

from tests.support.clients.java_clients import LEADER_ELECTION, REASSIGN, KafkaPrograms
from tests.support.eventually import eventually_sync
from tests.support.processes.processes import Processes
from tests.support.sites.replicated_site import NODES, ReplicatedSite

pytestmark = pytest.mark.integration

TOPIC = "orders"
FIRST, SECOND, THIRD = NODES
THROTTLED_RATE = "leader.replication.throttled.rate"
THROTTLE_CONFIGS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


@pytest.fixture
def site(processes: Processes, tmp_path: Path, zookeeper_connect: str) -> ReplicatedSite:
    settings = {
        "min.insync.replicas": "2",
        "num.replica.fetchers": "2",
        "auto.leader.rebalance.enable": "false",
        # no broker may lose its leadership or its place in sync because the machine stops for some
        # seconds
        "zookeeper.session.timeout.ms": "30000",
        "replica.lag.time.max.ms": "30000",
    }
    return ReplicatedSite(processes, tmp_path, zookeeper_connect, settings)


def produce(site: ReplicatedSite, size_bytes: int) -> None:
    producer = Producer({"bootstrap.servers": site.bootstrap, "acks": "all", "linger.ms": 5})
    for _ in range(size_bytes // 1000):
        producer.produce(TOPIC, bytes(1000), partition=0)
    assert producer.flush(120) == 0


def plan_of(path: Path, *replicas: int) -> str:
    partition = {"topic": TOPIC, "partition": 0, "replicas": list(replicas), "log_dirs": ["any"] * len(replicas)}
    path.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    return str(path)


def wait_for_throttles(site: ReplicatedSite, *values: str, rate: str = "") -> None:
    """Wait until the topic has these throttled replicas, for leaders and followers, and FIRST has
    this rate, if one is given.

    The broker that is asked may learn of a change later than the broker to which it was sent.
    """
    of_topic, of_broker = ConfigResource(ResourceType.TOPIC, TOPIC), ConfigResource(ResourceType.BROKER, str(FIRST))

    def are_told() -> bool:
        found = site.admin.describe_configs([of_topic])[of_topic].result(120)
        assert [found[name].value for name in THROTTLE_CONFIGS] == list(values)
        found = site.admin.describe_configs([of_broker])[of_broker].result(120)
        return rate in ("", found[THROTTLED_RATE].value)

    eventually_sync(are_told)


def replicas(site: ReplicatedSite) -> set[int]:
    return set(site.admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions[0].replicas)


@pytest.mark.long
def test_a_throttled_move_leaves_room_for_replicas_in_sync(
    site: ReplicatedSite, kafka_programs: KafkaPrograms, tmp_path: Path
) -> None:
    site.admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[[FIRST, SECOND]])])[TOPIC].result(120)
    produce(site, 6_000_000)
    plan = plan_of(tmp_path / "plan.json", FIRST, SECOND, THIRD)

    def reassign(*arguments: str) -> str:
        given = ("--bootstrap-server", site.bootstrap, "--reassignment-json-file", plan, *arguments)
        return kafka_programs.run(REASSIGN, *given).decode()

    assert "Successfully started partition reassignment" in reassign("--execute", "--throttle", "1")
    wait_for_throttles(site, f"0:{FIRST},0:{SECOND}", f"0:{THIRD}", rate="1")
    # the rate counts throttled bytes, and is far above the bound of one byte a second
    eventually_sync(lambda: site.nodes[FIRST].figure("kafka_server_leaderreplication_byte_rate") > 1)
    produce(site, 2_000_000)
    assert "is still in progress" in reassign("--verify", "--preserve-throttles")
    site.wait_in_sync(TOPIC, (FIRST, SECOND))
    assert "The inter-broker throttle limit was set to 900000000" in reassign(
        "--execute", "--additional", "--throttle", "900000000"
    )
    site.wait_in_sync(TOPIC)
    eventually_sync(lambda: "is completed" in reassign("--verify"))
    wait_for_throttles(site, "", "", rate=str(2**63 - 1))
    site.wait_equal(TOPIC, 1)


def test_kafkas_tools_list_cancel_and_elect(
    site: ReplicatedSite, kafka_programs: KafkaPrograms, tmp_path: Path
) -> None:
    site.admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[[FIRST, SECOND]])])[TOPIC].result(120)
    produce(site, 6_000_000)
    plan = plan_of(tmp_path / "plan.json", FIRST, THIRD)
    tool = ("--bootstrap-server", site.bootstrap)
    kafka_programs.run(REASSIGN, *tool, "--reassignment-json-file", plan, "--execute", "--throttle", "1")
    assert f"adding: {THIRD}" in kafka_programs.run(REASSIGN, *tool, "--list").decode()
    cancelled = kafka_programs.run(REASSIGN, *tool, "--reassignment-json-file", plan, "--cancel").decode()
    assert f"Successfully cancelled partition reassignment for: {TOPIC}-0" in cancelled
    eventually_sync(lambda: replicas(site) == {FIRST, SECOND})
    wait_for_throttles(site, "", "")
    site.nodes[FIRST].process.stop()
    eventually_sync(lambda: site.leaders(TOPIC)[0] == SECOND)
    site.nodes[FIRST].restart()
    site.wait_in_sync(TOPIC, (FIRST, SECOND))
    elected = kafka_programs.run(
        LEADER_ELECTION, *tool, "--election-type", "preferred", "--topic", TOPIC, "--partition", "0"
    )
    assert b"Successfully completed leader election" in elected
    eventually_sync(lambda: site.leaders(TOPIC)[0] == FIRST)
