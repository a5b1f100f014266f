"""The errors that Apache Kafka's own tools show for impossible requests to a whole site (broker,
controller, ZooKeeper).
"""

from __future__ import annotations

import asyncio
import json
import logging
import shlex
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.support.clients.java_clients import (
    CONFIGS,
    DELETE_RECORDS,
    GET_OFFSETS,
    TOPICS,
    KafkaPrograms,
)
from tests.support.sites.site_broker import SiteBroker

pytestmark = pytest.mark.integration

Run = Callable[..., Awaitable[str]]


@pytest.fixture
async def site(zookeeper_connect: str, tmp_path: Path) -> AsyncIterator[SiteBroker]:
    running = SiteBroker(zookeeper_connect, tmp_path / "log")
    await running.start()
    yield running
    await running.stop()


@pytest.fixture
def tool(site: SiteBroker, kafka_programs: KafkaPrograms) -> Run:
    async def run(main_class: str, *arguments: str) -> str:
        answer = await asyncio.to_thread(
            kafka_programs.run, main_class, "--bootstrap-server", site.bootstrap, *arguments
        )
        return answer.decode()

    return run


@pytest.fixture
def refused(site: SiteBroker, kafka_programs: KafkaPrograms) -> Run:
    async def run(main_class: str, *arguments: str) -> str:
        return await asyncio.to_thread(
            kafka_programs.refused, main_class, "--bootstrap-server", site.bootstrap, *arguments
        )

    return run


async def test_topics_that_cannot_be_made_or_changed_are_refused_in_kafkas_words(tool: Run, refused: Run) -> None:
    created = await tool(TOPICS, "--create", "--topic", "t", "--partitions", "2", "--config", "retention.ms=1000")
    assert "Created topic t" in created
    for command, words in (
        ("--create --topic t", "Topic 't' already exists."),
        ("--create --topic u --replication-factor 3", "Replication factor: 3 larger than available brokers: 1."),
        (
            "--create --topic u --config retention.ms=soon",
            "Invalid value soon for configuration retention.ms: Not a number of type LONG",
        ),
        ("--create --topic 'bad name'", "Topic name is invalid: 'bad name' contains one or more characters"),
        ("--alter --topic t --partitions 1", "partitions=1; accepted is more than the 2"),
        ("--describe --topic nowhere", "does not exist as expected"),
        ("--delete --topic nowhere", "does not exist as expected"),
    ):
        assert words in await refused(TOPICS, *shlex.split(command))
    described = await tool(TOPICS, "--describe", "--topic", "t")
    assert "PartitionCount: 2" in described
    assert "Configs: retention.ms=1000" in described


async def test_configs_that_cannot_be_are_refused_by_name_and_others_outlive_a_restart(
    site: SiteBroker, tool: Run, refused: Run
) -> None:
    await tool(TOPICS, "--create", "--topic", "t")
    topic, broker = (
        ("--entity-type", "topics", "--entity-name", "t"),
        ("--entity-type", "brokers", "--entity-name", "1"),
    )
    for entity, setting, words in (
        (topic, "retention.mss=5", "InvalidConfigurationException: Unknown topic config name: retention.mss"),
        (topic, "segment.bytes=1", "InvalidConfigurationException: Invalid value 1 for configuration segment.bytes"),
        (broker, "zookeeper.connect=x", "zookeeper.connect cannot change while brokers run"),
        (broker, "log.retention.ms=soon", "Invalid value soon for configuration log.retention.ms"),
    ):
        assert words in await refused(CONFIGS, "--alter", *entity, "--add-config", setting)
    await tool(CONFIGS, "--alter", *broker, "--add-config", "log.retention.ms=7000000")
    await site.stop()
    await site.start()
    shown = await tool(CONFIGS, "--describe", "--all", *topic)
    assert "retention.ms=7000000 sensitive=false synonyms={DYNAMIC_BROKER_CONFIG:log.retention.ms=7000000" in shown


async def test_log_levels_are_altered_while_the_broker_runs(tool: Run, refused: Run) -> None:
    loggers = ("--entity-type", "broker-loggers", "--entity-name", "1")
    name = "broker.replication.assigned_replicas"
    try:
        await tool(CONFIGS, "--alter", *loggers, "--add-config", f"{name}=DEBUG")
        assert logging.getLogger(name).isEnabledFor(logging.DEBUG)
        assert f"{name}=DEBUG sensitive=false" in await tool(CONFIGS, "--describe", *loggers)
        await tool(CONFIGS, "--alter", *loggers, "--delete-config", name)
        assert logging.getLogger(name).level == logging.NOTSET
    finally:
        logging.getLogger(name).setLevel(logging.NOTSET)
    loud = await refused(CONFIGS, "--alter", *loggers, "--add-config", f"{name}=LOUD")
    assert f"Cannot set the log level of {name} to LOUD" in loud
    assert "no.such.logger" in await refused(CONFIGS, "--alter", *loggers, "--add-config", "no.such.logger=DEBUG")


async def test_deleting_records_of_compacted_topics_and_offsets_of_missing_topics_are_refused(
    tool: Run, refused: Run, site: SiteBroker, tmp_path: Path, kafka_programs: KafkaPrograms
) -> None:
    await tool(TOPICS, "--create", "--topic", "compacted", "--config", "cleanup.policy=compact")
    await asyncio.to_thread(kafka_programs.produce, site.bootstrap, "t", [b"x"] * 5)
    wanted = tmp_path / "offsets.json"
    partitions = [
        {"topic": "compacted", "partition": 0, "offset": 0},
        {"topic": "t", "partition": 0, "offset": 2},
    ]
    wanted.write_text(json.dumps({"partitions": partitions, "version": 1}))
    said = await tool(DELETE_RECORDS, "--offset-json-file", str(wanted))
    assert "partition: t-0\tlow_watermark: 2" in said
    assert "PolicyViolationException" in said
    assert (await tool(GET_OFFSETS, "--topic", "t")).split() == ["t:0:5"]
    assert "Could not match any topic-partitions" in await refused(GET_OFFSETS, "--topic", "nowhere")
