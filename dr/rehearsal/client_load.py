"""A bounded load on a rehearsal's clones by an unmodified client (librdkafka): it reads back each
acknowledged record exactly once, and commits a transaction.

The functions block; `execution.py` runs them in a thread.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from time import monotonic
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from msgspec import Struct

from dr.rehearsal.sandbox import SANDBOX_USER, SandboxAddresses
from wire.protocol.ids import PartitionKey

DEADLINE_S: Final = 60.0
TOPICS_MAX: Final = 20
POLL_S: Final = 0.2
_MARK: Final = "antipode-rehearsal"


class LoadResult(Struct, frozen=True, kw_only=True):
    """The result of a load: acknowledged records, the longest wait for an acknowledgement, and
    problems in sentences.
    """

    sent: int
    acknowledged: int
    slowest_ms: float
    problems: tuple[str, ...]


def run_load(addresses: SandboxAddresses, topics: Sequence[str], *, records: int) -> LoadResult:
    """Write `records` to up to TOPICS_MAX topics, and read them back."""
    chosen = sorted(topics)[:TOPICS_MAX]
    if not chosen or records <= 0:
        return LoadResult(sent=0, acknowledged=0, slowest_ms=0.0, problems=())
    load = _Load(addresses)
    try:
        load.write(chosen, records)
        load.read_back()
        load.commit_a_transaction(chosen[0])
    except KafkaException as error:
        load.problems.append(str(error))
    acknowledged = sum(load.found.values())
    return LoadResult(
        sent=records, acknowledged=acknowledged, slowest_ms=load.slowest_ms, problems=tuple(load.problems)
    )


class _Load:
    def __init__(self, addresses: SandboxAddresses) -> None:
        self._common: dict[str, Any] = {
            "bootstrap.servers": addresses.bootstrap_servers,
            "client.id": _MARK,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": SANDBOX_USER,
            "sasl.password": addresses.password,
        }
        self.found: Counter[bytes] = Counter()
        self.slowest_ms = 0.0
        self.problems: list[str] = []
        self._first: dict[PartitionKey, int] = {}

    def write(self, topics: Sequence[str], records: int) -> None:
        """Write records, each with a unique name as its key."""
        run = uuid.uuid4().hex
        producer = Producer(
            {**self._common, "enable.idempotence": True, "acks": "all", "message.timeout.ms": int(DEADLINE_S * 1000)}
        )
        sent_at = monotonic()
        for number in range(records):
            key = f"{run}-{number}".encode()
            noted = self._noted(key, sent_at)
            while not _is_queued(producer, topics[number % len(topics)], key, noted):
                producer.poll(POLL_S)
            producer.poll(0)
        left = producer.flush(DEADLINE_S)
        if left:
            self.problems.append(f"{left} of {records} records were not acknowledged within {DEADLINE_S:.0f} s")

    def _noted(self, key: bytes, sent_at: float) -> Any:
        def note(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                self.problems.append(f"a record for {message.topic()} was not acknowledged: {error}")
                return
            self.slowest_ms = max(self.slowest_ms, (monotonic() - sent_at) * 1000)
            place = (message.topic(), message.partition())
            self._first[place] = min(self._first.get(place, message.offset()), message.offset())
            self.found[key] = 0

        return note

    def read_back(self) -> None:
        """Read each partition from its first offset to its end, until every acknowledged record was
        seen.
        """
        consumer = self._consumer(TopicPartition(*place, offset) for place, offset in self._first.items())
        deadline = monotonic() + DEADLINE_S
        # To the ends: a repeated record may lie behind all others.
        unread = set(self._first)
        try:
            while (unread or not all(self.found.values())) and monotonic() < deadline:
                message = consumer.poll(POLL_S)
                if message is None:
                    continue
                if (error := message.error()) is not None:
                    if error.code() == KafkaError._PARTITION_EOF:
                        unread.discard((message.topic(), message.partition()))
                elif (key := message.key()) is not None and key in self.found:
                    self.found[key] += 1
        finally:
            consumer.close()
        if unread:
            self.problems.append(f"{len(unread)} partitions were not read to their end within {DEADLINE_S:.0f} s")
        missing = sum(not count for count in self.found.values())
        again = sum(count > 1 for count in self.found.values())
        if missing:
            self.problems.append(f"{missing} acknowledged records were not read back within {DEADLINE_S:.0f} s")
        if again:
            self.problems.append(f"{again} records were read twice")

    def commit_a_transaction(self, topic: str) -> None:
        """Commit a transaction with one record, then read it as read_committed."""
        identity = f"{_MARK}-{uuid.uuid4().hex}"
        producer = Producer({**self._common, "transactional.id": identity, "transaction.timeout.ms": 30_000})
        producer.init_transactions(DEADLINE_S)
        producer.begin_transaction()
        places: list[TopicPartition] = []

        def note(error: KafkaError | None, message: Any) -> None:
            if error is None:
                places.append(TopicPartition(message.topic(), message.partition(), message.offset()))

        producer.produce(topic, key=identity.encode(), value=b"rehearsal", on_delivery=note)
        producer.commit_transaction(DEADLINE_S)
        consumer = self._consumer(places)
        deadline = monotonic() + DEADLINE_S
        is_seen = False
        try:
            while not is_seen and monotonic() < deadline:
                message = consumer.poll(POLL_S)
                is_seen = message is not None and message.error() is None and message.key() == identity.encode()
        finally:
            consumer.close()
        if not is_seen:
            self.problems.append(f"a committed transaction's record in {topic} was not read within {DEADLINE_S:.0f} s")

    def _consumer(self, places: Iterable[TopicPartition]) -> Consumer:
        consumer = Consumer(
            {
                **self._common,
                "group.id": _MARK,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": "read_committed",
            }
        )
        consumer.assign(list(places))
        return consumer


def _is_queued(producer: Producer, topic: str, key: bytes, noted: Any) -> bool:
    """False if the producer's queue is full."""
    try:
        producer.produce(topic, key=key, value=b"rehearsal", on_delivery=noted)
    except BufferError:
        return False
    return True
