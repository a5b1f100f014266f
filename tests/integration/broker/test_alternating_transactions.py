"""Producers that commit and abort in turns, as fast as they can: the next transaction ends while
markers of the last are under way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.clients.java_clients import KafkaPrograms
from tests.support.clients.transactional_clients import WITHIN_S, read_values, transactional_producer
from tests.support.eventually import eventually_sync
from tests.support.histories.transaction_history import Observed, Position, circular_reads, precommitted_reads
from tests.support.lone_brokers.lone_broker_process import LoneBroker

pytestmark = pytest.mark.integration

PROGRAM = Path(__file__).parents[2] / "compatibility" / "programs" / "java" / "AlternatingTransactions.java"
TOPICS = ("first", "second")
PARTITIONS = 4
TRANSACTIONS = 120
RUNS = 3
ROUNDS = 20
SETTINGS = {"transaction_state_log_num_partitions": "3", "num_partitions": str(PARTITIONS)}


@pytest.fixture
def broker(start_broker: Callable[..., LoneBroker]) -> LoneBroker:
    from confluent_kafka.admin import AdminClient, NewTopic

    broker = start_broker(**SETTINGS)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in TOPICS]).values():
        made.result(WITHIN_S)
    return broker


def assert_holds_the_committed(broker: LoneBroker, runs: int) -> None:
    """Every second transaction, once in each partition of each topic, in order. The last one can be
    read when its markers are written, which a commit does not wait for.
    """
    wanted = dict.fromkeys(range(PARTITIONS), [b"%d" % number for number in range(0, TRANSACTIONS, 2)] * runs)
    for topic in TOPICS:
        found = eventually_sync(partial(complete_values, broker, topic, len(wanted[0])))
        assert found == wanted


def complete_values(broker: LoneBroker, topic: str, count: int) -> dict[int, list[bytes]]:
    """The committed values once each partition has so many."""
    found = read_values(broker.bootstrap, topic, PARTITIONS)
    counts = [len(values) for values in found.values()]
    assert min(counts, default=0) >= count, counts
    return found


def test_a_java_producer_commits_and_aborts_in_turns(broker: LoneBroker, kafka_programs: KafkaPrograms) -> None:
    wanted = [f"{'aborted' if number % 2 else 'committed'} {number}" for number in range(TRANSACTIONS)]
    for run in range(RUNS):
        printed = kafka_programs.run_source(PROGRAM, broker.bootstrap, f"id-{run}", str(TRANSACTIONS), *TOPICS)
        assert printed.decode().splitlines() == wanted
    assert_holds_the_committed(broker, RUNS)


def abort_or_commit(producer: Any, number: int) -> None:
    producer.begin_transaction()
    for topic in TOPICS:
        for partition in range(PARTITIONS):
            producer.produce(topic, b"%d" % number, partition=partition)
    (producer.abort_transaction if number % 2 else producer.commit_transaction)(WITHIN_S)


def test_librdkafka_commits_and_aborts_in_turns(broker: LoneBroker) -> None:
    producer = transactional_producer(broker.bootstrap, "id", linger_ms=0)
    for number in range(TRANSACTIONS):
        abort_or_commit(producer, number)
    assert_holds_the_committed(broker, 1)


class Reader:
    """A consumer of committed records of the first topic; it never gives a position up."""

    def __init__(self, broker: LoneBroker, name: str) -> None:
        from confluent_kafka import Consumer, TopicPartition

        self.consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap,
                "group.id": name,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 10,
            }
        )
        self.consumer.assign([TopicPartition(TOPICS[0], index, 0) for index in range(PARTITIONS)])
        self.read: list[Position] = []

    def read_until(self, wanted: Collection[Position]) -> list[Position]:
        """All records until each of these has been read, at any time; the records of this call."""
        now: list[Position] = []

        def has_read() -> bool:
            message = self.consumer.poll(0.01)
            if message is not None:
                assert message.error() is None, message.error()
                now.append((message.partition() or 0, message.offset() or 0))
            return {*self.read, *now} >= set(wanted)

        eventually_sync(has_read)
        self.read += now
        return now


def write(producer: Any, value: bytes, partition: int) -> list[Position]:
    """Into an open transaction; where it is."""
    placed: list[Position] = []
    producer.produce(
        TOPICS[0],
        value,
        partition=partition,
        on_delivery=lambda _, message: placed.append((message.partition(), message.offset())),
    )
    assert producer.flush(WITHIN_S) == 0
    return placed


def test_transactions_read_neither_their_own_records_nor_from_each_other(broker: LoneBroker) -> None:
    """Two that are open at the same time read what the two before them have written (A6 and
    A10).
    """
    producers = [transactional_producer(broker.bootstrap, name) for name in ("one", "another")]
    readers = [Reader(broker, name) for name in ("one", "another")]
    seen: list[Observed] = []
    committed: list[Position] = []
    for number in range(ROUNDS):
        for producer in producers:
            producer.begin_transaction()
        written = [
            write(producer, b"%d" % number, (number + place) % PARTITIONS) for place, producer in enumerate(producers)
        ]
        read = [reader.read_until(committed) for reader in readers]
        for producer in producers:
            producer.commit_transaction(WITHIN_S)
        seen += [
            Observed(len(producers) * number + place, written[place], read[place]) for place in range(len(producers))
        ]
        committed += [position for positions in written for position in positions]
    assert precommitted_reads(seen) + circular_reads(seen) == []
    assert all(sorted(reader.read) == sorted(committed[: -len(producers)]) for reader in readers)
    for reader in readers:
        reader.consumer.close()
