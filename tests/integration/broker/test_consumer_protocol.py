"""Groups of the newer protocol (KIP-848): unmodified librdkafka and Java consumers, Kafka's own
tools, a coordinator that is killed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta

import pytest
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta

from tests.support.clients.group_members import GroupMember
from tests.support.clients.java_clients import CONSUMER_GROUPS, DUMP_LOG, KafkaPrograms
from tests.support.clients.kafka_clients import Record, librdkafka_produce
from tests.support.clients.raw_client import RawClient
from tests.support.eventually import eventually_sync
from tests.support.lone_brokers.lone_broker_process import LoneBroker

pytestmark = pytest.mark.integration

SETTINGS = {
    "group_consumer_min_heartbeat_interval_ms": "200",
    "group_consumer_min_session_timeout_ms": "3000",
    "group_consumer_heartbeat_interval_ms": "200",
    "group_initial_rebalance_delay_ms": "0",
    "offsets_topic_num_partitions": "3",
}


@pytest.fixture
def broker(start_broker: Callable[..., LoneBroker]) -> LoneBroker:
    return start_broker(**SETTINGS)


CONSUMER_GROUP_HEARTBEAT = 68
REBALANCE_TIMEOUT = i32Timedelta.parse(timedelta(minutes=1))


@pytest.fixture
def topic(broker: LoneBroker) -> str:
    return filled_topic(broker)


def filled_topic(broker: LoneBroker) -> str:
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 4, 1)])[name].result(120)
    produce(broker, name, 0, 40)
    return name


def produce(broker: LoneBroker, topic: str, first: int, end: int) -> None:
    records = [Record(value=b"v%d" % number, partition=number % 4) for number in range(first, end)]
    librdkafka_produce(broker.bootstrap, topic, records)


def distinct(*members: GroupMember) -> set[bytes]:
    """The records read so far; after a rebalance before the first commit, members read some records
    again.
    """
    for member in members:
        member.poll()
    return {value for member in members for value in member.values}


def sizes(*members: GroupMember) -> list[int]:
    return [len(member.partitions()) for member in members]


def have_read_theirs(*members: GroupMember) -> bool:
    """Whether each member itself has read what it owns: before that it has nothing to commit."""
    for member in members:
        member.poll()
    positions = [place.offset for member in members for place in member.consumer.position(member.consumer.assignment())]
    return positions == [10, 10, 10, 10]


class BareMember:
    """A member that heartbeats when the test says so."""

    def __init__(self, client: RawClient, topic: str) -> None:
        self._client, self._topic, self._epoch = client, topic, 0

    def beat(self) -> None:
        """Join, or send a heartbeat."""
        values = {
            "group_id": "g",
            "member_id": "bare",
            "member_epoch": self._epoch,
            "rebalance_timeout": REBALANCE_TIMEOUT,
            "subscribed_topic_names": (self._topic,),
            "topic_partitions": (),
        }
        answer = self._client.call(CONSUMER_GROUP_HEARTBEAT, 1, values)
        self._epoch = answer.member_epoch if answer.error_code is ErrorCode.none else 0


def test_members_share_a_topic_and_take_over_from_each_other(broker: LoneBroker, topic: str) -> None:
    first = GroupMember(broker.bootstrap, topic, "g")
    eventually_sync(lambda: first.poll() == 40)
    first.consumer.commit(asynchronous=False)
    second = GroupMember(broker.bootstrap, topic, "g")
    eventually_sync(lambda: sizes(first, second) == [2, 2])
    assert not set(first.partitions()) & set(second.partitions())
    produce(broker, topic, 40, 80)
    eventually_sync(lambda: first.poll() + second.poll() == 80)
    assert sorted(first.values + second.values) == sorted(b"v%d" % number for number in range(80))
    second.consumer.commit(asynchronous=False)
    first.close()
    eventually_sync(lambda: len(second.partitions()) == 4)
    second.close()


def test_a_member_that_unsubscribes_is_replaced(broker: LoneBroker, topic: str) -> None:
    leaving, other = GroupMember(broker.bootstrap, topic, "g"), GroupMember(broker.bootstrap, topic, "g")
    eventually_sync(lambda: sizes(leaving, other) == [2, 2])
    leaving.consumer.unsubscribe()
    eventually_sync(lambda: sizes(leaving, other) == [0, 4])
    leaving.close()
    other.close()


def test_a_member_that_falls_silent_is_replaced_after_its_session(start_broker: Callable[..., LoneBroker]) -> None:
    broker = start_broker(**SETTINGS, group_consumer_session_timeout_ms="3000")
    topic = filled_topic(broker)
    other = GroupMember(broker.bootstrap, topic, "g")
    with RawClient(broker.port) as client:
        silent = BareMember(client, topic)

        def is_shared() -> bool:
            silent.beat()
            return len(other.partitions()) == 2

        eventually_sync(is_shared)
        eventually_sync(lambda: len(other.partitions()) == 4)
    other.close()


def test_a_regular_expression_finds_topics_that_come_later(broker: LoneBroker, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    member = GroupMember(broker.bootstrap, f"^{topic}.*", "g")
    eventually_sync(lambda: member.poll() == 40)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(f"{topic}-later", 4, 1)])[f"{topic}-later"].result(120)
    produce(broker, f"{topic}-later", 40, 60)
    eventually_sync(lambda: member.poll() == 60)
    assert len(member.partitions()) == 8
    member.close()


def test_members_go_on_after_the_coordinator_was_killed(broker: LoneBroker, topic: str) -> None:
    members = [
        GroupMember(broker.bootstrap, topic, "g"),
        GroupMember(broker.bootstrap, topic, "g", group_instance_id="fixed"),
    ]
    eventually_sync(lambda: sizes(*members) == [2, 2])
    eventually_sync(lambda: len(distinct(*members)) == 40 and have_read_theirs(*members))
    members[0].consumer.commit(asynchronous=False)
    members[1].consumer.commit(asynchronous=False)
    before = [member.partitions() for member in members]
    broker.process.kill()
    broker.restart()
    produce(broker, topic, 40, 80)
    eventually_sync(lambda: len(distinct(*members)) == 80)
    assert [member.partitions() for member in members] == before
    for member in members:
        member.close()


def test_an_empty_group_changes_its_protocol_and_keeps_its_offsets(broker: LoneBroker, topic: str) -> None:
    for protocol, end in (("classic", 40), ("consumer", 60), ("classic", 80)):
        if end > 40:
            produce(broker, topic, end - 20, end)
        member = GroupMember(broker.bootstrap, topic, "g", protocol=protocol)
        wanted = 40 if end == 40 else 20
        eventually_sync(lambda member=member, wanted=wanted: member.poll() == wanted)
        member.consumer.commit(asynchronous=False)
        member.close()


def test_a_topic_is_copied_in_transactions_by_a_member(broker: LoneBroker, topic: str) -> None:
    from tests.support.clients.transactional_clients import WITHIN_S, transactional_producer

    member = GroupMember(broker.bootstrap, topic, "g", isolation_level="read_committed")
    eventually_sync(lambda: member.poll() == 40)
    producer = transactional_producer(broker.bootstrap, "copier")
    producer.begin_transaction()
    positions = member.consumer.position(member.consumer.assignment())
    producer.send_offsets_to_transaction(positions, member.consumer.consumer_group_metadata(), WITHIN_S)
    producer.commit_transaction(WITHIN_S)
    found = member.consumer.committed(member.consumer.assignment(), WITHIN_S)
    assert [position.offset for position in found] == [10, 10, 10, 10]
    member.close()


def test_javas_consumer_and_group_tool_know_the_protocol(
    broker: LoneBroker, topic: str, kafka_programs: KafkaPrograms
) -> None:
    values = kafka_programs.consume(broker.bootstrap, topic, 40, group="java", settings={"group.protocol": "consumer"})
    assert sorted(values) == sorted(b"v%d" % number for number in range(40))
    to_broker = ("--bootstrap-server", broker.bootstrap)
    listed = kafka_programs.run(CONSUMER_GROUPS, *to_broker, "--list", "--type", "consumer", "--state")
    assert [line.split() for line in listed.decode().splitlines()[1:] if line] == [["java", "Consumer", "Empty"]]
    member = GroupMember(broker.bootstrap, topic, "java")
    eventually_sync(lambda: len(member.partitions()) == 4)
    described = kafka_programs.run(
        CONSUMER_GROUPS, *to_broker, "--describe", "--group", "java", "--members", "--verbose"
    )
    assert f"{topic}:0,1,2,3".encode() in described
    member.close()


def test_kafkas_dump_tool_reads_the_records_of_groups_and_transactions(
    broker: LoneBroker, topic: str, kafka_programs: KafkaPrograms
) -> None:
    member = GroupMember(broker.bootstrap, topic, "g")
    eventually_sync(lambda: len(member.partitions()) == 4)
    member.close()
    printed = ""
    for segment in broker.data.glob("__consumer_offsets-*/*.log"):
        if segment.stat().st_size:
            printed += kafka_programs.run(DUMP_LOG, "--files", str(segment), "--offsets-decoder").decode()
    for kind in (3, 5, 6, 7, 8):
        assert f'{{"type":"{kind}","data":{{"groupId":"g"' in printed
    assert '"serverAssignor":null' in printed
    assert "topicPartitions" in printed


def test_a_consumer_that_only_assigns_keeps_its_offsets(broker: LoneBroker, topic: str) -> None:
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": broker.bootstrap, "group.id": "assigns", "group.protocol": "consumer"}
    for offset in (3, 7):
        consumer = Consumer(settings)
        consumer.assign([TopicPartition(topic, 0, 0)])
        consumer.commit(offsets=[TopicPartition(topic, 0, offset)], asynchronous=False)
        (found,) = consumer.committed([TopicPartition(topic, 0)], 30)
        assert found.offset == offset
        consumer.close()


def test_patterns_are_those_of_re2(broker: LoneBroker, topic: str) -> None:
    member = GroupMember(broker.bootstrap, f"^.*[a-z]+-.*[0-9a-f]+.*{topic[-4:]}$", "g")
    eventually_sync(lambda: member.poll() == 40)
    member.close()


@pytest.mark.parametrize("polls", [0, 1, 5])
def test_a_member_that_subscribes_again_at_once_goes_on(broker: LoneBroker, topic: str, polls: int) -> None:
    """The heartbeat that leaves and the one that joins anew are on their way together."""
    member = GroupMember(broker.bootstrap, topic, "g")
    for _ in range(5):
        for _ in range(polls):
            member.consumer.poll(0.02)
        member.consumer.unsubscribe()
        member.consumer.subscribe([topic])
    eventually_sync(lambda: len(member.partitions()) == 4)
    eventually_sync(lambda: member.poll() >= 40)
    # the member still sends heartbeats: it makes room for another one
    other = GroupMember(broker.bootstrap, topic, "g")
    eventually_sync(lambda: sizes(member, other) == [2, 2])
    member.close()
    other.close()
