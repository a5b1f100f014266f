"""`antipode reassign` and `antipode elect` on a site of three brokers: plan, dry run, throttled
move, verify, cancel, elections.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import grpc
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from tests.support.clients.java_clients import REASSIGN, KafkaPrograms
from tests.support.eventually import eventually_sync
from tests.support.processes.fork_server import run_antipode
from tests.support.processes.processes import Processes
from tests.support.sites.replicated_site import CALM, NODES, ReplicatedSite
from wire.control.broker_pb2 import DescribePartitionsRequest
from wire.control.broker_pb2_grpc import BrokerControlStub

pytestmark = pytest.mark.integration

TOPIC = "orders"
FIRST, SECOND, THIRD = NODES


class Operator:
    """A person at a command line."""

    def __init__(self, site: ReplicatedSite) -> None:
        self._site = site

    def run(self, *arguments: str, code: int = 0) -> Any:
        """The JSON output of a command; its error output if it must end with another code."""
        ended = run_antipode(*arguments, "-b", self._site.bootstrap, "--output", "json")
        assert ended.returncode == code, (arguments, ended.stdout, ended.stderr)
        return json.loads(ended.stdout) if ended.stdout else ended.stderr


@pytest.fixture
def site(processes: Processes, tmp_path: Path, zookeeper_connect: str) -> ReplicatedSite:
    return ReplicatedSite(processes, tmp_path, zookeeper_connect, {**CALM, "auto.leader.rebalance.enable": "false"})


@pytest.fixture
def operator(site: ReplicatedSite) -> Operator:
    return Operator(site)


def create(site: ReplicatedSite, *replicas: list[int]) -> None:
    site.admin.create_topics([NewTopic(TOPIC, len(replicas), replica_assignment=list(replicas))])[TOPIC].result(120)
    producer = Producer({"bootstrap.servers": site.bootstrap, "acks": "all"})
    for number in range(5000):
        producer.produce(TOPIC, bytes(1000), partition=number % len(replicas))
    assert producer.flush(120) == 0


def test_a_plan_is_proposed_tried_carried_out_and_verified(
    site: ReplicatedSite, operator: Operator, tmp_path: Path
) -> None:
    create(site, [FIRST, SECOND], [FIRST, SECOND], [FIRST, SECOND])
    plan, back = str(tmp_path / "plan.json"), str(tmp_path / "back.json")
    proposed = operator.run("reassign", "plan", "--topic", TOPIC, "--out", plan, "--rollback", back)
    assert proposed == json.loads(Path(plan).read_text())
    assert any(THIRD in entry["replicas"] for entry in proposed["partitions"])
    assert operator.run("reassign", "execute", plan, "--dry-run")["is_dry_run"]
    assert site.replicas(TOPIC) == [[FIRST, SECOND]] * 3
    assert not operator.run("reassign", "verify", plan, code=1)["is_complete"]
    done = operator.run("reassign", "execute", plan, "--throttle", "100000000")
    assert done["is_complete"]
    assert operator.run("reassign", "verify", plan)["is_complete"]
    assert not any("throttled" in row["config"] for row in operator.run("configs", "show", "--topic", TOPIC))
    assert not any("throttled" in row["config"] for row in operator.run("configs", "show", "--broker", str(FIRST)))
    operator.run("reassign", "execute", back)
    eventually_sync(lambda: list(map(sorted, site.replicas(TOPIC))) == [[FIRST, SECOND]] * 3)
    assert "broker 7 is not there" in operator.run("reassign", "plan", "--brokers", "7", code=1)


@pytest.mark.long
def test_a_throttled_move_is_listed_and_cancelled(site: ReplicatedSite, operator: Operator, tmp_path: Path) -> None:
    create(site, [FIRST, SECOND])
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"partitions": [{"topic": TOPIC, "partition": 0, "replicas": [FIRST, THIRD]}]}))
    operator.run("reassign", "execute", str(plan), "--throttle", "1", "--no-wait")
    (moving,) = operator.run("reassign", "list")
    assert (moving["adding"], moving["removing"]) == ([THIRD], [SECOND])
    assert operator.run("reassign", "verify", str(plan))["partitions"][0]["state"] == "moving"
    assert operator.run("reassign", "cancel", "--all", "--dry-run")["cancelled"] == [f"{TOPIC}-0"]
    assert operator.run("reassign", "list")
    assert operator.run("reassign", "cancel", str(plan))["cancelled"] == [f"{TOPIC}-0"]
    eventually_sync(lambda: site.replicas(TOPIC) == [[FIRST, SECOND]])
    assert operator.run("reassign", "list") == []
    assert not any("throttled" in row["config"] for row in operator.run("configs", "show", "--topic", TOPIC))
    assert "say what to cancel" in operator.run("reassign", "cancel", code=2)


@pytest.mark.long
def test_preferred_and_unclean_leaders_are_elected_on_request(site: ReplicatedSite, operator: Operator) -> None:
    create(site, [FIRST, SECOND])
    assert operator.run("elect", "preferred", "--all")["partitions"] == []
    site.nodes[FIRST].process.kill()
    eventually_sync(lambda: site.leaders(TOPIC)[0] == SECOND)
    site.wait_in_sync(TOPIC, (SECOND,))
    producer = Producer({"bootstrap.servers": site.bootstrap, "acks": 1, "log_level": 2})
    for value in ("one", "two", "three"):
        producer.produce(TOPIC, value)
    assert producer.flush(120) == 0
    site.nodes[SECOND].process.kill()
    site.nodes[FIRST].restart()
    eventually_sync(lambda: site.leaders(TOPIC)[0] == -1)
    wanted = operator.run("elect", "unclean", "--topic", TOPIC, "--dry-run")["partitions"]
    assert [row["outcome"] for row in wanted] == ["would be elected"]
    elected = operator.run("elect", "unclean", "--topic", TOPIC, "--partition", "0", "--yes")["partitions"]
    assert [row["outcome"] for row in elected] == ["elected"]
    eventually_sync(lambda: site.leaders(TOPIC)[0] == FIRST)
    controller = site.nodes[site.controller()]
    assert controller.figure("kafka_controller_controllerstats_uncleanleaderelections_total") == 1
    site.nodes[SECOND].restart()
    site.wait_in_sync(TOPIC, (FIRST, SECOND))
    assert site.nodes[SECOND].figure("antipode_broker_truncated_records_total") == 3
    assert site.nodes[SECOND].figure("antipode_broker_truncated_unkept_bytes_total") == 0
    with grpc.insecure_channel(site.nodes[SECOND].grpc_address) as channel:
        (reported,) = BrokerControlStub(channel).DescribePartitions(DescribePartitionsRequest(), timeout=20).cuts
    assert (reported.topic, reported.partition, reported.node_id, reported.records) == (TOPIC, 0, SECOND, 3)
    assert reported.kept_bytes == reported.bytes > 0
    kept = site.directory_of(SECOND, TOPIC, 0).with_name(f"0.cut.{TOPIC}-0.log")
    assert run_antipode("log-dirs", "show-truncated", str(kept)).stdout == "one\ntwo\nthree\n"
    assert "say which partitions" in operator.run("elect", "preferred", code=2)


@pytest.mark.long
def test_a_plan_may_name_log_directories(
    processes: Processes, tmp_path: Path, zookeeper_connect: str, kafka_programs: KafkaPrograms
) -> None:
    site = ReplicatedSite(processes, tmp_path, zookeeper_connect, CALM, log_directories=("one", "two"))
    operator = Operator(site)
    create(site, [FIRST, SECOND])
    lying = {row["broker"]: row["directory"] for row in operator.run("log-dirs", "describe", "--topic", TOPIC)}
    stays = (
        lying[FIRST].replace("/one", "/two") if lying[FIRST].endswith("/one") else lying[FIRST].replace("/two", "/one")
    )
    comes = str(Path(lying[FIRST]).parent.parent / f"node-{THIRD}" / "two")
    entry = {"topic": TOPIC, "partition": 0, "replicas": [FIRST, THIRD], "log_dirs": [stays, comes]}
    plan, wrong = tmp_path / "plan.json", tmp_path / "wrong.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    wrong.write_text(json.dumps({"version": 1, "partitions": [{**entry, "log_dirs": ["any", "/nowhere"]}]}))
    assert f"broker {THIRD} has no log directory /nowhere" in operator.run("reassign", "execute", str(wrong), code=1)
    assert operator.run("reassign", "execute", str(plan), "--dry-run")["log_directories"] == 2
    before = operator.run("reassign", "verify", str(plan), code=1)
    assert [row["state"] for row in before["replicas"]] == ["elsewhere", "missing"]
    done = operator.run("reassign", "execute", str(plan), "--log-dirs-throttle", "900000000")
    assert done["is_complete"]
    assert operator.run("reassign", "execute", str(plan))["is_complete"]  # as after an interruption
    assert {row["state"] for row in operator.run("reassign", "verify", str(plan))["replicas"]} == {"done"}
    lying = {row["broker"]: row["directory"] for row in operator.run("log-dirs", "describe", "--topic", TOPIC)}
    assert lying == {FIRST: stays, THIRD: comes}
    assert not any("log.dirs.io" in row["config"] for row in operator.run("configs", "show", "--broker", str(FIRST)))
    given = ("--bootstrap-server", site.bootstrap, "--reassignment-json-file", str(plan), "--verify")
    said = kafka_programs.run(REASSIGN, *given).decode()
    assert f"Reassignment of replica {TOPIC}-0-{FIRST} completed successfully." in said
    assert f"Reassignment of replica {TOPIC}-0-{THIRD} completed successfully." in said


def test_kafkas_own_tool_moves_logs_between_directories_and_ours_verifies_its_plan(
    processes: Processes, tmp_path: Path, zookeeper_connect: str, kafka_programs: KafkaPrograms
) -> None:
    site = ReplicatedSite(processes, tmp_path, zookeeper_connect, CALM, log_directories=("one", "two"))
    operator = Operator(site)
    create(site, [FIRST, SECOND])
    (home,) = (
        row["directory"] for row in operator.run("log-dirs", "describe", "--topic", TOPIC) if row["broker"] == FIRST
    )
    nodes = Path(home).parent.parent
    wanted = [str(nodes / f"node-{THIRD}" / "two"), str(nodes / f"node-{SECOND}" / "two")]
    plan = tmp_path / "plan.json"
    entry = {"topic": TOPIC, "partition": 0, "replicas": [THIRD, SECOND], "log_dirs": wanted}
    plan.write_text(json.dumps({"version": 1, "partitions": [entry]}))
    given = ("--bootstrap-server", site.bootstrap, "--reassignment-json-file", str(plan))
    said = kafka_programs.run(REASSIGN, *given, "--execute").decode()
    assert f"Successfully started moving log directory to {wanted[0]} for replica {TOPIC}-0 with broker {THIRD}" in said
    eventually_sync(
        lambda: all(row["state"] == "done" for row in operator.run("reassign", "verify", str(plan))["replicas"]),
        60_000,
    )
    assert "completed successfully" in kafka_programs.run(REASSIGN, *given, "--verify").decode()
