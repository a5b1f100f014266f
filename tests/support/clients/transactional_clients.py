"""Transactional clients for tests: librdkafka's and aiokafka's producers, and a reader that says
what is committed.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Sequence
from typing import Any

WITHIN_S = 120.0


def transactional_producer(bootstrap_servers: str, transactional_id: str, **settings: Any) -> Any:
    """A librdkafka producer that has its producer id."""
    from confluent_kafka import Producer

    given = {name.replace("_", "."): value for name, value in settings.items()}
    producer = Producer({"bootstrap.servers": bootstrap_servers, "transactional.id": transactional_id, **given})
    producer.init_transactions(WITHIN_S)
    return producer


def read_values(
    bootstrap_servers: str, topic: str, partition_count: int, *, isolation: str = "read_committed"
) -> dict[int, list[bytes]]:
    """All values by partition, from the start to where such a reader's log ends now."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": f"reader-{uuid.uuid4().hex}",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation,
        }
    )
    values: dict[int, list[bytes]] = {index: [] for index in range(partition_count)}
    at_end: set[int] = set()
    deadline = time.monotonic() + WITHIN_S
    try:
        consumer.assign([TopicPartition(topic, index, 0) for index in values])
        while len(at_end) < partition_count:
            # librdkafka also reports errors that it retries by itself, such as a site that is gone
            assert time.monotonic() < deadline, f"partitions {set(values) - at_end} have no end"
            message = consumer.poll(0.1)
            if message is None:
                continue
            partition, error = message.partition() or 0, message.error()
            if error is None:
                values[partition].append(message.value() or b"")
            elif error.code() == KafkaError._PARTITION_EOF:
                at_end.add(partition)
    finally:
        consumer.close()
    return values


def flat(values: dict[int, list[bytes]]) -> list[bytes]:
    """The values of all partitions, sorted."""
    return sorted(value for found in values.values() for value in found)


async def aiokafka_transactions(
    bootstrap_servers: str, topic: str, transactional_id: str, batches: Sequence[Sequence[bytes]]
) -> None:
    """One transaction for each batch; every second one is aborted."""
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, transactional_id=transactional_id)
    async with asyncio.timeout(WITHIN_S):
        await producer.start()
        try:
            for number, batch in enumerate(batches):
                await producer.begin_transaction()
                for value in batch:
                    await producer.send_and_wait(topic, value)
                await (producer.abort_transaction() if number % 2 else producer.commit_transaction())
        finally:
            await producer.stop()
