"""Transactions: how many a second, with one producer and with several, and how fast a
read-committed reader reads their records.

librdkafka's producers write ten records in each transaction, one transaction after the other. The
topic that is read has transactions of a thousand records of a kilobyte, one in ten of them aborted;
the records that the reader gets are counted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any

from bench.loads import librdkafka
from bench.loads.payloads import payloads
from bench.measuring.figures import percentile
from bench.measuring.plan import Plan
from bench.measuring.processes import metered
from bench.peers.systems import PARTITION_COUNT, MeasuredBroker, create_topic, delete_topic_and_files
from runtime.process import OperationalFailure

PRODUCER_COUNTS = (1, 8)
TRANSACTION_COUNT = 2_000
RECORDS_A_TRANSACTION = 10
RECORD_BYTES = 100
READ_RECORD_BYTES = 1_000
READ_BYTES = 500e6
READ_RECORDS_A_TRANSACTION = 1_000
ABORTED_ONE_IN = 10
WITHIN_S = 60


def measure(plan: Plan, brokers: Sequence[MeasuredBroker]) -> None:
    """Measure all cases on all brokers, and record the samples in the plan."""
    for repeat in range(plan.repeats):
        for producer_count in PRODUCER_COUNTS:
            for broker in brokers:
                _measure_rate(plan, broker, producer_count, repeat)
    topic = "read-committed"
    wanted = {broker.side: _fill(plan, broker, topic) for broker in brokers}
    for _ in range(plan.repeats):
        for broker in brokers:
            _measure_reading(plan, broker, topic, wanted[broker.side])
    for broker in brokers:
        delete_topic_and_files(broker, topic)


def _measure_rate(plan: Plan, broker: MeasuredBroker, producer_count: int, repeat: int) -> None:
    topic = f"transactions-{producer_count}-{repeat}"
    create_topic(broker.bootstrap_servers, topic)
    count, values = plan.scaled(TRANSACTION_COUNT / producer_count, least=5), payloads(RECORD_BYTES)
    producers = [_producer(broker, f"{topic}-{index}") for index in range(producer_count)]
    taken_ns: list[int] = []
    failures: list[Exception] = []

    def commit_all(producer: Any) -> None:
        try:
            for _ in range(count):
                began = time.perf_counter_ns()
                _transact(producer, topic, values, RECORDS_A_TRANSACTION, is_committed=True)
                taken_ns.append(time.perf_counter_ns() - began)
        except Exception as error:
            failures.append(error)

    for producer in producers:
        _transact(producer, topic, values, RECORDS_A_TRANSACTION, is_committed=True)
    threads = [threading.Thread(target=commit_all, args=(producer,)) for producer in producers]
    with metered(broker.pid) as usage:
        began_s = time.monotonic()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        taken_s = time.monotonic() - began_s
    if failures:
        raise OperationalFailure(f"a transaction failed at {broker.child.name}: {failures[0]}")
    delete_topic_and_files(broker, topic)
    total = count * producer_count
    figures = {
        "per_s": total / taken_s,
        "p50_ms": percentile(taken_ns, 50) / 1e6,
        "p99_ms": percentile(taken_ns, 99) / 1e6,
        "cpu_us_per_transaction": usage.cpu_s / total * 1e6,
    }
    plural = "s" if producer_count > 1 else ""
    plan.record("transactions", f"{producer_count} producer{plural}, 10 records each", broker.side, usage, **figures)


def _producer(broker: MeasuredBroker, transactional_id: str) -> Any:
    from confluent_kafka import Producer

    settings: dict[str, Any] = {"bootstrap.servers": broker.bootstrap_servers, "transactional.id": transactional_id}
    producer = Producer({**settings, "linger.ms": 0, "log_level": 2, "queue.buffering.max.messages": 1_000_000})
    producer.init_transactions(WITHIN_S)
    return producer


def _transact(producer: Any, topic: str, values: Sequence[bytes], count: int, *, is_committed: bool) -> None:
    producer.begin_transaction()
    for number in range(count):
        producer.produce(topic, values[number % len(values)])
    if producer.flush(WITHIN_S):
        raise OperationalFailure(f"records of a transaction for {topic} are not acknowledged after {WITHIN_S} s")
    (producer.commit_transaction if is_committed else producer.abort_transaction)(WITHIN_S)


def _fill(plan: Plan, broker: MeasuredBroker, topic: str) -> int:
    """Write the transactions that will be read; return the number of committed records."""
    create_topic(broker.bootstrap_servers, topic)
    producer, values = _producer(broker, topic), payloads(READ_RECORD_BYTES)
    committed = 0
    count = plan.scaled(READ_BYTES / READ_RECORD_BYTES / READ_RECORDS_A_TRANSACTION, least=ABORTED_ONE_IN)
    plan.say(f"writing {count:,} transactions to {broker.child.name}")
    for number in range(count):
        is_committed = number % ABORTED_ONE_IN != 0
        _transact(producer, topic, values, READ_RECORDS_A_TRANSACTION, is_committed=is_committed)
        committed += READ_RECORDS_A_TRANSACTION if is_committed else 0
    librdkafka.consume(
        broker.bootstrap_servers, topic, PARTITION_COUNT, committed, {"isolation.level": "read_committed"}
    )
    return committed


def _measure_reading(plan: Plan, broker: MeasuredBroker, topic: str, count: int) -> None:
    settings = {"isolation.level": "read_committed"}
    with metered(broker.pid) as usage:
        records_per_s = librdkafka.consume(broker.bootstrap_servers, topic, PARTITION_COUNT, count, settings)
    values = {
        "mb_per_s": records_per_s * READ_RECORD_BYTES / 1e6,
        "cpu_s_per_gb": usage.cpu_s / (count * READ_RECORD_BYTES / 1e9),
    }
    plan.record("transactions", "read_committed, 1 KB", broker.side, usage, **values)
