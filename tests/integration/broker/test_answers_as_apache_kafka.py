"""Requests on which this broker and a real Apache Kafka must give the same answers: both are asked
the same.
"""

from __future__ import annotations

import asyncio
import struct
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer
from kio.schema.errors import ErrorCode
from kio.static.primitive import i64Timedelta

from runtime.clock import SystemClock
from tests.support.clients.raw_client import RawClient
from tests.support.disks.log_batches import batch
from tests.support.eventually import eventually_sync
from tests.support.lone_brokers.two_brokers import Side, differences, filled
from tests.support.processes.apache_kafka import ApacheKafka
from tests.support.sites.site_broker import SiteBroker
from wire.batches.records import Record, encode_batch
from wire.client.requests.fetch_requests import FetchRequest, PartitionToFetch, TopicToFetch
from wire.protocol.messages.produce_codec import PartitionRecords, TopicRecords

pytestmark = pytest.mark.integration

CREATE_TOPICS, DELETE_RECORDS, CREATE_PARTITIONS = 19, 21, 37
METADATA, DELETE_TOPICS, DESCRIBE_CLUSTER, DESCRIBE_TOPIC_PARTITIONS = 3, 20, 60, 75
FIND_COORDINATOR, OFFSET_COMMIT, DESCRIBE_GROUPS, CONSUMER_GROUP_DESCRIBE = 10, 8, 15, 69
PRODUCE, SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE, UPDATE_FEATURES = 0, 17, 18, 36, 57
DESCRIBE_CONFIGS, TOPIC_RESOURCE, BROKER_RESOURCE = 32, 2, 4
DESCRIBE_QUORUM, DESCRIBE_SHARE_GROUP_OFFSETS = 55, 90
NOT_OFFERED = {
    *(55, 80, 81),  # KRaft's quorum
    *(76, 77, 78, 79),  # share groups
    *(83, 84, 85, 86, 87),  # the state of share groups, which brokers ask each other for
    *(88, 89),  # streams groups
    *(90, 91, 92),  # offsets of share groups
}
"""What Apache Kafka 4.3.1 advertises and this broker does not have."""
UNKNOWN_ID = uuid.uuid4()

Cases = Mapping[str, tuple[int, int, Mapping[str, Any]]]


@pytest.fixture
async def sides(apache_kafka: ApacheKafka, zookeeper_connect: str, tmp_path: Path) -> AsyncIterator[list[Side]]:
    """This broker, and the other one."""
    running = SiteBroker(zookeeper_connect, tmp_path / "log")
    await running.start()
    found = [Side(running.bootstrap), Side(apache_kafka.bootstrap_servers)]
    yield found
    await asyncio.to_thread(found[1].remove_topics)
    await running.stop()


def same_answers(sides: list[Side], cases: Cases) -> None:
    """Fails with ours and Apache Kafka's answer wherever they are not the same."""
    found = differences(sides, cases)
    shown = [f"{name}\n  ours  {ours}\n  Kafka {theirs}" for name, (ours, theirs) in found.items()]
    assert not shown, "\n".join(shown)


def id_of(name: str) -> Callable[[Side], uuid.UUID]:
    return lambda side: side.ids[name]


def metadata(*topics: dict[str, Any], asks: bool = False, may_create: bool = False) -> dict[str, Any]:
    return {
        "topics": topics,
        "allow_auto_topic_creation": may_create,
        "include_topic_authorized_operations": asks,
        "include_cluster_authorized_operations": asks,
    }


def both_make(sides: list[Side], *names: str, configs: Mapping[str, str] | None = None) -> None:
    """Create the topics at both, and wait until their brokers have them."""
    for side in sides:
        make(side, *names, configs=configs)


def make(side: Side, *names: str, configs: Mapping[str, str] | None = None) -> None:
    """Create the topics and wait until the broker has them: a node of Apache Kafka answers the
    creation before its own metadata has it.
    """
    side.make_topics(*names, configs=configs)
    eventually_sync(lambda: has_leaders(side, *names))


def has_leaders(side: Side, *names: str) -> bool:
    """Whether the broker leads all the topics, and not former ones of the same names: Apache
    Kafka's metadata has a topic before its log is there.
    """
    with RawClient(side.port) as client:
        for topic in client.metadata(*names).topics:
            if not topic.partitions or topic.topic_id != side.ids.get(topic.name, topic.topic_id):
                return False
        wanted = [TopicToFetch(name, None, [PartitionToFetch(0, 0, 1)]) for name in names]
        read = client.fetch(FetchRequest(wanted, max_wait_ms=0)).topics
    return all(partition.error_code == ErrorCode.none for topic in read for partition in topic.partitions)


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


async def test_metadata_that_makes_a_topic(sides: list[Side]) -> None:
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


async def test_topics_to_delete_that_are_named_unclearly(sides: list[Side]) -> None:
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


async def test_authorized_operations_are_all_there_are_where_they_are_asked_for(sides: list[Side]) -> None:
    def compare() -> None:
        both_make(sides, "one")
        for side in sides:
            eventually_sync(lambda side=side: commits(side))  # type: ignore[misc]
        cluster = {"endpoint_type": 1, "include_fenced_brokers": False, "include_cluster_authorized_operations": False}
        paged = {"response_partition_limit": 10, "cursor": None}
        cases: dict[str, tuple[int, int, Mapping[str, Any]]] = {
            "the controllers": (DESCRIBE_CLUSTER, 1, {**cluster, "endpoint_type": 2}),
            "topics in pages": (
                DESCRIBE_TOPIC_PARTITIONS,
                0,
                {"topics": [{"name": "one"}, {"name": "gone"}, {"name": "bad name"}], **paged},
            ),
        }
        for asks in (True, False):
            groups = {"include_authorized_operations": asks}
            for version in (0, 1, 2):
                asked = {**cluster, "include_cluster_authorized_operations": asks}
                cases[f"the cluster v{version} {asks}"] = (DESCRIBE_CLUSTER, version, asked)
            for version in (3, 5, 6):
                asked = {**groups, "groups": ["unknown", "simple"]}
                cases[f"groups v{version} {asks}"] = (DESCRIBE_GROUPS, version, asked)
            asked = {**groups, "group_ids": ["unknown", "simple"]}
            cases[f"consumer groups {asks}"] = (CONSUMER_GROUP_DESCRIBE, 1, asked)
        same_answers(sides, cases)

    def commits(side: Side) -> bool:
        """Whether the group has a commit now: its coordinator's topic is made by the first question
        for it.
        """
        partition = {
            "partition_index": 0,
            "committed_offset": 1,
            "committed_leader_epoch": -1,
            "committed_metadata": "",
        }
        group = {"group_id": "simple", "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None}
        with RawClient(side.port) as client:
            client.call(FIND_COORDINATOR, 4, {"key_type": 0, "coordinator_keys": ["simple", "unknown"]})
            answer = client.call(OFFSET_COMMIT, 8, {**group, "topics": [{"name": "one", "partitions": [partition]}]})
            described = client.call(DESCRIBE_GROUPS, 5, {"groups": ["unknown"], "include_authorized_operations": False})
        return bool(answer.topics[0].partitions[0].error_code == 0 and described.groups[0].error_code == 0)

    await asyncio.to_thread(compare)


async def test_what_is_advertised_and_what_is_refused(sides: list[Side]) -> None:
    def compare() -> None:
        ours, theirs = (advertised(side) for side in sides)
        assert {key: versions for key, versions in ours.items() if theirs.get(key) != versions} == {}
        assert theirs.keys() - ours.keys() == NOT_OFFERED
        for version in (0, 1, 2):  # listed, and refused (KAFKA-18659)
            assert [is_closed_by(side, PRODUCE, version) for side in sides] == [True, True]

    def advertised(side: Side) -> dict[int, tuple[int, int]]:
        software = {"client_software_name": "raw", "client_software_version": "1"}
        with RawClient(side.port) as client:
            answer = client.call(API_VERSIONS, 3, software)
        assert not [feature for feature in answer.supported_features if not feature.min_version]  # KAFKA-17011
        return {found.api_key: (found.min_version, found.max_version) for found in answer.api_keys}

    def is_closed_by(side: Side, api_key: int, version: int) -> bool:
        with RawClient(side.port) as client:
            client.send_bytes(struct.pack(">ihhih", 10, api_key, version, 1, -1))
            return not client.read_frame()

    await asyncio.to_thread(compare)


async def test_an_api_that_is_not_offered_is_refused_in_its_own_response(sides: list[Side]) -> None:
    """So that a client which does not look at what is advertised keeps its connection, and learns
    why it gets nothing.
    """

    def ask() -> None:
        voters = {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}
        quorum = sides[0].ask(DESCRIBE_QUORUM, 2, voters)
        assert quorum["error_code"] == "unsupported_version"
        group = {"group_id": "sharing", "topics": None}
        shared = sides[0].ask(DESCRIBE_SHARE_GROUP_OFFSETS, 0, {"groups": [group]})
        assert [(found["group_id"], found["error_code"]) for found in shared["groups"]] == [
            ("sharing", "unsupported_version")
        ]

    await asyncio.to_thread(ask)


async def test_logins_are_refused_and_features_are_fixed(sides: list[Side]) -> None:
    def compare() -> None:
        cases: dict[str, tuple[int, int, Mapping[str, Any]]] = {
            "a handshake": (SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"}),
            "a login": (SASL_AUTHENTICATE, 2, {"auth_bytes": b"\0user\0password"}),
        }
        updates = {
            "the level that is in force": ("group.version", 1, 1),
            "a level that is too high": ("group.version", 2, 1),
            "a level below zero": ("group.version", -1, 1),
            "a lower level": ("transaction.version", 1, 1),
            "an unknown feature": ("nothing.version", 1, 1),
            "no level of an unknown feature": ("nothing.version", 0, 2),
        }
        for name, (feature, level, kind) in updates.items():
            for version in (0, 1, 2):
                update = {
                    "feature": feature,
                    "max_version_level": level,
                    "upgrade_type": kind,
                    "allow_downgrade": False,
                }
                asked = {"timeout": timedelta(seconds=10), "feature_updates": [update], "validate_only": True}
                cases[f"{name} v{version}"] = (UPDATE_FEATURES, version, asked)
        for kind in (0, 9):
            update = {"feature": "group.version", "max_version_level": 1, "upgrade_type": kind}
            asked = {"timeout": timedelta(seconds=10), "feature_updates": [update], "validate_only": True}
            cases[f"upgrade type {kind}"] = (UPDATE_FEATURES, 2, asked)
        same_answers(sides, cases)
        update = {"feature": "group.version", "max_version_level": 0, "upgrade_type": 2}
        asked = {"timeout": timedelta(seconds=10), "feature_updates": [update], "validate_only": True}
        assert sides[0].ask(UPDATE_FEATURES, 2, asked)["error_code"] == "invalid_update_version"

    await asyncio.to_thread(compare)


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
        """Each config's type and default, and whether it is explained when that is asked for, and
        not when it is not.
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


async def test_configs_of_brokers_are_explained_when_that_is_asked_for(sides: list[Side]) -> None:
    def unexplained(side: Side, *, is_asked: bool) -> set[str]:
        resource = {"resource_type": BROKER_RESOURCE, "resource_name": "1", "configuration_keys": None}
        asked = {"resources": [resource], "include_synonyms": False, "include_documentation": is_asked}
        with RawClient(side.port) as client:
            configs = client.call(DESCRIBE_CONFIGS, 4, asked).results[0].configs
        assert len(configs) > 50
        return {config.name for config in configs if bool(config.documentation) is not is_asked}

    for is_asked in (True, False):
        assert await asyncio.to_thread(unexplained, sides[0], is_asked=is_asked) == set()


async def test_clients_without_an_identity_get_no_delegation_tokens(sides: list[Side]) -> None:
    """Error codes alone: kio does not read the timestamps of Apache Kafka's refusals."""
    period = i64Timedelta.parse(timedelta(milliseconds=-1))
    requests: dict[int, dict[str, Any]] = {
        38: {"renewers": [], "max_lifetime": period},
        39: {"hmac": b"none", "renew_period": period},
        40: {"hmac": b"none", "expiry_time_period": period},
        41: {"owners": None},
    }

    def error_code(side: Side, api_key: int) -> int:
        with RawClient(side.port) as client:
            client.send_call(api_key, 1, requests[api_key])
            return int.from_bytes(client.read_frame()[4:6])

    def compare() -> None:
        for api_key in requests:
            assert [error_code(side, api_key) for side in sides] == [64, 64]  # DELEGATION_TOKEN_REQUEST_NOT_ALLOWED

    await asyncio.to_thread(compare)
