"""Transactions of unmodified clients: librdkafka, aiokafka, Apache Kafka's Java programs; fencing,
timeouts, offsets, restarts.
"""

from __future__ import annotations

import json
import random
import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from kio.schema.errors import ErrorCode

from tests.support.clients.java_clients import KafkaPrograms
from tests.support.clients.raw_client import RawClient
from tests.support.clients.transactional_clients import (
    WITHIN_S,
    aiokafka_transactions,
    flat,
    read_values,
    transactional_producer,
)
from tests.support.eventually import eventually_sync
from tests.support.lone_brokers.lone_broker_process import LoneBroker

pytestmark = pytest.mark.integration

SETTINGS = {
    "group_initial_rebalance_delay_ms": "0",
    "offsets_topic_num_partitions": "3",
    "transaction_state_log_num_partitions": "3",
}
COPIER = "org.apache.kafka.tools.TransactionalMessageCopier"
TRANSACTIONS = "org.apache.kafka.tools.TransactionsCommand"
KILLS = 6
WRITE_TXN_MARKERS, DESCRIBE_PRODUCERS = 27, 61


@pytest.fixture
def broker(start_broker: Callable[..., LoneBroker]) -> LoneBroker:
    return start_broker(**SETTINGS)


@pytest.fixture
def topic(broker: LoneBroker) -> str:
    return create(broker, 2)


def create(broker: LoneBroker, partitions: int) -> str:
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"t-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(120)
    return name


def send(producer: Any, topic: str, values: list[bytes], *, is_commit: bool) -> None:
    producer.begin_transaction()
    for number, value in enumerate(values):
        producer.produce(topic, value, partition=number % 2)
    producer.flush(WITHIN_S)  # an abort would drop what was not sent yet
    (producer.commit_transaction if is_commit else producer.abort_transaction)(WITHIN_S)


def test_only_committed_transactions_are_read(broker: LoneBroker, topic: str) -> None:
    producer = transactional_producer(broker.bootstrap, "t")
    for number in range(20):
        values = [b"%d-%d" % (number, part) for part in range(4)]
        send(producer, topic, values, is_commit=number % 2 == 0)
    wanted = sorted(b"%d-%d" % (number, part) for number in range(0, 20, 2) for part in range(4))
    assert flat(read_values(broker.bootstrap, topic, 2)) == wanted
    assert len(flat(read_values(broker.bootstrap, topic, 2, isolation="read_uncommitted"))) == 80


def test_a_second_producer_fences_the_first_and_aborts_what_it_left_open(broker: LoneBroker, topic: str) -> None:
    from confluent_kafka import KafkaError, KafkaException

    first = transactional_producer(broker.bootstrap, "t")
    first.begin_transaction()
    first.produce(topic, b"left open")
    first.flush(WITHIN_S)
    second = transactional_producer(broker.bootstrap, "t")
    with pytest.raises(KafkaException) as fenced:
        first.commit_transaction(WITHIN_S)
    assert fenced.value.args[0].code() == KafkaError._FENCED
    send(second, topic, [b"second"], is_commit=True)
    assert flat(read_values(broker.bootstrap, topic, 2)) == [b"second"]


def test_a_marker_that_comes_again_does_not_end_the_next_transaction(broker: LoneBroker, topic: str) -> None:
    """KIP-1228: if each transaction has an epoch of its own, the previous transaction's marker
    already has that epoch.
    """
    producer = transactional_producer(broker.bootstrap, "t")
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(WITHIN_S)
    with RawClient(broker.port) as client:
        asked = {"topics": [{"name": topic, "partition_indexes": [0]}]}
        (open_one,) = client.call(DESCRIBE_PRODUCERS, 0, asked).topics[0].partitions[0].active_producers
        marker = {
            "producer_id": open_one.producer_id,
            "producer_epoch": open_one.producer_epoch,
            "transaction_result": False,
            "coordinator_epoch": 1000,
            "transaction_version": 2,
            "topics": asked["topics"],
        }
        (answer,) = client.call(WRITE_TXN_MARKERS, 2, {"markers": [marker]}).markers
    assert answer.topics[0].partitions[0].error_code is ErrorCode.invalid_producer_epoch
    producer.commit_transaction(WITHIN_S)
    assert flat(read_values(broker.bootstrap, topic, 2)) == [b"open"]


def test_a_transaction_that_takes_too_long_is_aborted(broker: LoneBroker, topic: str) -> None:
    producer = transactional_producer(broker.bootstrap, "t", transaction_timeout_ms=1000)
    producer.begin_transaction()
    producer.produce(topic, b"too late", partition=0)
    producer.flush(WITHIN_S)
    other = transactional_producer(broker.bootstrap, "other")
    send(other, topic, [b"after"], is_commit=True)
    eventually_sync(lambda: flat(read_values(broker.bootstrap, topic, 2)) == [b"after"])


def test_records_are_consumed_transformed_and_produced_once(broker: LoneBroker, topic: str) -> None:
    from confluent_kafka import Consumer

    target = create(broker, 2)
    source = transactional_producer(broker.bootstrap, "source")
    send(source, topic, [b"%02d" % number for number in range(40)], is_commit=True)
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "copiers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    consumer.subscribe([topic])
    producer = transactional_producer(broker.bootstrap, "copier")
    copied = rounds = 0
    while copied < 40:
        messages = [message for message in consumer.consume(8, 1) if message.error() is None]
        if not messages:
            continue
        rounds += 1
        producer.begin_transaction()
        for message in messages:
            producer.produce(target, message.value(), partition=message.partition())
        producer.send_offsets_to_transaction(
            consumer.position(consumer.assignment()), consumer.consumer_group_metadata(), WITHIN_S
        )
        if rounds % 2:
            producer.abort_transaction(WITHIN_S)
            for position in consumer.committed(consumer.assignment(), WITHIN_S):
                position.offset = max(position.offset, 0)
                consumer.seek(position)
        else:
            producer.commit_transaction(WITHIN_S)
            copied += len(messages)
    committed = [position.offset for position in consumer.committed(consumer.assignment(), WITHIN_S)]
    consumer.close()
    assert flat(read_values(broker.bootstrap, target, 2)) == [b"%02d" % number for number in range(40)]
    assert set(committed) <= {20, 21}  # the marker of the source may have been read too
    broker.process.kill()
    broker.restart()
    assert flat(read_values(broker.bootstrap, target, 2)) == [b"%02d" % number for number in range(40)]


async def test_aiokafka_writes_in_transactions(broker: LoneBroker, topic: str) -> None:
    batches = [[b"%d-%d" % (number, part) for part in range(3)] for number in range(6)]
    await aiokafka_transactions(broker.bootstrap, topic, "aio", batches)
    wanted = sorted(value for batch in batches[::2] for value in batch)
    assert flat(read_values(broker.bootstrap, topic, 2)) == wanted


def test_javas_message_copier_copies_each_record_once(
    broker: LoneBroker, topic: str, kafka_programs: KafkaPrograms
) -> None:
    """The copier aborts at random. Its producer and consumer use KIP-890's protocol, so each
    transaction has an epoch of its own.
    """
    target = create(broker, 1)
    source = transactional_producer(broker.bootstrap, "source")
    send(source, topic, [b"%03d" % number for number in range(400)], is_commit=True)
    printed = kafka_programs.run(
        COPIER,
        *("--broker-list", broker.bootstrap, "--input-topic", topic, "--input-partition", "0"),
        *("--output-topic", target, "--max-messages", "200", "--transaction-size", "20"),
        *("--transactional-id", "copier", "--consumer-group", "copiers", "--enable-random-aborts"),
    )
    last = json.loads(printed.splitlines()[-1])
    assert last["remaining"] == 0
    wanted = [b"%03d" % number for number in range(0, 400, 2)]
    assert read_values(broker.bootstrap, target, 1)[0] == wanted


def test_javas_transaction_tool_lists_describes_and_aborts(
    broker: LoneBroker, topic: str, kafka_programs: KafkaPrograms
) -> None:
    producer = transactional_producer(broker.bootstrap, "open")
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    producer.flush(WITHIN_S)
    to_broker = ("--bootstrap-server", broker.bootstrap)
    assert b"Ongoing" in kafka_programs.run(TRANSACTIONS, *to_broker, "list")
    described = kafka_programs.run(TRANSACTIONS, *to_broker, "describe", "--transactional-id", "open")
    assert f"{topic}-0".encode() in described
    kafka_programs.run(TRANSACTIONS, *to_broker, "abort", "--topic", topic, "--partition", "0", "--start-offset", "0")
    assert flat(read_values(broker.bootstrap, topic, 2)) == []


class Load:
    """Transactions of two records, one in each partition, until the test stops them; notes how each
    one ended.
    """

    def __init__(self, broker: LoneBroker, topic: str, name: str) -> None:
        self._broker = broker
        self._topic = topic
        self._name = name
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.committed: list[int] = []
        self.aborted: list[int] = []
        self.unknown: list[int] = []
        self.count = 0

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        self._is_stopped.set()
        self._thread.join(WITHIN_S * 2)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        from confluent_kafka import KafkaException

        producer = transactional_producer(self._broker.bootstrap, self._name)
        while not self._is_stopped.is_set():
            number = self.count
            self.count += 1
            try:
                self._one(producer, number)
            except KafkaException as failure:
                if failure.args[0].txn_requires_abort():
                    producer.abort_transaction(WITHIN_S)
                    self.aborted.append(number)
                else:
                    self.unknown.append(number)
                    producer = transactional_producer(self._broker.bootstrap, self._name)

    def _one(self, producer: Any, number: int) -> None:
        producer.begin_transaction()
        for partition in range(2):
            producer.produce(self._topic, b"%s %d" % (self._name.encode(), number), partition=partition)
        if random.random() < 0.3:
            producer.flush(random.choice([0, WITHIN_S]))
            producer.abort_transaction(WITHIN_S)
            self.aborted.append(number)
        else:
            producer.commit_transaction(WITHIN_S)
            self.committed.append(number)


def test_kills_at_random_moments_tear_and_repeat_no_transaction(broker: LoneBroker, topic: str) -> None:
    loads = [Load(broker, topic, f"load-{number}") for number in range(2)]
    for load in loads:
        load.start()
    for _ in range(KILLS):
        more = loads[0].count + random.randint(3, 60)
        eventually_sync(lambda more=more: loads[0].count >= more)
        broker.process.kill()
        broker.restart()
    for load in loads:
        load.finish()
    values = read_values(broker.bootstrap, topic, 2)
    assert values[0] == values[1] or sorted(values[0]) == sorted(values[1])
    assert len(values[0]) == len(set(values[0]))
    for number, load in enumerate(loads):
        prefix = b"load-%d " % number
        seen = [int(value.removeprefix(prefix)) for value in values[0] if value.startswith(prefix)]
        assert seen == sorted(seen)
        assert set(load.committed) <= set(seen)
        assert not set(load.aborted) & set(seen)
        assert set(seen) <= set(load.committed) | set(load.unknown)
        assert len(load.committed) > KILLS
