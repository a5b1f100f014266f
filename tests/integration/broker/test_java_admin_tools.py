"""Apache Kafka's own administration tools, unmodified, against one broker with two log
directories.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.clients.java_clients import (
    API_VERSIONS,
    CLUSTER,
    CONFIGS,
    CONSUMER_GROUPS,
    DELETE_RECORDS,
    GET_OFFSETS,
    LOG_DIRS,
    TOPICS,
    TRANSACTIONS,
    KafkaPrograms,
)
from tests.support.lone_brokers.lone_broker_process import LoneBroker
from tests.support.processes.processes import Processes

pytestmark = pytest.mark.integration

Tool = Callable[..., str]


@pytest.fixture(scope="module")
def broker(session_processes: Processes, tmp_path_factory: pytest.TempPathFactory) -> LoneBroker:
    folder = tmp_path_factory.mktemp("two-directories")
    return LoneBroker(session_processes, folder, log_dirs=f"{folder}/one,{folder}/two")


@pytest.fixture
def tool(broker: LoneBroker, kafka_programs: KafkaPrograms) -> Tool:
    return lambda main_class, *arguments: kafka_programs.run(
        main_class, "--bootstrap-server", broker.bootstrap, *arguments
    ).decode()


@pytest.fixture
def topic(tool: Tool) -> str:
    name = f"t-{uuid.uuid4().hex[:8]}"
    assert "Created topic" in tool(TOPICS, "--create", "--topic", name, "--partitions", "2")
    return name


def test_topics_are_created_described_grown_and_deleted(
    broker: LoneBroker, tool: Tool, topic: str, kafka_programs: KafkaPrograms
) -> None:
    assert topic in tool(TOPICS, "--list").split()
    described = tool(TOPICS, "--describe", "--topic", topic)
    assert "PartitionCount: 2\tReplicationFactor: 1" in described
    tool(TOPICS, "--alter", "--topic", topic, "--partitions", "3")
    assert "PartitionCount: 3" in tool(TOPICS, "--describe", "--topic", topic)
    at = ("--bootstrap-server", broker.bootstrap)
    again = kafka_programs.refused(TOPICS, *at, "--create", "--topic", topic, "--partitions", "1")
    assert "it exists" in again
    tool(TOPICS, "--delete", "--topic", topic)
    assert topic not in tool(TOPICS, "--list").split()


def test_configs_of_topics_are_set_described_and_removed(tool: Tool, topic: str) -> None:
    entity = ("--entity-type", "topics", "--entity-name", topic)
    tool(CONFIGS, "--alter", *entity, "--add-config", "retention.ms=86400000,cleanup.policy=[compact,delete]")
    described = tool(CONFIGS, "--describe", *entity)
    assert "synonyms={DYNAMIC_TOPIC_CONFIG:retention.ms=86400000}" in described
    assert "cleanup.policy=compact,delete" in described
    tool(CONFIGS, "--alter", *entity, "--delete-config", "retention.ms,cleanup.policy")
    assert "retention.ms" not in tool(CONFIGS, "--describe", *entity)
    assert "retention.ms=604800000" in tool(CONFIGS, "--describe", "--all", *entity)


def test_configs_of_one_broker_and_of_all_are_in_force_at_once_with_their_sources(
    broker: LoneBroker, tool: Tool, topic: str, kafka_programs: KafkaPrograms
) -> None:
    one, every = ("--entity-type", "brokers", "--entity-name", "1"), ("--entity-type", "brokers", "--entity-default")
    tool(CONFIGS, "--alter", *every, "--add-config", "log.index.interval.bytes=100,log.segment.delete.delay.ms=7")
    tool(CONFIGS, "--alter", *one, "--add-config", "log.index.interval.bytes=200")
    assert (
        "log.index.interval.bytes=200 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.index.interval.bytes=200, "
        "DYNAMIC_DEFAULT_BROKER_CONFIG:log.index.interval.bytes=100, DEFAULT_CONFIG:log.index.interval.bytes=4096}"
    ) in tool(CONFIGS, "--describe", *one)
    assert "log.segment.delete.delay.ms=7" in tool(CONFIGS, "--describe", *every)
    of_topic = tool(CONFIGS, "--describe", "--all", "--entity-type", "topics", "--entity-name", topic)
    assert "index.interval.bytes=200" in of_topic
    assert "file.delete.delay.ms=7" in of_topic
    refused = kafka_programs.refused(
        CONFIGS, "--bootstrap-server", broker.bootstrap, "--alter", *one, "--add-config", "log.dirs=elsewhere"
    )
    assert "InvalidRequestException: log.dirs cannot change while brokers run" in refused
    tool(CONFIGS, "--alter", *one, "--delete-config", "log.index.interval.bytes")
    tool(CONFIGS, "--alter", *every, "--delete-config", "log.index.interval.bytes,log.segment.delete.delay.ms")
    assert "log.index" not in tool(CONFIGS, "--describe", *one)


def test_records_are_deleted_and_offsets_tell(
    broker: LoneBroker, tool: Tool, topic: str, kafka_programs: KafkaPrograms, tmp_path: Path
) -> None:
    kafka_programs.produce(broker.bootstrap, topic, [b"%d" % number for number in range(50)])
    ends = dict(line.rsplit(":", 1) for line in tool(GET_OFFSETS, "--topic", topic).split())
    assert sum(map(int, ends.values())) == 50
    filled = max(ends, key=lambda partition: int(ends[partition]))
    number, end = int(filled.rpartition(":")[2]), int(ends[filled])
    wanted = tmp_path / "offsets.json"

    def delete(offset: int) -> str:
        partition = {"topic": topic, "partition": number, "offset": offset}
        wanted.write_text(json.dumps({"partitions": [partition], "version": 1}))
        return tool(DELETE_RECORDS, "--offset-json-file", str(wanted))

    assert f"partition: {topic}-{number}\tlow_watermark: 3" in delete(3)
    assert f"{filled}:3" in tool(GET_OFFSETS, "--topic", topic, "--time", "earliest").split()
    assert "OffsetOutOfRangeException" in delete(end + 1)
    assert f"low_watermark: {end}" in delete(-1)
    assert f"{filled}:{end}" in tool(GET_OFFSETS, "--topic", topic, "--time", "-2").split()


def test_log_directories_are_described(broker: LoneBroker, tool: Tool, topic: str) -> None:
    answer = tool(LOG_DIRS, "--describe", "--topic-list", topic)
    (described,) = json.loads(answer.splitlines()[-1])["brokers"]
    found = [
        (Path(directory["logDir"]).name, partition["partition"], partition["isFuture"])
        for directory in described["logDirs"]
        for partition in directory["partitions"]
    ]
    assert {name for name, _, _ in found} == {"one", "two"}
    assert sorted(partition for _, partition, _ in found) == [f"{topic}-0", f"{topic}-1"]
    assert not any(is_future for _, _, is_future in found)


@pytest.mark.long
def test_versions_cluster_groups_and_producers_are_shown(
    broker: LoneBroker, tool: Tool, topic: str, kafka_programs: KafkaPrograms
) -> None:
    assert "DescribeLogDirs(35): 1 to 5 [usable: 5]" in tool(API_VERSIONS)
    at = ("--bootstrap-server", broker.bootstrap)
    assert kafka_programs.run(CLUSTER, "cluster-id", *at).startswith(b"Cluster ID: ")
    assert b"127.0.0.1" in kafka_programs.run(CLUSTER, "list-endpoints", *at)
    assert tool(CONSUMER_GROUPS, "--list").strip() == ""
    kafka_programs.produce(broker.bootstrap, topic, [b"x"] * 3, settings={"enable.idempotence": "true"})
    answers = [
        tool(TRANSACTIONS, "describe-producers", "--topic", topic, "--partition", str(partition))
        for partition in range(2)
    ]
    assert [line for answer in answers for line in answer.splitlines()[1:] if line.strip()]
