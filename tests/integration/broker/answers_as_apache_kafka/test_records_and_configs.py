"""Configs, and records that a topic's config refuses, on which this broker and a real Apache Kafka
must give the same answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from runtime.clock import SystemClock
from tests.support.clients.raw_client import RawClient
from tests.support.lone_brokers.compared_topics import both_make, make
from tests.support.lone_brokers.two_brokers import Side
from wire.batches.records import Record, encode_batch
from wire.protocol.messages.produce_codec import PartitionRecords, TopicRecords

pytestmark = pytest.mark.integration

CREATE_TOPICS, DESCRIBE_CONFIGS, TOPIC_RESOURCE, BROKER_RESOURCE = 19, 32, 2, 4


async def test_records_without_keys_in_a_compacted_topic_are_named_one_by_one(sides: list[Side]) -> None:
    def compare() -> None:
        both_make(sides, "compacted", configs={"cleanup.policy": "compact"})
        for keys in ([b"a", None, b"b", None], [None], [None] * 12, [b"a", b"b"]):
            records = [Record(key, b"value", SystemClock().now_ms()) for key in keys]
            for version in (7, 8, 13):
                ours, theirs = (refused(side, encode_batch(records), version) for side in sides)
                assert ours == theirs

    def refused(side: Side, records: bytes, version: int) -> tuple[int, list[int], bool]:
        topic = TopicRecords("compacted", side.ids["compacted"], [PartitionRecords(0, records)])
        with RawClient(side.port) as client:
            found = client.produce_all([topic], version=version).topics[0].partitions[0]
        errors = found.record_errors
        return found.error_code, [error.batch_index for error in errors], all(error.message for error in errors)

    await asyncio.to_thread(compare)


async def test_librdkafka_learns_which_records_had_no_key(sides: list[Side]) -> None:
    """The application can send the others again: librdkafka gives them another error."""

    def produce(side: Side) -> dict[int, str]:
        make(side, "compacted-by-clients", configs={"cleanup.policy": "compact"})
        outcomes: dict[int, str] = {}
        producer = Producer({"bootstrap.servers": f"127.0.0.1:{side.port}", "linger.ms": 1000, "log_level": 0})

        def note(number: int) -> Callable[[KafkaError | None, object], None]:
            return lambda error, _: outcomes.update({number: "" if error is None else error.name()})

        for number in range(6):
            key = None if number in (1, 4) else b"key"
            producer.produce("compacted-by-clients", b"value", key=key, partition=0, on_delivery=note(number))
        assert producer.flush(120) == 0
        return outcomes

    ours, theirs = await asyncio.gather(*(asyncio.to_thread(produce, side) for side in sides))
    assert ours == theirs
    assert [ours[number] for number in (1, 4)] == ["INVALID_RECORD"] * 2
    assert {ours[number] for number in (0, 2, 3, 5)} == {"_INVALID_DIFFERENT_RECORD"}


DIFFERENT_ON_PURPOSE = {
    ("segment.bytes", "14"),
    ("segment.bytes", "1048575"),
    ("segment.index.bytes", "4"),
    ("segment.index.bytes", "14"),
    ("follower.replication.throttled.replicas", "none"),
    ("leader.replication.throttled.replicas", "none"),
}
"""Values of topic configs that one accepts and the other does not; docs/configs.md has them with
their reasons.
"""


async def test_topic_configs_are_accepted_and_refused_alike(sides: list[Side]) -> None:
    numbers = ("-2", "-1", "0", "1", "4", "14", "1048575", "1048576", "2147483648", "9223372036854775808", "0.5", "1.1")
    words = (
        "",
        "abc",
        "true",
        "compact",
        "compact,delete",
        " delete",
        "gzip",
        "producer",
        "LogAppendTime",
        "0:1",
        "none",
    )

    def compare() -> None:
        both_make(sides, "described")
        ours, theirs = (described(side) for side in sides)
        shared = sorted(ours.keys() & theirs.keys())
        assert len(shared) >= 25
        assert {name: (ours[name], theirs[name]) for name in shared if ours[name] != theirs[name]} == {}
        outcomes = [
            accepted(side, [(name, value) for name in shared for value in (*numbers, *words)]) for side in sides
        ]
        different = {key for key, is_accepted in outcomes[0].items() if is_accepted is not outcomes[1][key]}
        assert different == DIFFERENT_ON_PURPOSE

    def described(side: Side) -> dict[str, tuple[Any, ...]]:
        """Each config's type and default, and whether it has its documentation with a request for
        it, and none without.
        """
        resource = {"resource_type": TOPIC_RESOURCE, "resource_name": "described", "configuration_keys": None}
        found: dict[str, tuple[Any, ...]] = {}
        with RawClient(side.port) as client:
            for is_asked in (True, False):
                asked = {"resources": [resource], "include_synonyms": True, "include_documentation": is_asked}
                for config in client.call(DESCRIBE_CONFIGS, 4, asked).results[0].configs:
                    facts = (config.config_type, config.value, config.read_only, config.is_sensitive)
                    found[config.name] = (*found.get(config.name, ()), *facts, bool(config.documentation))
        return found

    def accepted(side: Side, settings: list[tuple[str, str]]) -> dict[tuple[str, str], bool]:
        found: dict[tuple[str, str], bool] = {}
        with RawClient(side.port) as client:
            for name, value in settings:
                topic = {"name": "checked", "num_partitions": 1, "replication_factor": 1, "assignments": []}
                asked = {"topics": [{**topic, "configs": [{"name": name, "value": value}]}], "validate_only": True}
                answer = client.call(CREATE_TOPICS, 7, {**asked, "timeout": timedelta(seconds=10)})
                found[name, value] = not answer.topics[0].error_code
        return found

    await asyncio.to_thread(compare)


async def test_broker_configs_have_documentation_when_the_request_asks_for_it(sides: list[Side]) -> None:
    def unexplained(side: Side, *, is_asked: bool) -> set[str]:
        resource = {"resource_type": BROKER_RESOURCE, "resource_name": "1", "configuration_keys": None}
        asked = {"resources": [resource], "include_synonyms": False, "include_documentation": is_asked}
        with RawClient(side.port) as client:
            configs = client.call(DESCRIBE_CONFIGS, 4, asked).results[0].configs
        assert len(configs) > 50
        return {config.name for config in configs if bool(config.documentation) is not is_asked}

    for is_asked in (True, False):
        assert await asyncio.to_thread(unexplained, sides[0], is_asked=is_asked) == set()
