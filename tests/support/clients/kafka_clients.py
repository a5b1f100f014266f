"""Other people's Kafka clients with everything set that a test wants set: librdkafka, aiokafka,
kafka-python.

Each produces a list of records and waits until all are acknowledged, or reads until it has as many
as asked for. Times are bounds, not expectations. A test sets the client's options that it is about
through `settings` (the client's own names).
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

WITHIN_MS = 120_000
METADATA_AGE_MS_MAX = 1000
"""Of kafka-python's consumers: leading a group, 3.0 may assign before it knows any partition, and
tries again with its next metadata.
"""
POLL_MS = 60_000
"""A poll whose time is up while its consumer joins a group: 3.0 never takes the answer that comes
afterwards, and heartbeats no more.
"""


class Record(NamedTuple):
    """A record that a test sends; without a partition the client chooses one."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp_ms: int | None = None


class Acknowledged(NamedTuple):
    """The place of a record by the broker's acknowledgement."""

    partition: int
    offset: int


class Received(NamedTuple):
    """A record that a test received."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int


class NotEnoughRecords(AssertionError):
    """Time was up before as many records as asked for had come."""


def librdkafka_produce(
    bootstrap_servers: str,
    topic: str,
    records: Iterable[Record],
    *,
    within_ms: float = WITHIN_MS,
    settings: Mapping[str, Any] | None = None,
) -> list[Acknowledged]:
    """Produce through librdkafka. Returns the acknowledgements in the order of the records. Raises
    AssertionError for a refused record.
    """
    from confluent_kafka import Producer

    sent = list(records)
    places: list[Acknowledged | None] = [None] * len(sent)
    failures: list[str] = []
    producer = Producer({"bootstrap.servers": bootstrap_servers, "linger.ms": 5, **(settings or {})})
    for position, record in enumerate(sent):

        def delivered(error: Any, message: Any, position: int = position) -> None:
            if error is not None:
                failures.append(f"record {position}: {error}")
            else:
                places[position] = Acknowledged(message.partition(), message.offset())

        producer.produce(topic, on_delivery=delivered, **_rdkafka_arguments(record))
        producer.poll(0)
    left = producer.flush(within_ms / 1000)
    assert not failures, failures[:10]
    assert left == 0, f"{left} of {len(sent)} records not acknowledged within {within_ms:g} ms"
    return [place for place in places if place is not None]


def _rdkafka_arguments(record: Record) -> dict[str, Any]:
    arguments: dict[str, Any] = {"value": record.value, "key": record.key}
    if record.partition is not None:
        arguments["partition"] = record.partition
    if record.timestamp_ms is not None:
        arguments["timestamp"] = record.timestamp_ms
    return arguments


def librdkafka_consume(
    bootstrap_servers: str,
    topic: str,
    count: int,
    *,
    group: str,
    within_ms: float = WITHIN_MS,
    settings: Mapping[str, Any] | None = None,
) -> list[Received]:
    """Read as a member of a group, from the start where it has no offsets, until `count` records
    came; commits them.
    """
    from confluent_kafka import Consumer

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            **(settings or {}),
        }
    )
    received: list[Received] = []
    deadline = time.monotonic() + within_ms / 1000
    try:
        consumer.subscribe([topic])
        while len(received) < count:
            if time.monotonic() > deadline:
                raise NotEnoughRecords(f"{len(received)} of {count} records of {topic} within {within_ms:g} ms")
            for message in consumer.consume(min(count - len(received), 1000), timeout=0.2):
                _raise_unless_passing(message.error())
                if message.error() is None:
                    received.append(_received_by_librdkafka(message))
        if received:
            consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return received


def _received_by_librdkafka(message: Any) -> Received:
    return Received(message.partition(), message.offset(), message.key(), message.value(), message.timestamp()[1])


def _raise_unless_passing(error: Any) -> None:
    """librdkafka also reports errors that it retries by itself as events; only a final error is a
    failure.
    """
    from confluent_kafka import KafkaError, KafkaException

    passing = (
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TRANSPORT,
        KafkaError._TIMED_OUT,
        KafkaError._PARTITION_EOF,
        KafkaError._RESOLVE,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.NOT_COORDINATOR,
    )
    if error is not None and error.code() not in passing:
        raise KafkaException(error)


async def aiokafka_produce(
    bootstrap_servers: str,
    topic: str,
    records: Sequence[Record],
    *,
    within_ms: float = WITHIN_MS,
    settings: Mapping[str, Any] | None = None,
) -> list[Acknowledged]:
    """Produce through aiokafka; the acknowledgements in the order of the records."""
    from aiokafka import AIOKafkaProducer

    async with asyncio.timeout(within_ms / 1000):
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap_servers, **(settings or {}))
        await producer.start()
        try:
            pending = [
                await producer.send(
                    topic, record.value, key=record.key, partition=record.partition, timestamp_ms=record.timestamp_ms
                )
                for record in records
            ]
            places = await asyncio.gather(*pending)
        finally:
            await producer.stop()
    return [Acknowledged(place.partition, place.offset) for place in places]


async def aiokafka_consume(
    bootstrap_servers: str,
    topic: str,
    count: int,
    *,
    group: str | None = None,
    within_ms: float = WITHIN_MS,
    settings: Mapping[str, Any] | None = None,
) -> list[Received]:
    """Read through aiokafka until `count` records came; as a member of a group it commits them."""
    from aiokafka import AIOKafkaConsumer

    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **(settings or {}),
    )
    received: list[Received] = []
    async with asyncio.timeout(within_ms / 1000):
        await consumer.start()
        try:
            while len(received) < count:
                message = await consumer.getone()
                received.append(
                    Received(message.partition, message.offset, message.key, message.value, message.timestamp)
                )
            if group is not None and received:
                await consumer.commit()
        finally:
            await consumer.stop()
    return received


@contextlib.contextmanager
def sockets_left_open() -> Iterator[None]:
    """For functions with a client of kafka-python in them: 3.0 leaves the socket of a connection
    that is being made when the client is closed. This context collects that socket at the
    function's end, so that the warning does not fail an unrelated test.
    """
    try:
        yield
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ResourceWarning)
            gc.collect()


@sockets_left_open()
def kafka_python_produce(
    bootstrap_servers: str,
    topic: str,
    records: Iterable[Record],
    *,
    within_ms: float = WITHIN_MS,
    settings: Mapping[str, Any] | None = None,
) -> list[Acknowledged]:
    """Produce through kafka-python; the acknowledgements in the order of the records."""
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap_servers, **(settings or {}))
    try:
        pending = [
            producer.send(
                topic, record.value, key=record.key, partition=record.partition, timestamp_ms=record.timestamp_ms
            )
            for record in records
        ]
        places = [future.get(timeout=within_ms / 1000) for future in pending]
    finally:
        producer.close(timeout=5)
    return [Acknowledged(place.partition, place.offset) for place in places]


@sockets_left_open()
def kafka_python_consume(
    bootstrap_servers: str,
    topic: str,
    count: int,
    *,
    group: str | None = None,
    within_ms: float = WITHIN_MS,
    settings: Mapping[str, Any] | None = None,
) -> list[Received]:
    """Read through kafka-python until `count` records came; as a member of a group it commits
    them.
    """
    from kafka import KafkaConsumer

    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap_servers,
        group_id=group,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        **{"metadata_max_age_ms": METADATA_AGE_MS_MAX, **(settings or {})},
    )
    received: list[Received] = []
    deadline = time.monotonic() + within_ms / 1000
    try:
        while len(received) < count:
            if time.monotonic() > deadline:
                raise NotEnoughRecords(f"{len(received)} of {count} records of {topic} within {within_ms:g} ms")
            for batch in consumer.poll(timeout_ms=POLL_MS, max_records=count - len(received)).values():
                received += [
                    Received(message.partition, message.offset, message.key, message.value, message.timestamp)
                    for message in batch
                ]
        if group is not None and received:
            consumer.commit()
    finally:
        consumer.close()
    return received


def delete_records(bootstrap: str, topic: str, before_offset: int) -> None:
    """Have a broker delete the records of partition 0 below an offset."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for outcome in admin.delete_records([TopicPartition(topic, 0, before_offset)]).values():
        outcome.result(120)
