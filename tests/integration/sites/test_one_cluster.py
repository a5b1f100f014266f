"""A routed pair is one cluster: after any broker has confirmed a change, every broker of both sites
answers the next request with that change.

Changes go through a random broker; all others are asked at once and once, without a retry. A
timeout that a broker itself reports (the other site did not answer within a second, on a busy
machine) does not count, and the step is repeated.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from typing import Any, TypeVar

import pytest
from confluent_kafka import Consumer, KafkaException, TopicCollection, TopicPartition
from confluent_kafka import admin as librdkafka
from kafka.admin import KafkaAdminClient, NewPartitions, NewTopic
from kio.schema.errors import ErrorCode

from runtime.addresses import HostPort, parse_host_port
from tests.support.clients.raw_client import RawClient
from tests.support.disks.log_batches import batch
from tests.support.embedded.embedded_sites import EmbeddedSites, SitesStarter
from tests.support.eventually import eventually_sync
from wire.client.connection import ConnectionOptions
from wire.client.raw_client import KafkaClient
from wire.client.requests.group_config_requests import group_configs

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

SITES = ("a", "b")
BROKERS = 2
WITHIN_S = 120
ROUNDS = 6
LIST_OFFSETS, CREATE_TOPICS, DELETE_TOPICS, DELETE_RECORDS, DESCRIBE_CONFIGS, CREATE_PARTITIONS = 2, 19, 20, 21, 32, 37
ELECT_LEADERS, ALTER_CONFIGS, ALTER_REASSIGNMENTS, DESCRIBE_PARTITIONS = 43, 44, 45, 75
TOPIC_RESOURCE, GROUP_RESOURCE, SET, EARLIEST = 2, 32, 0, -2
GIVEN_UP = re.compile(
    "responses do not wait|response does not wait|gets no report|could not be forwarded.*no answer within"
    "|changes could not be reported to a broker"
)
TIMEOUT = timedelta(seconds=WITHIN_S)
NOTHING_MORE = {"allow_auto_topic_creation": False, "include_topic_authorized_operations": False}

Result = TypeVar("Result")


class Pair:
    """Two sites of two brokers each, of which all are known to all."""

    def __init__(self, sites: EmbeddedSites) -> None:
        self.sites = sites
        self.addresses = {site: sites.bootstrap(site).split(",") for site in SITES}
        self.brokers = [parse_host_port(address) for site in SITES for address in self.addresses[site]]
        self.chance = random.Random(4)
        eventually_sync(lambda: all(len(self.metadata(broker).brokers) == 2 * BROKERS for broker in self.brokers))

    def at(self, broker: HostPort) -> RawClient:
        """A new connection to this very broker."""
        return RawClient(broker.port)

    def metadata(self, broker: HostPort, *topics: str) -> Any:
        """The metadata of this broker."""
        with self.at(broker) as client:
            return client.metadata(*topics)

    def some(self) -> HostPort:
        """Any broker."""
        return self.chance.choice(self.brokers)

    def call(self, api_key: int, version: int, values: Mapping[str, Any], broker: HostPort | None = None) -> Any:
        """A request to this broker, or to any."""
        with self.at(broker or self.some()) as client:
            return client.call(api_key, version, values)

    def given_up(self) -> int:
        """How often brokers have logged that they went on without the other site."""
        logs = [self.sites.broker(site, index).log_text() for site in SITES for index in range(BROKERS)]
        return sum(len(GIVEN_UP.findall(text)) for text in logs)

    def counted(self, act: Callable[[], Result]) -> Result:
        """The act's result after the other site has answered all brokers."""
        while True:
            before = self.given_up()
            try:
                outcome = act()
            except (AssertionError, KafkaException):
                if self.given_up() == before:
                    raise
            else:
                if self.given_up() == before:
                    return outcome

    # --- changes, each through any broker

    def create(self, topic: str, partitions: int = 2, factor: int = 2, broker: HostPort | None = None) -> None:
        wanted = {"name": topic, "num_partitions": partitions, "replication_factor": factor}
        values = {"topics": [{**wanted, "assignments": [], "configs": []}], "timeout": TIMEOUT, "validate_only": False}
        (result,) = self.call(CREATE_TOPICS, 7, values, broker).topics
        assert result.error_code == ErrorCode.none, result

    def grow(self, topic: str, total: int) -> None:
        wanted = [{"name": topic, "count": total, "assignments": None}]
        values = {"topics": wanted, "timeout": TIMEOUT, "validate_only": False}
        (result,) = self.call(CREATE_PARTITIONS, 3, values).results
        assert result.error_code == ErrorCode.none, result

    def alter(self, topic: str, name: str, value: str) -> None:
        config = {"name": name, "config_operation": SET, "value": value}
        resource = {"resource_type": TOPIC_RESOURCE, "resource_name": topic, "configs": [config]}
        (result,) = self.call(ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False}).responses
        assert result.error_code == ErrorCode.none, result

    def delete(self, topic: str) -> None:
        values = {"topics": [{"name": topic, "topic_id": None}], "timeout": TIMEOUT}
        (result,) = self.call(DELETE_TOPICS, 6, values).responses
        assert result.error_code == ErrorCode.none, result

    # --- what every broker says

    def shapes(self, topic: str) -> list[Any]:
        """Leader by partition, as each broker answers a Metadata request that names the topic."""
        return [_shape(self.metadata(broker, topic).topics[0]) for broker in self.brokers]

    def listed(self, topic: str) -> list[bool]:
        """Whether the topic is among all topics, by broker."""
        names = ([found.name for found in self._all_topics(broker)] for broker in self.brokers)
        return [topic in found for found in names]

    def _all_topics(self, broker: HostPort) -> Any:
        return self.call(3, 12, {"topics": None, **NOTHING_MORE}, broker).topics

    def described(self, topic: str) -> list[Any]:
        """The same by DescribeTopicPartitions, which newer Java clients ask."""
        values = {"topics": [{"name": topic}], "response_partition_limit": 2000, "cursor": None}
        found = (self.call(DESCRIBE_PARTITIONS, 0, values, broker).topics[0] for broker in self.brokers)
        return [_shape(topic) for topic in found]

    def configs(self, topic: str, name: str) -> set[str]:
        """A config of the topic, as brokers say; asked together with an internal topic, which each
        site has for itself.
        """
        resources = [
            {"resource_type": TOPIC_RESOURCE, "resource_name": asked, "configuration_keys": [name]}
            for asked in (topic, "__consumer_offsets")
        ]
        values = {"resources": resources, "include_synonyms": False, "include_documentation": False}
        found = set()
        for broker in self.brokers:
            by_name = {
                result.resource_name: result for result in self.call(DESCRIBE_CONFIGS, 4, values, broker).results
            }
            assert by_name[topic].error_code == ErrorCode.none, by_name[topic]
            found.add(by_name[topic].configs[0].value)
        return found

    def leader(self, topic: str, partition: int = 0) -> HostPort:
        """The partition's leader, as any broker reports it."""
        answer = self.metadata(self.some(), topic)
        leader = answer.topics[0].partitions[partition].leader_id
        (address,) = [(broker.host, broker.port) for broker in answer.brokers if broker.node_id == leader]
        return HostPort(*address)


def _shape(topic: Any) -> Any:
    """Leader by partition, or the error."""
    if topic.error_code != ErrorCode.none:
        return topic.error_code
    unled = [partition for partition in topic.partitions if partition.error_code != ErrorCode.none]
    return unled or {partition.partition_index: partition.leader_id for partition in topic.partitions}


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """One pair for all tests."""
    starter = SitesStarter(tmp_path_factory.mktemp("pair"))
    try:
        yield Pair(starter("--brokers", str(BROKERS), "--blacklist", "home-.*"))
    finally:
        starter.end_all()


def agreed(found: list[Any]) -> Any:
    """The view that all brokers share. Raises AssertionError if they differ."""
    assert all(shape == found[0] for shape in found), found
    return found[0]


@pytest.mark.parametrize("prefix", ["carried", "home"])
def test_topics_are_made_grown_altered_and_deleted_at_any_broker_for_all_brokers(pair: Pair, prefix: str) -> None:
    numbers = iter(range(1000))

    def live_once() -> None:
        topic = f"{prefix}-{next(numbers)}"
        pair.create(topic)
        assert sorted(agreed(pair.shapes(topic))) == [0, 1]
        assert sorted(agreed(pair.described(topic))) == [0, 1]
        assert agreed(pair.listed(topic)) is True
        pair.alter(topic, "retention.ms", "1234567")
        assert pair.configs(topic, "retention.ms") == {"1234567"}
        pair.grow(topic, 5)
        assert sorted(agreed(pair.shapes(topic))) == [0, 1, 2, 3, 4]
        pair.delete(topic)
        assert agreed(pair.shapes(topic)) == ErrorCode.unknown_topic_or_partition
        assert agreed(pair.described(topic)) == ErrorCode.unknown_topic_or_partition
        assert agreed(pair.listed(topic)) is False

    for _ in range(ROUNDS):
        pair.counted(live_once)


def test_a_topic_of_either_site_cannot_be_made_twice(pair: Pair) -> None:
    numbers = iter(range(1000))

    def make_twice() -> None:
        topic = f"home-twice-{next(numbers)}"
        pair.create(topic)
        wanted = {"name": topic, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        for broker in pair.brokers:
            values = {"topics": [wanted], "timeout": TIMEOUT, "validate_only": False}
            (result,) = pair.call(CREATE_TOPICS, 7, values, broker).topics
            assert result.error_code == ErrorCode.topic_already_exists, result

    pair.counted(make_twice)


def test_a_topic_is_found_by_its_id_at_every_broker_and_gone_by_its_id_at_every_broker(pair: Pair) -> None:
    numbers = iter(range(1000))

    def ids(topic: str, topic_id: object) -> list[Any]:
        asked = {"topics": [{"name": "", "topic_id": topic_id}], **NOTHING_MORE}
        found = (pair.call(3, 12, asked, broker).topics[0] for broker in pair.brokers)
        return [(part.error_code, part.name == topic) for part in found]

    def live_once() -> None:
        topic = f"by-id-{next(numbers)}"
        pair.create(topic)
        topic_id = pair.metadata(pair.some(), topic).topics[0].topic_id
        assert agreed(ids(topic, topic_id)) == (ErrorCode.none, True)
        (result,) = pair.call(
            DELETE_TOPICS, 6, {"topics": [{"name": None, "topic_id": topic_id}], "timeout": TIMEOUT}
        ).responses
        assert result.error_code == ErrorCode.none, result
        assert agreed(ids(topic, topic_id)) == (ErrorCode.unknown_topic_id, False)

    for _ in range(2):
        pair.counted(live_once)


def test_changes_are_answered_while_the_sites_are_cut_off_and_known_to_all_brokers_afterwards(pair: Pair) -> None:
    network = pair.sites.network
    topics = [f"cut-off-{number}" for number in range(5)]
    network.cut(network.selected(), is_silent=True)
    try:
        for topic in topics:
            pair.create(topic, broker=parse_host_port(pair.addresses["a"][0]))
    finally:
        network.heal()
    for topic in topics:
        eventually_sync(lambda topic=topic: sorted(agreed(pair.shapes(topic))) == [0, 1])


def test_records_deleted_are_deleted_for_clients_of_every_broker(pair: Pair) -> None:
    numbers = iter(range(1000))

    def first_offset(topic: str, broker: HostPort) -> int:
        values = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic, "partitions": [
            {"partition_index": 0, "current_leader_epoch": -1, "timestamp": EARLIEST}]}]}  # fmt: skip
        (found,) = pair.call(LIST_OFFSETS, 6, values, broker).topics[0].partitions
        assert found.error_code == ErrorCode.none, found
        return int(found.offset)

    def live_once() -> None:
        topic = f"shortened-{next(numbers)}"
        pair.create(topic, partitions=1)
        with pair.at(pair.leader(topic)) as client:
            assert client.produce(topic, batch([b"1", b"2", b"3"])).error_code == ErrorCode.none
        values = {"topics": [{"name": topic, "partitions": [{"partition_index": 0, "offset": 2}]}], "timeout": TIMEOUT}
        (deleted,) = pair.call(DELETE_RECORDS, 2, values, pair.leader(topic)).topics[0].partitions
        assert (deleted.error_code, deleted.low_watermark) == (ErrorCode.none, 2)
        leaders = agreed(pair.shapes(topic))
        assert first_offset(topic, pair.leader(topic)) == 2, leaders

    for _ in range(2):
        pair.counted(live_once)


def test_leaders_elected_through_any_broker_are_named_by_every_broker(pair: Pair) -> None:
    numbers = iter(range(1000))

    def live_once() -> None:
        topic = f"elected-{next(numbers)}"
        pair.create(topic, partitions=1)
        (partition,) = pair.metadata(pair.some(), topic).topics[0].partitions
        turned = list(reversed(partition.replica_nodes))
        moved = {"topics": [{"name": topic, "partitions": [{"partition_index": 0, "replicas": turned}]}]}
        answer = pair.call(ALTER_REASSIGNMENTS, 0, {**moved, "timeout": TIMEOUT})
        assert answer.error_code == ErrorCode.none, answer
        (replicas,) = {tuple(found.partitions[0].replica_nodes) for found in _found(pair, topic)}
        assert replicas == tuple(turned)
        values = {
            "election_type": 0,
            "topic_partitions": [{"topic": topic, "partitions": [0]}],
            "timeout": TIMEOUT,
        }
        elected = pair.call(ELECT_LEADERS, 2, values)
        (result,) = elected.replica_election_results[0].partition_result
        assert result.error_code == ErrorCode.none, result
        assert agreed(pair.shapes(topic)) == {0: turned[0]}

    for _ in range(2):
        pair.counted(live_once)


def _found(pair: Pair, topic: str) -> list[Any]:
    return [pair.metadata(broker, topic).topics[0] for broker in pair.brokers]


def test_a_group_that_has_committed_through_one_site_is_found_through_the_other_at_once(pair: Pair) -> None:
    pair.create("grouped", partitions=1)
    for number in range(4):
        one, other = pair.chance.sample(SITES, 2)
        group = f"group-{number}"
        writer = Consumer({"bootstrap.servers": pair.sites.bootstrap(one), "group.id": group, "log_level": 2})
        reader = Consumer({"bootstrap.servers": pair.sites.bootstrap(other), "group.id": group, "log_level": 2})
        try:
            writer.commit(offsets=[TopicPartition("grouped", 0, number)], asynchronous=False)
            (committed,) = reader.committed([TopicPartition("grouped", 0)], timeout=WITHIN_S)
            assert (committed.error, committed.offset) == (None, number)
        finally:
            writer.close()
            reader.close()
        clients = librdkafka.AdminClient({"bootstrap.servers": pair.sites.bootstrap(other), "log_level": 2})
        listed = clients.list_consumer_groups().result(WITHIN_S)
        assert group in {found.group_id for found in listed.valid}
        clients.delete_consumer_groups([group])[group].result(WITHIN_S)
        again = librdkafka.AdminClient({"bootstrap.servers": pair.sites.bootstrap(one), "log_level": 2})
        assert group not in {found.group_id for found in again.list_consumer_groups().result(WITHIN_S).valid}


def test_librdkafka_and_kafka_python_go_on_at_the_other_site_with_what_they_did_at_one(pair: Pair) -> None:
    """Each step by a client of the other library that was bootstrapped at the other site: no step
    waits for anything.
    """
    numbers = iter(range(1000))
    rdkafka = {
        site: librdkafka.AdminClient({"bootstrap.servers": pair.sites.bootstrap(site), "log_level": 2})
        for site in SITES
    }
    python = {site: KafkaAdminClient(bootstrap_servers=pair.sites.bootstrap(site)) for site in SITES}

    def live_once() -> None:
        topic = f"shared-{next(numbers)}"
        one, other = pair.chance.sample(SITES, 2)
        python[one].create_topics([NewTopic(topic, 2, 2)])
        described = rdkafka[other].describe_topics(TopicCollection([topic]))[topic].result(WITHIN_S)
        assert len(described.partitions) == 2
        rdkafka[one].create_partitions([librdkafka.NewPartitions(topic, 3)])[topic].result(WITHIN_S)
        (found,) = python[other].describe_topics([topic])
        assert len(found["partitions"]) == 3
        python[other].create_partitions({topic: NewPartitions(4)})
        assert len(rdkafka[one].list_topics(topic, timeout=WITHIN_S).topics[topic].partitions) == 4
        rdkafka[other].delete_topics([topic])[topic].result(WITHIN_S)
        assert topic not in python[one].list_topics()

    try:
        for _ in range(ROUNDS):
            pair.counted(live_once)
    finally:
        for client in python.values():
            client.close()


def test_the_config_of_a_group_reaches_the_standby_and_holds_there(pair: Pair) -> None:
    name = "consumer.session.timeout.ms"
    config = {"name": name, "config_operation": SET, "value": "46000"}
    resource = {"resource_type": GROUP_RESOURCE, "resource_name": "configured", "configs": [config]}
    (result,) = pair.call(ALTER_CONFIGS, 1, {"resources": [resource], "validate_only": False}).responses
    assert result.error_code == ErrorCode.none, result

    async def at(site: str) -> dict[str, str]:
        """The configs in this site's own ZooKeeper. Other clients get those of the active site."""
        addresses = [parse_host_port(address) for address in pair.addresses[site]]
        client = KafkaClient(addresses, ConnectionOptions(), site_local=True)
        try:
            return (await group_configs(client)).get("configured", {})
        finally:
            await client.close()

    for site in SITES:
        eventually_sync(lambda site=site: asyncio.run(at(site)) == {name: "46000"})
