"""Every key of the broker that concerns groups is set under its own name and seen to act."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta, i64Timedelta

from broker.groups.limits import group_limits
from broker.settings.loading import load_broker_settings
from tests.support.clients.raw_client import RawClient
from tests.support.eventually import eventually_sync
from tests.support.lone_brokers.lone_broker_process import LoneBroker

pytestmark = pytest.mark.integration

OFFSET_COMMIT, OFFSET_FETCH, FIND_COORDINATOR, JOIN_GROUP, DESCRIBE_GROUPS, CREATE_TOPICS = 8, 9, 10, 11, 15, 19
DESCRIBE_CONFIGS, CONSUMER_GROUP_HEARTBEAT, CONSUMER_GROUP_DESCRIBE = 32, 68, 69
TOPIC_RESOURCE = 2
KEYS = {
    "group.max.size": "1",
    "group.min.session.timeout.ms": "7000",
    "group.max.session.timeout.ms": "9000",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.max.size": "1",
    "group.consumer.assignors": "range",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.max.heartbeat.interval.ms": "400",
    "group.consumer.heartbeat.interval.ms": "300",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.max.session.timeout.ms": "2000",
    "group.consumer.session.timeout.ms": "1500",
    "offset.metadata.max.bytes": "3",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.segment.bytes": "2000000",
    "offsets.retention.check.interval.ms": "100",
}


@pytest.fixture(scope="module")
def start(session_processes: Any, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., LoneBroker]:
    return lambda keys: LoneBroker(session_processes, tmp_path_factory.mktemp("group-keys"), **keys)


@pytest.fixture(scope="module")
def broker(start: Callable[..., LoneBroker]) -> LoneBroker:
    return start(KEYS)


@contextmanager
def asking(broker: LoneBroker) -> Iterator[RawClient]:
    """A connection to a broker that coordinates."""
    with RawClient(broker.port) as client:

        def is_coordinator() -> bool:
            found = client.call(FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["g"]})
            return found.coordinators[0].error_code is ErrorCode.none

        eventually_sync(is_coordinator)
        yield client


def milliseconds(count: int) -> Any:
    return i32Timedelta.parse(timedelta(milliseconds=count))


def join(group: str, *, session_ms: int) -> dict[str, Any]:
    return {
        "group_id": group,
        "session_timeout": milliseconds(session_ms),
        "rebalance_timeout": milliseconds(60_000),
        "member_id": "",
        "group_instance_id": uuid.uuid4().hex,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b"x"}],
        "reason": None,
    }


def joined(broker: LoneBroker, group: str, session_ms: int = 8000) -> ErrorCode:
    with asking(broker) as client:
        code: ErrorCode = client.call(JOIN_GROUP, 8, join(group, session_ms=session_ms)).error_code
        return code


def beaten(client: RawClient, group: str, member: str, **more: Any) -> Any:
    values = {
        "group_id": group,
        "member_id": member,
        "member_epoch": 0,
        "rebalance_timeout": milliseconds(60_000),
        "subscribed_topic_names": ("nothing",),
        "topic_partitions": (),
        **more,
    }
    return client.call(CONSUMER_GROUP_HEARTBEAT, 1, values)


def describe_consumers(client: RawClient, group: str) -> Any:
    answer = client.call(CONSUMER_GROUP_DESCRIBE, 1, {"group_ids": [group], "include_authorized_operations": False})
    return answer.groups[0]


def test_group_max_size(broker: LoneBroker) -> None:
    assert joined(broker, "size") is ErrorCode.none
    assert joined(broker, "size") is ErrorCode.group_max_size_reached


@pytest.mark.parametrize(
    ("session_ms", "error"),
    [
        (6999, ErrorCode.invalid_session_timeout),
        (7000, ErrorCode.none),
        (9000, ErrorCode.none),
        (9001, ErrorCode.invalid_session_timeout),
    ],
)
def test_group_min_and_max_session_timeout_ms(broker: LoneBroker, session_ms: int, error: ErrorCode) -> None:
    assert joined(broker, f"session-{session_ms}", session_ms) is error


def test_group_consumer_max_size(broker: LoneBroker) -> None:
    with asking(broker) as client:
        assert beaten(client, "consumers", "a").error_code is ErrorCode.none
        assert beaten(client, "consumers", "b").error_code is ErrorCode.group_max_size_reached


def test_group_consumer_assignors(broker: LoneBroker) -> None:
    with asking(broker) as client:
        assert beaten(client, "assigned", "a", server_assignor="uniform").error_code is ErrorCode.unsupported_assignor
        assert beaten(client, "assigned", "a").error_code is ErrorCode.none
        assert describe_consumers(client, "assigned").assignor_name == "range"


def test_group_consumer_heartbeat_interval_ms_and_session_timeout_ms(broker: LoneBroker) -> None:
    with asking(broker) as client:
        answer = beaten(client, "silent", "a")
        assert answer.heartbeat_interval == timedelta(milliseconds=300)
        # with the default of 45 s the member would be there for longer than this waits
        eventually_sync(lambda: not describe_consumers(client, "silent").members)


def test_offset_metadata_max_bytes_and_offsets_retention_check_interval_ms(broker: LoneBroker) -> None:
    topic = {"name": "kept", "num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
    with asking(broker) as client:
        client.call(CREATE_TOPICS, 7, {"topics": [topic], "validate_only": False})
        partitions = [
            {"partition_index": index, "committed_offset": 5, "committed_metadata": text}
            for index, text in enumerate(("abc", "abcd"))
        ]
        wanted = {
            "group_id": "metadata",
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "retention_time": i64Timedelta.parse(timedelta(milliseconds=1)),
            "topics": [{"name": "kept", "partitions": partitions}],
        }
        answer = client.call(OFFSET_COMMIT, 3, wanted)
        codes = [partition.error_code for partition in answer.topics[0].partitions]
        assert codes == [ErrorCode.none, ErrorCode.offset_metadata_too_large]

        def is_expired() -> bool:
            asked = {"group_id": "metadata", "topics": [{"name": "kept", "partition_indexes": [0]}]}
            found = client.call(OFFSET_FETCH, 5, asked)
            return bool(found.topics[0].partitions[0].committed_offset == -1)

        eventually_sync(is_expired)


def test_offsets_topic_num_partitions_and_segment_bytes(broker: LoneBroker) -> None:
    name = "__consumer_offsets"
    resource = {"resource_type": TOPIC_RESOURCE, "resource_name": name, "configuration_keys": ["segment.bytes"]}
    asked = {"resources": [resource], "include_synonyms": False, "include_documentation": False}
    with asking(broker) as client:
        assert len(client.metadata(name).topics[0].partitions) == 3
        (config,) = client.call(DESCRIBE_CONFIGS, 4, asked).results[0].configs
        assert config.value == "2000000"


def test_group_initial_rebalance_delay_ms_and_rebalance_protocols(start: Callable[..., LoneBroker]) -> None:
    keys = {"group.initial.rebalance.delay.ms": "600000", "group.coordinator.rebalance.protocols": "classic"}
    broker = start(keys)
    with asking(broker) as client, RawClient(broker.port) as waiting:
        assert beaten(client, "g", "a").error_code is ErrorCode.unsupported_version
        waiting.send_call(JOIN_GROUP, 8, join("g", session_ms=30_000))

        def state() -> str:
            asked = {"groups": ["g"], "include_authorized_operations": False}
            found: str = client.call(DESCRIBE_GROUPS, 5, asked).groups[0].group_state
            return found

        eventually_sync(lambda: state() == "PreparingRebalance")


def test_offsets_retention_minutes_and_migration_policy_reach_the_coordinator() -> None:
    """The shortest retention is a minute, so this test only checks that the keys reach the limits.
    The golden scripts check the effects.
    """
    given = {"node.id": "1", "listeners": "CLIENT://h:1", "log.dirs": "/x", "zookeeper.connect": "z:1"}
    found = {
        policy: group_limits(load_broker_settings({**given, "group.consumer.migration.policy": policy}))
        for policy in ("upgrade", "downgrade", "disabled", "bidirectional")
    }
    assert [(limits.may_upgrade, limits.may_downgrade) for limits in found.values()] == [
        (True, False),
        (False, True),
        (False, False),
        (True, True),
    ]
    retained = group_limits(load_broker_settings({**given, "offsets.retention.minutes": "3"}))
    assert retained.offsets_retention_ms == 180_000
