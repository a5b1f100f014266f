"""Requests that newer clients and tools send to a broker process: topics in pages, and the answers
of a broker without security.
"""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.support.clients.java_clients import KafkaPrograms
from tests.support.clients.raw_client import RawClient
from tests.support.lone_brokers.lone_broker_process import LoneBroker

pytestmark = pytest.mark.integration

CREATE_TOPICS, DESCRIBE_TOPIC_PARTITIONS = 19, 75
DESCRIBE_ACLS, CREATE_ACLS, DELETE_ACLS, DESCRIBE_SCRAM = 29, 30, 31, 50
LIST_CONFIG_RESOURCES, DESCRIBE_LOG_DIRS = 74, 35
ACLS = "org.apache.kafka.tools.AclCommand"


@pytest.fixture
def prefix(lone_broker: LoneBroker) -> str:
    """Begins the names of three topics with 3, 1 and 4 partitions."""
    name = f"p-{uuid.uuid4().hex[:8]}"
    topics = [
        {
            "name": f"{name}-{index}",
            "num_partitions": count,
            "replication_factor": 1,
            "assignments": [],
            "configs": [],
        }
        for index, count in enumerate((3, 1, 4))
    ]
    with RawClient(lone_broker.port) as client:
        client.call(CREATE_TOPICS, 7, {"topics": topics, "validate_only": False})
    return name


def pages(broker: LoneBroker, names: list[str], limit: int) -> list[list[tuple[str, list[int]]]]:
    """Topics with their partitions, page by page."""
    found: list[list[tuple[str, list[int]]]] = []
    cursor: Any = None
    with RawClient(broker.port) as client:
        while True:
            asked = {"topics": [{"name": name} for name in names], "response_partition_limit": limit, "cursor": cursor}
            answer = client.call(DESCRIBE_TOPIC_PARTITIONS, 0, asked)
            page = [(topic.name, [found.partition_index for found in topic.partitions]) for topic in answer.topics]
            found.append(page)
            if answer.next_cursor is None:
                return found
            following = answer.next_cursor
            cursor = {"topic_name": following.topic_name, "partition_index": following.partition_index}


def test_topics_come_in_pages_of_partitions(lone_broker: LoneBroker, prefix: str) -> None:
    first, second, third = (f"{prefix}-{index}" for index in range(3))
    names = [third, first, second]
    whole = [(first, [0, 1, 2]), (second, [0]), (third, [0, 1, 2, 3])]
    assert pages(lone_broker, names, 2000) == [whole]
    assert pages(lone_broker, names, 3) == [
        [(first, [0, 1, 2])],
        [(second, [0]), (third, [0, 1])],
        [(third, [2, 3])],
    ]
    everything = [topic for page in pages(lone_broker, [], 2) for topic in page if topic[0].startswith(prefix)]
    merged: dict[str, list[int]] = {}
    for name, indexes in everything:
        merged.setdefault(name, []).extend(indexes)
    assert sorted(merged.items()) == whole


def test_a_missing_topic_is_reported_in_its_page(lone_broker: LoneBroker) -> None:
    with RawClient(lone_broker.port) as client:
        topics = [{"name": "missing-topic"}, {"name": "bad name"}]
        answer = client.call(
            DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": topics, "response_partition_limit": 10, "cursor": None}
        )
    assert {topic.name: topic.error_code for topic in answer.topics} == {
        "bad name": ErrorCode.invalid_topic_exception,
        "missing-topic": ErrorCode.unknown_topic_or_partition,
    }


def test_a_broker_without_security_says_so(lone_broker: LoneBroker) -> None:
    creation = {
        "resource_type": 2,
        "resource_name": "t",
        "resource_pattern_type": 3,
        "principal": "User:a",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    wanted = {
        "resource_type_filter": 2,
        "resource_name_filter": None,
        "pattern_type_filter": 3,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    with RawClient(lone_broker.port) as client:
        for version in (1, 2, 3):
            described = client.call(DESCRIBE_ACLS, version, wanted)
            created = client.call(CREATE_ACLS, version, {"creations": [creation, creation]})
            deleted = client.call(DELETE_ACLS, version, {"filters": [wanted]})
            assert described.error_code is ErrorCode.security_disabled
            assert [result.error_code for result in created.results] == [ErrorCode.security_disabled] * 2
            assert [result.error_code for result in deleted.filter_results] == [ErrorCode.security_disabled]
        assert client.call(DESCRIBE_SCRAM, 0, {"users": None}).results == ()
        asked = {"users": [{"name": "a"}, {"name": "b"}, {"name": "b"}]}
        errors = {result.user: result.error_code for result in client.call(DESCRIBE_SCRAM, 0, asked).results}
        assert errors == {"a": ErrorCode.resource_not_found, "b": ErrorCode.duplicate_resource}
        assert client.call(LIST_CONFIG_RESOURCES, 0, {}).config_resources == ()
        (directory,) = client.call(DESCRIBE_LOG_DIRS, 5, {"topics": []}).results
        assert directory.is_cordoned is False


def test_kafkas_tool_for_access_lists_gets_security_disabled(
    lone_broker: LoneBroker, kafka_programs: KafkaPrograms
) -> None:
    refusal = kafka_programs.refused(ACLS, "--bootstrap-server", lone_broker.bootstrap, "--list")
    assert "SecurityDisabledException: No Authorizer is configured" in refusal
