"""Consumer groups of unmodified clients: they join, share, commit, rebalance, and resume after the
coordinator's end.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import timedelta
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.support.clients.java_clients import CONSUMER_GROUPS, KafkaPrograms
from tests.support.clients.kafka_clients import (
    METADATA_AGE_MS_MAX,
    POLL_MS,
    Record,
    librdkafka_produce,
    sockets_left_open,
)
from tests.support.clients.raw_client import RawClient
from tests.support.eventually import eventually, eventually_sync
from tests.support.lone_brokers.lone_broker_process import LoneBroker

pytestmark = pytest.mark.integration

GROUP_SETTINGS = {
    "group_initial_rebalance_delay_ms": "100",
    "offsets_topic_num_partitions": "5",
    "offsets_retention_check_interval_ms": "100",
}
OFFSET_COMMIT = 8


@pytest.fixture
def broker(start_broker: Callable[..., LoneBroker]) -> LoneBroker:
    return start_broker(**GROUP_SETTINGS)


@pytest.fixture
def topic(broker: LoneBroker) -> str:
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, 4, 1)])[name].result(120)
    produce(broker, name, 0, 40)
    return name


def produce(broker: LoneBroker, topic: str, first: int, end: int) -> None:
    records = [Record(value=b"v%d" % number, partition=number % 4) for number in range(first, end)]
    librdkafka_produce(broker.bootstrap, topic, records)


class Member:
    """A librdkafka consumer of a group, polled by the test."""

    def __init__(self, broker: LoneBroker, topic: str, group: str, **settings: Any) -> None:
        from confluent_kafka import Consumer

        self.values: list[bytes] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 200,
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self.consumer.subscribe([topic])

    def poll(self) -> int:
        while (message := self.consumer.poll(0.05)) is not None:
            if message.error() is None:
                self.values.append(message.value())
        return len(self.values)

    def partitions(self) -> list[int]:
        return sorted(owned.partition for owned in self.consumer.assignment())

    def close(self) -> None:
        self.consumer.close()


@contextmanager
def members(*made: Member) -> Iterator[Sequence[Member]]:
    try:
        yield made
    finally:
        for member in made:
            member.close()


def numbers(count: int) -> set[bytes]:
    return {b"v%d" % number for number in range(count)}


def test_members_share_the_partitions_and_take_over_from_each_other(broker: LoneBroker, topic: str) -> None:
    first = Member(broker, topic, "g")
    eventually_sync(lambda: first.poll() == 40)
    second, third = Member(broker, topic, "g"), Member(broker, topic, "g")
    everybody = [first, second, third]

    def owned() -> list[int]:
        for member in everybody:
            member.poll()
        return sorted(partition for member in everybody for partition in member.partitions())

    eventually_sync(lambda: owned() == [0, 1, 2, 3] and all(member.partitions() for member in everybody))
    everybody.remove(second)
    second.close()
    eventually_sync(lambda: owned() == [0, 1, 2, 3])
    with members(first, third):
        assert len(first.partitions()) + len(third.partitions()) == 4


def test_a_group_resumes_where_it_committed_after_the_coordinator_was_killed(broker: LoneBroker, topic: str) -> None:
    member = Member(broker, topic, "resuming")
    eventually_sync(lambda: member.poll() == 40)
    member.consumer.commit(asynchronous=False)
    broker.process.kill()
    broker.restart()
    produce(broker, topic, 40, 60)
    with members(member):
        eventually_sync(lambda: member.poll() == 60)
        member.consumer.commit(asynchronous=False)
    with members(Member(broker, topic, "resuming")) as (successor,):
        produce(broker, topic, 60, 64)
        eventually_sync(lambda: successor.poll() == 4)
        assert set(successor.values) == {b"v60", b"v61", b"v62", b"v63"}


async def test_aiokafka_joins_commits_and_resumes(broker: LoneBroker, topic: str) -> None:
    from aiokafka import AIOKafkaConsumer

    async def read(count: int) -> list[bytes]:
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=broker.bootstrap, group_id="aio", auto_offset_reset="earliest"
        )
        await consumer.start()
        found: list[bytes] = []

        async def enough() -> bool:
            for records in (await consumer.getmany(timeout_ms=100)).values():
                found.extend(record.value for record in records)
            return len(found) >= count

        try:
            await eventually(enough)
            await consumer.commit()
        finally:
            await consumer.stop()
        return found

    assert set(await read(40)) == numbers(40)
    produce(broker, topic, 40, 44)
    assert set(await read(4)) == {b"v40", b"v41", b"v42", b"v43"}


def test_kafka_python_joins_commits_and_resumes(broker: LoneBroker, topic: str) -> None:
    from kafka import KafkaConsumer

    @sockets_left_open()
    def read(count: int) -> set[bytes]:
        consumer = KafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id="kp",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            metadata_max_age_ms=METADATA_AGE_MS_MAX,
        )
        found: set[bytes] = set()

        def enough() -> bool:
            for records in consumer.poll(POLL_MS).values():
                found.update(record.value for record in records)
            return len(found) >= count

        with closing(consumer):
            eventually_sync(enough)
            consumer.commit()
        return found

    assert read(40) == numbers(40)
    produce(broker, topic, 40, 44)
    assert read(4) == {b"v40", b"v41", b"v42", b"v43"}


def test_a_static_member_that_restarts_keeps_its_partitions_without_a_rebalance(broker: LoneBroker, topic: str) -> None:
    def static(instance: str) -> Member:
        return Member(broker, topic, "statics", group_instance_id=instance)

    one, two = static("one"), static("two")

    def both_own() -> bool:
        one.poll(), two.poll()
        return len(one.partitions()) == 2 and len(two.partitions()) == 2

    eventually_sync(both_own)
    before = two.partitions()
    generation = broker.process.log_text().count("is stable")
    two.close()
    two = static("two")
    with members(one, two):
        eventually_sync(both_own)
        assert two.partitions() == before
    assert broker.process.log_text().count("is stable") == generation


def test_admin_clients_list_describe_alter_and_delete_groups(broker: LoneBroker, topic: str) -> None:
    from confluent_kafka import ConsumerGroupState, ConsumerGroupTopicPartitions, TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    member = Member(broker, topic, "managed")
    eventually_sync(lambda: member.poll() == 40)
    member.consumer.commit(asynchronous=False)
    (listed,) = admin.list_consumer_groups().result(120).valid
    assert (listed.group_id, listed.state) == ("managed", ConsumerGroupState.STABLE)
    described = admin.describe_consumer_groups(["managed"])["managed"].result(120)
    assert [len(found.assignment.topic_partitions) for found in described.members] == [4]
    member.close()
    wanted = ConsumerGroupTopicPartitions("managed", [TopicPartition(topic, 0, 3)])
    admin.alter_consumer_group_offsets([wanted])["managed"].result(120)
    found = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions("managed")])["managed"].result(120)
    assert {kept.partition: kept.offset for kept in found.topic_partitions} == {0: 3, 1: 10, 2: 10, 3: 10}
    admin.delete_consumer_groups(["managed"])["managed"].result(120)
    assert not admin.list_consumer_groups().result(120).valid


def test_offsets_of_topics_that_a_consumer_does_not_read_expire_while_it_lives(broker: LoneBroker, topic: str) -> None:
    from confluent_kafka import ConsumerGroupTopicPartitions
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    left = f"{topic}-left"
    admin.create_topics([NewTopic(left, 1, 1)])[left].result(120)
    asked = [ConsumerGroupTopicPartitions("moved-on")]

    def committed() -> set[str]:
        found = admin.list_consumer_group_offsets(asked)["moved-on"].result(120)
        return {kept.topic for kept in found.topic_partitions}

    with members(Member(broker, topic, "moved-on")) as (member,), RawClient(broker.port) as client:
        eventually_sync(lambda: member.poll() == 40)
        offset = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
        commit = {
            "group_id": "moved-on",
            "member_id": member.consumer.memberid(),
            "generation_id_or_member_epoch": 1,
            "retention_time": timedelta(milliseconds=1),
            "topics": [{"name": name, "partitions": [offset]} for name in (topic, left)],
        }
        answered = client.call(OFFSET_COMMIT, 4, commit)
        assert {part.error_code for named in answered.topics for part in named.partitions} == {ErrorCode.none}
        eventually_sync(lambda: left not in committed())
        assert committed() == {topic}


def test_idempotent_producers_get_ids(broker: LoneBroker, topic: str) -> None:
    records = [Record(value=b"i%d" % number, partition=0) for number in range(200)]
    for _ in range(2):
        librdkafka_produce(broker.bootstrap, topic, records, settings={"enable.idempotence": True})
    with members(Member(broker, topic, "idempotent")) as (member,):
        eventually_sync(lambda: member.poll() == 440)


def test_clients_cannot_write_into_the_offsets_topic(broker: LoneBroker, topic: str) -> None:
    with members(Member(broker, topic, "g")) as (member,):
        eventually_sync(lambda: member.poll() == 40)
    with pytest.raises(AssertionError, match="TOPIC_EXCEPTION"):
        librdkafka_produce(broker.bootstrap, "__consumer_offsets", [Record(value=b"x", partition=0)])


@pytest.mark.java
def test_java_tools_consume_describe_and_reset(broker: LoneBroker, topic: str, kafka_programs: KafkaPrograms) -> None:
    assert set(kafka_programs.consume(broker.bootstrap, topic, 40, group="java")) == numbers(40)
    tool = ["--bootstrap-server", broker.bootstrap]
    assert b"java" in kafka_programs.run(CONSUMER_GROUPS, *tool, "--list")
    described = kafka_programs.run(CONSUMER_GROUPS, *tool, "--describe", "--group", "java").decode()
    lags = [line.split()[5] for line in described.splitlines() if line.startswith("java")]
    assert lags == ["0", "0", "0", "0"]
    reset = ["--reset-offsets", "--group", "java", "--topic", topic, "--to-earliest", "--execute"]
    kafka_programs.run(CONSUMER_GROUPS, *tool, *reset)
    assert len(kafka_programs.consume(broker.bootstrap, topic, 40, group="java")) == 40


@pytest.mark.java
def test_kafkas_dump_tool_reads_our_offsets_topic(
    broker: LoneBroker, topic: str, kafka_programs: KafkaPrograms
) -> None:
    from tests.support.clients.java_clients import DUMP_LOG

    member = Member(broker, topic, "dumped")
    eventually_sync(lambda: member.poll() == 40)
    member.consumer.commit(asynchronous=False)
    member.close()
    segments = [path for path in broker.data.glob("__consumer_offsets-*/*.log") if path.stat().st_size]
    dumped = "".join(
        kafka_programs.run(DUMP_LOG, "--offsets-decoder", "--files", str(segment)).decode() for segment in segments
    )
    assert "dumped" in dumped
    assert '"offset":10' in dumped
    assert '"protocolType":"consumer"' in dumped
