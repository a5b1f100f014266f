"""Metadata, internal topics and deletions, on which this broker and a real Apache Kafka must give
the same answers.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.support.clients.raw_client import RawClient
from tests.support.disks.log_batches import batch
from tests.support.eventually import eventually_sync
from tests.support.lone_brokers.compared_topics import both_make, has_leaders, id_of, metadata, same_answers
from tests.support.lone_brokers.two_brokers import Side, filled

pytestmark = pytest.mark.integration

METADATA, CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, CREATE_PARTITIONS, FIND_COORDINATOR = 3, 19, 20, 21, 37, 10
UNKNOWN_ID = uuid.uuid4()


async def test_metadata_by_name_and_by_id(sides: list[Side]) -> None:
    def compare() -> None:
        both_make(sides, "one", "two", "__users")
        one, two = {"topic_id": id_of("one")}, {"topic_id": id_of("two")}
        nothing = {"name": "", "topic_id": None}
        named = {"name": "one", "topic_id": None}
        unknown = {"name": "", "topic_id": UNKNOWN_ID}
        same_answers(
            sides,
            {
                "an id and an empty name, as Java sends it": (METADATA, 12, metadata({**one, "name": ""})),
                "an id and no name": (METADATA, 12, metadata({**one, "name": None})),
                "an id and another topic's name": (METADATA, 12, metadata({**one, "name": "two"})),
                "an id and an unknown name": (METADATA, 12, metadata({**one, "name": "nowhere"})),
                "an unknown id": (METADATA, 12, metadata(unknown)),
                "an unknown id and a name": (METADATA, 12, metadata({**unknown, "name": "one"})),
                "an unknown id, asking for operations": (METADATA, 12, metadata(unknown, asks=True)),
                "ids": (METADATA, 13, metadata({**one, "name": ""}, {**two, "name": ""})),
                "an id twice": (METADATA, 12, metadata({**one, "name": ""}, {**one, "name": ""})),
                "an id and a name": (METADATA, 12, metadata({**one, "name": ""}, {**named, "name": "two"})),
                "a name twice": (METADATA, 12, metadata(named, named)),
                "an empty name": (METADATA, 12, metadata(nothing)),
                "a topic that begins with two underscores": (METADATA, 12, metadata({**named, "name": "__users"})),
                "the topic of Kafka's controllers": (
                    METADATA,
                    12,
                    metadata({**named, "name": "__cluster_metadata"}, may_create=True),
                ),
                "an illegal name": (METADATA, 12, metadata({**named, "name": "bad name"}, asks=True, may_create=True)),
                **{
                    f"version {version}": (METADATA, version, metadata(named, {**named, "name": "gone"}, asks=True))
                    for version in range(4, 14)  # older ones have no field that forbids to make the topic
                },
            },
        )

    await asyncio.to_thread(compare)


async def test_metadata_by_id_before_version_12_is_refused_topic_by_topic(sides: list[Side]) -> None:
    """Kafka leaves the brokers out of that answer too; a client may need them."""

    def compare() -> None:
        both_make(sides, "one", "two")
        for version in (10, 11):
            asked = metadata({"topic_id": id_of("one"), "name": ""}, {"topic_id": id_of("two"), "name": "two"})
            ours, theirs = (side.ask(METADATA, version, filled(asked, side))["topics"] for side in sides)
            assert ours == theirs
            assert {topic["error_code"] for topic in ours} == {"invalid_request"}

    await asyncio.to_thread(compare)


async def test_metadata_that_creates_a_topic(sides: list[Side]) -> None:
    def compare(version: int) -> None:
        name = f"made-by-metadata-{version}"
        asked = metadata({"name": name, "topic_id": None}, may_create=True)
        same_answers(sides, {"while the topic is made": (METADATA, version, asked)})
        for side in sides:
            eventually_sync(lambda side=side: has_leaders(side, name))  # type: ignore[misc]

    for version in (12, 4):
        await asyncio.to_thread(compare, version)


async def test_internal_topics_are_those_of_kafka_and_no_others(sides: list[Side]) -> None:
    """How many partitions an internal topic has cannot be changed here: groups and transactions
    would be looked for at other places.
    """

    def compare() -> None:
        both_make(sides, "__users")
        for side in sides:
            eventually_sync(lambda side=side: has_coordinators(side))  # type: ignore[misc]
        cases: dict[str, tuple[int, int, Mapping[str, Any]]] = {}
        for name in ("__users", "__consumer_offsets", "__transaction_state", "__share_group_state"):
            deletion = {"name": name, "partitions": [{"partition_index": 0, "offset": 0}]}
            cases[f"records of {name}"] = (DELETE_RECORDS, 2, {"topics": [deletion], "timeout": timedelta(seconds=10)})
        growth = {"topics": [{"name": "__users", "count": 2, "assignments": None}], "timeout": timedelta(seconds=10)}
        cases["partitions of __users"] = (CREATE_PARTITIONS, 3, {**growth, "validate_only": False})
        made = {"name": "__cluster_metadata", "num_partitions": 1, "replication_factor": 1}
        creation = {"topics": [{**made, "assignments": [], "configs": []}], "timeout": timedelta(seconds=10)}
        cases["making __cluster_metadata"] = (CREATE_TOPICS, 7, {**creation, "validate_only": False})
        same_answers(sides, cases)
        for name in ("__users", "__consumer_offsets", "__transaction_state", "__share_group_state"):
            ours, theirs = (written(side, name) for side in sides)
            assert ours == theirs, name

    def has_coordinators(side: Side) -> bool:
        with RawClient(side.port) as client:
            for kind in (0, 1):
                client.call(FIND_COORDINATOR, 4, {"key_type": kind, "coordinator_keys": ["k"]})
            client.metadata("__share_group_state", may_create=True)
        return has_leaders(side, "__consumer_offsets", "__transaction_state", "__share_group_state")

    def written(side: Side, topic: str) -> ErrorCode:
        with RawClient(side.port) as client:
            return ErrorCode(client.produce(topic, batch([b"value"])).error_code)

    await asyncio.to_thread(compare)


async def test_deletions_that_name_topics_ambiguously(sides: list[Side]) -> None:
    def compare() -> None:
        both_make(sides, "one", "two")
        by_id, by_name = {"name": None, "topic_id": id_of("one")}, {"name": "one", "topic_id": None}

        def deletion(*topics: dict[str, Any]) -> tuple[int, int, dict[str, Any]]:
            return DELETE_TOPICS, 6, {"topics": topics, "timeout": timedelta(seconds=10)}

        same_answers(
            sides,
            {
                "an id and a name": deletion({**by_id, "name": "one"}),
                "an id and an empty name": deletion({**by_id, "name": ""}),
                "neither": deletion({"name": None, "topic_id": None}),
                "an empty name": deletion({"name": "", "topic_id": None}),
                "an id twice": deletion(by_id, by_id),
                "a name twice": deletion(by_name, by_name),
                "an id and its name": deletion(by_id, by_name),
                "an unknown id": deletion({"name": None, "topic_id": UNKNOWN_ID}),
                "a name twice in version 5": (
                    DELETE_TOPICS,
                    5,
                    {"topic_names": ["one", "one"], "timeout": timedelta(seconds=10)},
                ),
                "one of two": deletion(by_name, by_name, {"name": "two", "topic_id": None}),
                "what none of these deleted": deletion(by_id),
            },
        )

    await asyncio.to_thread(compare)
