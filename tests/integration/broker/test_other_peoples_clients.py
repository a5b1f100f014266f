"""Unmodified clients against a broker process: produce, consume, look around."""

from __future__ import annotations

import uuid

import pytest

from runtime.clock import SystemClock
from tests.support.clients.java_clients import TOPICS, KafkaPrograms
from tests.support.clients.kafka_clients import (
    Record,
    aiokafka_consume,
    aiokafka_produce,
    kafka_python_produce,
    librdkafka_produce,
)
from tests.support.eventually import eventually_sync
from tests.support.lone_brokers.lone_broker_process import LoneBroker

pytestmark = pytest.mark.integration


@pytest.fixture
def topic() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


def values(count: int) -> list[Record]:
    return [Record(value=b"v%d" % number, partition=0) for number in range(count)]


@pytest.mark.parametrize("acks", ["0", "1", "all"])
async def test_librdkafka_produces_with_any_acks(lone_broker: LoneBroker, topic: str, acks: str) -> None:
    librdkafka_produce(lone_broker.bootstrap, topic, values(500), settings={"acks": acks})
    received = await aiokafka_consume(lone_broker.bootstrap, topic, 500)
    assert [record.value for record in received] == [record.value for record in values(500)]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
async def test_compressed_batches_pass_through_as_they_are(lone_broker: LoneBroker, topic: str, codec: str) -> None:
    librdkafka_produce(lone_broker.bootstrap, topic, values(300), settings={"compression.type": codec})
    received = await aiokafka_consume(lone_broker.bootstrap, topic, 300)
    assert [record.offset for record in received] == list(range(300))


async def test_aiokafka_and_kafka_python_produce(lone_broker: LoneBroker, topic: str) -> None:
    placed = await aiokafka_produce(lone_broker.bootstrap, topic, values(100))
    placed += kafka_python_produce(lone_broker.bootstrap, topic, values(100))
    assert [place.offset for place in placed] == list(range(200))


def test_librdkafka_reads_by_assignment_from_a_time_on(lone_broker: LoneBroker, topic: str) -> None:
    from confluent_kafka import Consumer, TopicPartition

    first_ms = SystemClock().now_ms() - 60_000  # the broker deletes what is older than retention.ms
    records = [Record(value=b"v", partition=0, timestamp_ms=first_ms + number) for number in range(50)]
    librdkafka_produce(lone_broker.bootstrap, topic, records)
    consumer = Consumer({"bootstrap.servers": lone_broker.bootstrap, "group.id": "unused"})
    try:
        (found,) = consumer.offsets_for_times([TopicPartition(topic, 0, first_ms + 20)], timeout=30)
        assert found.offset == 20
        assert consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30) == (0, 50)
        consumer.assign([found])
        offsets: list[int] = []

        def has_all() -> bool:
            messages = consumer.consume(30 - len(offsets), timeout=1)
            offsets.extend(message.offset() for message in messages if message.error() is None)
            return len(offsets) == 30

        eventually_sync(has_all)
        assert offsets == list(range(20, 50))
    finally:
        consumer.close()


def test_an_admin_client_creates_describes_grows_alters_and_deletes(lone_broker: LoneBroker, topic: str) -> None:
    from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

    admin = AdminClient({"bootstrap.servers": lone_broker.bootstrap})
    admin.create_topics([NewTopic(topic, 2, 1, config={"retention.ms": "5000"})])[topic].result(120)
    assert len(admin.list_topics(topic, timeout=30).topics[topic].partitions) == 2
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(120)
    assert len(admin.list_topics(topic, timeout=30).topics[topic].partitions) == 5
    resource = ConfigResource("topic", topic)
    described = admin.describe_configs([resource])[resource].result(120)
    assert described["retention.ms"].value == "5000"
    assert described["segment.bytes"].is_default
    admin.delete_topics([topic])[topic].result(120)
    assert topic not in admin.list_topics(timeout=30).topics


def test_creating_a_topic_twice_is_refused(lone_broker: LoneBroker, topic: str) -> None:
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": lone_broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(120)
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(120)
    assert refused.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS


def test_the_cluster_is_described(lone_broker: LoneBroker) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": lone_broker.bootstrap})
    cluster = admin.describe_cluster(request_timeout=10).result(120)
    assert [(node.id, node.port) for node in cluster.nodes] == [(1, lone_broker.port)]


@pytest.mark.java
def test_java_programs_create_produce_and_dump(
    lone_broker: LoneBroker, topic: str, kafka_programs: KafkaPrograms
) -> None:
    server = ["--bootstrap-server", lone_broker.bootstrap]
    kafka_programs.run(TOPICS, *server, "--create", "--topic", topic, "--partitions", "2")
    described = kafka_programs.run(TOPICS, *server, "--describe", "--topic", topic).decode()
    assert "PartitionCount: 2" in described
    kafka_programs.produce(lone_broker.bootstrap, topic, [b"java %d" % number for number in range(100)])
    segments = sorted(lone_broker.data.glob(f"{topic}-*/00000000000000000000.log"))
    dumped = "".join(kafka_programs.dump_log(segment, with_records=True) for segment in segments)
    assert dumped.count("payload: java") == 100
