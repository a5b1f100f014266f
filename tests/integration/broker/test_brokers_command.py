"""`antipode brokers` on a site of three brokers, one of which never seems to come back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from tests.support.clients.acknowledged_load import AcknowledgedLoad
from tests.support.clients.java_clients import CLUSTER, TOPICS, KafkaPrograms
from tests.support.eventually import eventually_sync
from tests.support.processes.fork_server import run_antipode
from tests.support.processes.processes import Processes
from tests.support.sites.replicated_site import CALM, NODES, ReplicatedSite
from tests.support.sites.site_node import SiteNode

pytestmark = pytest.mark.integration

FIRST, SECOND, LOST = NODES


@pytest.fixture
def site(processes: Processes, tmp_path: Path, zookeeper_connect: str) -> ReplicatedSite:
    return ReplicatedSite(processes, tmp_path, zookeeper_connect, {**CALM, "auto.create.topics.enable": "false"})


def run(site: ReplicatedSite, *arguments: str, code: int = 0) -> Any:
    """The JSON output of a command; its error output if it must end with another code."""
    bootstrap = ",".join(site.nodes[node].bootstrap for node in (FIRST, SECOND))
    ended = run_antipode(*arguments, "-b", bootstrap, "--output", "json")
    assert ended.returncode == code, (arguments, ended.stdout, ended.stderr)
    return json.loads(ended.stdout) if ended.stdout else ended.stderr


def is_registered(site: ReplicatedSite, node: int) -> bool:
    return node in {row["broker"] for row in run(site, "brokers", "list") if row["is_registered"]}


def test_a_topic_of_a_broker_that_is_given_up_is_deleted_and_stays_so_when_the_broker_comes_back(
    site: ReplicatedSite, kafka_programs: KafkaPrograms
) -> None:
    for topic in ("gone", "kept"):
        site.create(topic, 2)
    producer = Producer({"bootstrap.servers": site.bootstrap, "acks": "all"})
    for number in range(100):
        producer.produce("gone", b"old", partition=number % 2)
    assert producer.flush(120) == 0
    assert "is registered" in run(site, "brokers", "unregister", str(LOST), "--yes", code=1)
    site.nodes[LOST].process.kill()
    eventually_sync(lambda: not is_registered(site, LOST))
    assert "antipode brokers unregister" in run(site, "topics", "delete", "gone", "--yes", code=1)
    tried = run(site, "brokers", "unregister", str(LOST), "--dry-run")
    assert tried["partitions_still_assigned"][:2] == ["kept-0", "kept-1"]
    assert [row["topic"] for row in run(site, "topics", "list")] == ["kept"]
    said = kafka_programs.run(
        CLUSTER, "unregister", "--bootstrap-server", site.nodes[FIRST].bootstrap, "--id", str(LOST)
    )
    assert b"no longer registered" in said
    run(site, "brokers", "unregister", str(LOST), "--yes")  # done before, and no harm
    run(site, "topics", "create", "gone", "--partitions", "2", "--replication-factor", "2")
    assert {row["broker"]: row["replicas"] for row in run(site, "brokers", "list")}[LOST] >= 2
    site.nodes[LOST].restart()
    site.wait_in_sync("kept")
    assert is_registered(site, LOST)
    assert all(LOST not in members for members in site.in_sync("gone").values())
    for index in range(2):
        directory = site.directory_of(LOST, "gone", index)
        eventually_sync(lambda: not directory.exists())  # noqa: B023 (called at once)
    assert run(site, "topics", "offsets", "gone") == {"0": 0, "1": 0}


@pytest.mark.long
async def test_a_new_broker_joins_under_load_and_takes_partitions(
    site: ReplicatedSite, processes: Processes, tmp_path: Path, zookeeper_connect: str
) -> None:
    site.create("orders", 3, min_insync_replicas="2")
    newcomer = 1004
    plan = str(tmp_path / "plan.json")
    with AcknowledgedLoad(site.bootstrap, "orders", 3) as load:
        load.wait_acknowledged(300)
        node = SiteNode(processes, tmp_path, zookeeper_connect, newcomer, CALM)
        node.wait_ready()
        eventually_sync(lambda: is_registered(site, newcomer))
        assert all(newcomer not in replicas for replicas in site.replicas("orders"))
        remaining = ",".join(map(str, (FIRST, SECOND, newcomer)))
        run(site, "reassign", "plan", "--topic", "orders", "--brokers", remaining, "--out", plan)
        assert run(site, "reassign", "execute", plan)["is_complete"]
        run(site, "elect", "preferred", "--topic", "orders")
        load.wait_acknowledged(300)
        load.finish()
    assert all({FIRST, SECOND, newcomer} == set(replicas) for replicas in site.replicas("orders"))
    eventually_sync(lambda: newcomer in site.leaders("orders").values() or _lead(site, newcomer))
    site.wait_in_sync("orders", (FIRST, SECOND, newcomer))
    await load.check_log(site.bootstrap)


def _lead(site: ReplicatedSite, node: int) -> bool:
    """Whether the node is no partition's preferred leader, and so need not lead."""
    return all(replicas[0] != node for replicas in site.replicas("orders"))


def test_topics_are_placed_and_shown_as_kafkas_tool_does_it(
    site: ReplicatedSite, kafka_programs: KafkaPrograms
) -> None:
    nodes = {1: FIRST, 2: SECOND, 3: LOST}
    text = ",".join(
        ":".join(str(nodes[int(node)]) for node in partition.split(":")) for partition in ("1:2", "2:3", "3:1")
    )
    placed = [[FIRST, SECOND], [SECOND, LOST], [LOST, FIRST]]
    run(site, "topics", "create", "ours", "--replica-assignment", text, "--config", "min.insync.replicas=2")
    kafka_programs.run(
        TOPICS, "--bootstrap-server", site.bootstrap, "--create", "--topic", "theirs", "--replica-assignment", text
    )
    for topic in ("ours", "theirs"):
        assert site.replicas(topic) == placed
    assert "excludes" in run(site, "topics", "create", "x", "--replica-assignment", text, "--partitions", "3", code=2)
    assert "is not usable" in run(site, "topics", "create", "x", "--replica-assignment", "1:2,3", code=2)
    site.create("whole", 1)
    run(site, "topics", "create", "alone", "--replica-assignment", str(LOST))
    site.nodes[LOST].process.kill()
    eventually_sync(lambda: not is_registered(site, LOST))
    bootstrap = site.nodes[FIRST].bootstrap
    for ours, theirs in (
        ("--under-replicated", "--under-replicated-partitions"),
        ("--unavailable", "--unavailable-partitions"),
        ("--at-min-isr", "--at-min-isr-partitions"),
        ("--under-min-isr", "--under-min-isr-partitions"),
    ):
        reported = kafka_programs.run(
            TOPICS, "--bootstrap-server", bootstrap, "--describe", "--exclude-internal", theirs
        ).decode()
        named = {topic: reported.count(f"Topic: {topic}\t") for topic in ("ours", "theirs", "whole", "alone")}
        shown = {row["topic"]: row["partitions"] for row in run(site, "topics", "list", ours)}
        assert shown == {topic: count for topic, count in named.items() if count}, (ours, reported)
    assert [
        row["partition"] for row in run(site, "topics", "describe", "ours", "--under-replicated")["partitions"]
    ] == [1, 2]
    (alone,) = run(site, "topics", "describe", "alone", "--unavailable")["partitions"]
    assert (alone["leader"], alone["end_offset"]) == (-1, -1)
    overridden = run(site, "topics", "list", "--topics-with-overrides")
    assert {row["topic"]: row["configs"] for row in overridden} == {"ours": {"min.insync.replicas": "2"}}


def test_controlled_shutdown_enable(processes: Processes, tmp_path: Path, zookeeper_connect: str) -> None:
    """If controlled shutdown is off, a stopping broker transfers no leaderships: its end is noticed
    like that of a killed one.
    """
    site = ReplicatedSite(processes, tmp_path, zookeeper_connect, {**CALM, "controlled.shutdown.enable": "false"})
    site.create("orders", 3)
    stopping = site.leaders("orders")[0]
    others = tuple(node for node in NODES if node != stopping)
    site.nodes[stopping].process.stop()
    eventually_sync(lambda: set(site.leaders("orders").values()) <= set(others))
    assert "controlled shutdown" not in site.nodes[stopping].process.log_text()
    asked = sum(
        site.nodes[node].figure(
            "kafka_controller_controllereventmanager_eventqueueprocessingtimems_count", command="ControlledShutdown"
        )
        for node in others
    )
    assert asked == 0
