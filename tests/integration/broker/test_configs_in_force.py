"""Configs altered while a broker runs are in force at once, and still after a restart."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence

import pytest
from kio.schema.errors import ErrorCode

from tests.integration.broker.test_requests import create, records
from tests.support.clients.raw_client import RawClient
from tests.support.disks.log_batches import batch
from tests.support.eventually import eventually_sync
from tests.support.lone_brokers.lone_broker_process import LoneBroker

pytestmark = pytest.mark.integration

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1


def alter(client: RawClient, kind: int, name: str, *changes: tuple[str, int, str | None]) -> ErrorCode:
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    resource = {"resource_type": kind, "resource_name": name, "configs": configs}
    (result,) = client.call(44, 1, {"resources": [resource], "validate_only": False}).responses
    code: ErrorCode = result.error_code
    return code


def in_force(client: RawClient, kind: int, name: str, keys: Sequence[str]) -> dict[str, tuple[str, int]]:
    resource = {"resource_type": kind, "resource_name": name, "configuration_keys": tuple(keys)}
    asked = {"resources": [resource], "include_synonyms": False, "include_documentation": False}
    (result,) = client.call(32, 4, asked).results
    return {config.name: (config.value, config.config_source) for config in result.configs}


def test_a_broker_wide_size_limit_takes_old_segments_away_and_outlives_a_restart(
    start_broker: Callable[..., LoneBroker],
) -> None:
    broker = start_broker(log_retention_check_interval_ms="100", log_segment_bytes="2000")
    topic = f"t-{uuid.uuid4().hex[:8]}"
    with RawClient(broker.port) as client:
        create(client, topic)
        written_now = batch([b"v" * 800], timestamp_ms=int(time.time() * 1000))  # else their age takes them away
        for _ in range(20):
            client.produce(topic, written_now)
        folder = broker.data / f"{topic}-0"
        assert len(list(folder.glob("*.log"))) == 10
        assert alter(client, BROKER, "", ("log.retention.bytes", SET, "4000")) is ErrorCode.none
        eventually_sync(lambda: len(list(folder.glob("*.log"))) <= 3)
        assert in_force(client, TOPIC, topic, ["retention.bytes"]) == {"retention.bytes": ("4000", 3)}
    broker.process.stop()
    broker.restart()
    with RawClient(broker.port) as client:
        assert in_force(client, BROKER, "1", ["log.retention.bytes"]) == {"log.retention.bytes": ("4000", 3)}
        assert alter(client, BROKER, "", ("log.retention.bytes", DELETE, None)) is ErrorCode.none
        assert in_force(client, TOPIC, topic, ["retention.bytes"]) == {"retention.bytes": ("-1", 5)}


def test_a_broker_describes_the_configs_of_the_controller_beside_it(start_broker: Callable[..., LoneBroker]) -> None:
    broker = start_broker(delete_topic_enable="false", leader_imbalance_per_broker_percentage="25")
    keys = (
        "delete.topic.enable",
        "auto.leader.rebalance.enable",
        "leader.imbalance.per.broker.percentage",
        "leader.imbalance.check.interval.seconds",
    )
    with RawClient(broker.port) as client:
        assert in_force(client, BROKER, "1", keys) == dict(
            zip(keys, (("false", 4), ("true", 5), ("25", 4), ("300", 5)), strict=True)
        )


def test_the_largest_batch_of_a_topic_follows_broker_and_topic(start_broker: Callable[..., LoneBroker]) -> None:
    broker = start_broker()
    topic = f"t-{uuid.uuid4().hex[:8]}"
    with RawClient(broker.port) as client:
        create(client, topic)
        large = records(size=5000)
        assert client.produce(topic, large).error_code == 0
        assert alter(client, BROKER, "1", ("message.max.bytes", SET, "4000")) is ErrorCode.none
        assert client.produce(topic, large).error_code == ErrorCode.message_too_large
        assert alter(client, TOPIC, topic, ("max.message.bytes", SET, "6000")) is ErrorCode.none
        assert client.produce(topic, large).error_code == 0


def test_a_limit_of_connections_holds_from_then_on(start_broker: Callable[..., LoneBroker]) -> None:
    broker = start_broker()
    with RawClient(broker.port) as client, RawClient(broker.port) as second:
        assert second.metadata() is not None
        assert alter(client, BROKER, "1", ("max.connections.per.ip", SET, "2")) is ErrorCode.none
        with RawClient(broker.port) as third:
            assert third.read_frame() == b""
        assert alter(client, BROKER, "1", ("max.connections.per.ip.overrides", SET, "127.0.0.1:3")) is ErrorCode.none
        with RawClient(broker.port) as third:
            assert third.metadata() is not None
        assert alter(client, BROKER, "1", ("max.connections", SET, "none")) is ErrorCode.invalid_request
        assert alter(client, BROKER, "2", ("max.connections", SET, "5")) is ErrorCode.invalid_request
