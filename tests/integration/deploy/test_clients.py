"""The test clients themselves, against Apache Kafka: they report the records that it has."""

from __future__ import annotations

import uuid

import pytest

from tests.support.clients import kafka_clients
from tests.support.clients.java_clients import KafkaPrograms
from tests.support.clients.kafka_clients import Record
from tests.support.processes.apache_kafka import ApacheKafka

pytestmark = [pytest.mark.integration, pytest.mark.java]

RECORDS = [Record(value=b"value-%d" % number, key=b"key", partition=0) for number in range(100)]
VALUES = [record.value for record in RECORDS]


@pytest.fixture
def topic() -> str:
    """A topic of the test's own."""
    return f"topic-{uuid.uuid4().hex}"


def test_librdkafka_writes_and_reads_in_order(apache_kafka: ApacheKafka, topic: str) -> None:
    places = kafka_clients.librdkafka_produce(apache_kafka.bootstrap_servers, topic, RECORDS)
    received = kafka_clients.librdkafka_consume(apache_kafka.bootstrap_servers, topic, 100, group=topic)
    assert [place.offset for place in places] == list(range(100))
    assert [(record.offset, record.key, record.value) for record in received] == [
        (offset, b"key", value) for offset, value in enumerate(VALUES)
    ]


async def test_aiokafka_writes_and_reads_in_order(apache_kafka: ApacheKafka, topic: str) -> None:
    places = await kafka_clients.aiokafka_produce(apache_kafka.bootstrap_servers, topic, RECORDS)
    received = await kafka_clients.aiokafka_consume(apache_kafka.bootstrap_servers, topic, 100, group=topic)
    assert [place.offset for place in places] == list(range(100))
    assert [record.value for record in received] == VALUES


def test_kafka_python_writes_and_reads_in_order(apache_kafka: ApacheKafka, topic: str) -> None:
    places = kafka_clients.kafka_python_produce(apache_kafka.bootstrap_servers, topic, RECORDS)
    received = kafka_clients.kafka_python_consume(apache_kafka.bootstrap_servers, topic, 100, group=topic)
    assert [place.offset for place in places] == list(range(100))
    assert [record.value for record in received] == VALUES


def test_the_console_clients_write_and_read(
    apache_kafka: ApacheKafka, kafka_programs: KafkaPrograms, topic: str
) -> None:
    kafka_programs.produce(apache_kafka.bootstrap_servers, topic, [b"one", b"two"], settings={"acks": "all"})
    assert kafka_programs.consume(apache_kafka.bootstrap_servers, topic, 2, group=topic) == [b"one", b"two"]


def test_a_group_goes_on_where_it_committed(apache_kafka: ApacheKafka, topic: str) -> None:
    kafka_clients.librdkafka_produce(apache_kafka.bootstrap_servers, topic, RECORDS)
    first = kafka_clients.librdkafka_consume(apache_kafka.bootstrap_servers, topic, 40, group=topic)
    rest = kafka_clients.kafka_python_consume(apache_kafka.bootstrap_servers, topic, 60, group=topic)
    assert [record.value for record in [*first, *rest]] == VALUES
