"""The clients of a drill, each in a process of its own: `python -m dr.drill.load produce|consume
SETTINGS.json`.

The clients use librdkafka as an application would: an idempotent producer with acks=all, and a
group member that commits the offsets that it has read. Each record has its unique name in the
header `drill`. The clients write each acknowledgement and delivery to a history file
(`core/history.py`). SIGTERM makes a client flush, commit and end. `drill_clients.py` starts and
stops them.
"""

from __future__ import annotations

import itertools
import json
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, TextIO

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from pydantic import BaseModel, ConfigDict

from dr.drill.core.history import Acknowledged, Delivered, Failed, to_line
from dr.drill.dataset import SourceRecord, departures
from runtime.configuration import read_properties
from runtime.process import ExitCode, OperationalFailure
from wire.client.librdkafka_options import librdkafka_options
from wire.client.security import load_security

HEADER = "drill"
HISTORY_FLUSH_S = 0.1
QUEUE_RECORDS_MAX = 20_000
"""Maximum number of unacknowledged records; sending pauses at this limit."""
FLUSH_AT_END_S = 60
COMMIT_INTERVAL_S = 0.5
POLL_BATCH = 500


class ProducerSettings(BaseModel):
    """The settings of a producing client."""

    model_config = ConfigDict(frozen=True)

    name: str
    bootstrap_servers: str
    history: Path
    kind: str = "records"
    topic: str = "drill"
    records_per_second: float = 0
    count: int = 0
    size_bytes: int = 200
    keys: int = 1000
    settings: dict[str, str] = {}
    client_config: Path | None = None


class ConsumerSettings(BaseModel):
    """The settings of one member of a group."""

    model_config = ConfigDict(frozen=True)

    name: str
    group: str
    bootstrap_servers: str
    history: Path
    topics: tuple[str, ...]
    settings: dict[str, str] = {}
    client_config: Path | None = None


def connection_options(bootstrap_servers: str, client_config: Path | None) -> dict[str, Any]:
    """librdkafka's options for the brokers, with the login from a file of Kafka client properties.
    Raises ConfigurationError.
    """
    options: dict[str, Any] = {"bootstrap.servers": bootstrap_servers}
    if client_config is not None:
        options |= librdkafka_options(load_security(read_properties(client_config)))
    return options


class _History:
    """A history file; the drill reads it while it grows."""

    def __init__(self, path: Path) -> None:
        self._file: TextIO = path.open("a", encoding="utf-8", buffering=1 << 16)
        self._flushed_at = time.monotonic()

    def write(self, fact: Acknowledged | Failed | Delivered) -> None:
        self._file.write(to_line(fact))

    def flush_if_due(self) -> None:
        if time.monotonic() - self._flushed_at >= HISTORY_FLUSH_S:
            self.flush()

    def flush(self) -> None:
        self._file.flush()
        self._flushed_at = time.monotonic()


class _StopFlag:
    """A flag that SIGTERM and SIGINT set."""

    def __init__(self) -> None:
        self.is_set = False
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._set)

    def _set(self, *_: object) -> None:
        self.is_set = True


def made_up_records(topic: str, *, size_bytes: int, keys: int) -> Iterator[SourceRecord]:
    """Endless records of the given size; their keys rotate."""
    for number in itertools.count():
        value = f"{number}:".encode()
        yield SourceRecord(topic, f"key-{number % keys}".encode(), value.ljust(size_bytes, b"."))


class ProducingClient:
    """Sends until it is stopped. After a fatal error of librdkafka it creates a new producer, and
    sends the unacknowledged records again.
    """

    def __init__(self, settings: ProducerSettings, stop: _StopFlag) -> None:
        self._settings = settings
        self._stop = stop
        self._history = _History(settings.history)
        self._waiting: dict[int, tuple[SourceRecord, float]] = {}
        self._acknowledged = 0
        self._failed = 0
        self._restarts = 0
        self._is_broken = False
        self._producer = self._new_producer()

    def _new_producer(self) -> Producer:
        self._is_broken = False
        return Producer(
            {
                **connection_options(self._settings.bootstrap_servers, self._settings.client_config),
                "client.id": self._settings.name,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "error_cb": self._on_error,
                **self._settings.settings,
            }
        )

    def _on_error(self, error: KafkaError) -> None:
        if error.fatal():
            self._is_broken = True

    def run(self) -> dict[str, int]:
        """Send until stopped or until the records end; return the counts."""
        begun = time.monotonic()
        for number, record in enumerate(self._records()):
            self._send(number, record)
            self._pace(begun, number + 1)
            if self._stop.is_set:
                break
        deadline = time.monotonic() + FLUSH_AT_END_S
        while self._waiting and time.monotonic() < deadline:
            self._serve(0.1)
        for number, (record, _) in sorted(self._waiting.items()):
            self._give_up(number, record, "not acknowledged by the end")
        self._history.flush()
        return {"acknowledged": self._acknowledged, "failed": self._failed, "restarts": self._restarts}

    def _records(self) -> Iterator[SourceRecord]:
        settings = self._settings
        if settings.kind == "dataset":
            records = departures()
        else:
            records = made_up_records(settings.topic, size_bytes=settings.size_bytes, keys=settings.keys)
        return itertools.islice(records, settings.count) if settings.count else records

    def _pace(self, begun: float, sent: int) -> None:
        self._serve(0)
        if self._settings.records_per_second:
            due = begun + sent / self._settings.records_per_second
            while not self._stop.is_set and (left := due - time.monotonic()) > 0:
                self._serve(min(left, 0.1))
        while len(self._waiting) >= QUEUE_RECORDS_MAX and not self._stop.is_set:
            self._serve(0.1)

    def _serve(self, timeout_s: float) -> None:
        self._producer.poll(timeout_s)
        self._history.flush_if_due()
        if self._is_broken:
            self._replace_producer()

    def _send(self, number: int, record: SourceRecord) -> None:
        self._waiting[number] = (record, time.time() * 1000)
        while True:
            try:
                self._producer.produce(
                    record.topic,
                    value=record.value,
                    key=record.key,
                    headers={HEADER: f"{self._settings.name}:{number}"},
                    on_delivery=partial(self._on_delivery, number),
                )
            except BufferError:
                restarts = self._restarts
                self._serve(0.1)
                if self._restarts != restarts:
                    return  # the new producer has the record already
            except KafkaException as error:
                if not error.args[0].fatal():
                    raise
                self._is_broken = True
                return
            else:
                return

    def _on_delivery(self, number: int, error: KafkaError | None, message: Any) -> None:
        waiting = self._waiting.get(number)
        if waiting is None:
            return
        record, sent_at_ms = waiting
        if error is None:
            del self._waiting[number]
            self._acknowledged += 1
            place = (record.topic, message.partition(), message.offset())
            now_ms = round(time.time() * 1000, 1)
            self._history.write(Acknowledged(self._settings.name, number, *place, round(sent_at_ms, 1), now_ms))
        # These records stay in `_waiting`: the next producer sends them again. A purge follows from
        # the replacement itself.
        elif error.fatal() or error.code() in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            self._is_broken = True
        else:
            del self._waiting[number]
            self._give_up(number, record, error.str())

    def _give_up(self, number: int, record: SourceRecord, reason: str) -> None:
        self._failed += 1
        self._history.write(Failed(self._settings.name, number, record.topic, round(time.time() * 1000, 1), reason))

    def _replace_producer(self) -> None:
        """Do what an application does after a fatal error: create a new producer, and send
        everything unacknowledged again, in order.
        """
        self._restarts += 1
        restarts = self._restarts
        # The records are sent again in their order, because checker A9 expects growing offsets.
        old, waiting = self._producer, sorted(self._waiting.items())
        self._producer = self._new_producer()
        old.purge()
        for number, (record, _) in waiting:
            self._send(number, record)
            if self._restarts != restarts:
                return  # the next producer has the others too


class ConsumingClient:
    """A member of a group: it reads, writes each delivery to the history, and commits."""

    def __init__(self, settings: ConsumerSettings, stop: _StopFlag) -> None:
        self._settings = settings
        self._stop = stop
        self._history = _History(settings.history)
        self._assignment = 0
        self._delivered = 0
        self._consumer = Consumer(
            {
                **connection_options(settings.bootstrap_servers, settings.client_config),
                "group.id": settings.group,
                "client.id": settings.name,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                **settings.settings,
            }
        )

    def run(self) -> dict[str, int]:
        """Consume until stopped; return the counts."""
        self._consumer.subscribe(list(self._settings.topics), on_assign=self._on_assign)
        commit_at = time.monotonic() + COMMIT_INTERVAL_S
        has_new = False
        try:
            while not self._stop.is_set:
                for message in self._consumer.consume(POLL_BATCH, timeout=0.1):
                    has_new |= self._note(message)
                self._history.flush_if_due()
                if has_new and time.monotonic() >= commit_at:
                    # A commit in the loop must not block: the pause would count as an outage of the
                    # consumer.
                    self._consumer.commit(asynchronous=True)
                    commit_at, has_new = time.monotonic() + COMMIT_INTERVAL_S, False
            self._commit_last()
        finally:
            self._history.flush()
            self._consumer.close()
        return {"delivered": self._delivered, "assignments": self._assignment}

    def _on_assign(self, *_: object) -> None:
        self._assignment += 1

    def _note(self, message: Any) -> bool:
        if message.error() is not None:
            return False  # librdkafka retries these errors by itself
        place = (message.topic(), message.partition(), message.offset())
        now_ms = round(time.time() * 1000, 1)
        self._history.write(Delivered(self._settings.name, self._assignment, *place, value_of(message), now_ms))
        self._delivered += 1
        return True

    def _commit_last(self) -> None:
        try:
            self._consumer.commit(asynchronous=False)
        except KafkaException as error:
            if error.args[0].code() != KafkaError._NO_OFFSET:
                raise


def value_of(message: Any) -> str:
    """The record's unique name; a record without the header is named by its partition and
    offset.
    """
    for name, value in message.headers() or ():
        if name == HEADER:
            return str(value.decode())
    return f"{message.topic()}-{message.partition()}@{message.offset()}"


def read_log(
    bootstrap_servers: str, topics: tuple[str, ...], *, within_s: float, client_config: Path | None = None
) -> Iterator[tuple[str, int, int, str]]:
    """Every record of the topics as a client reads them: topic, partition, offset, unique name.
    Raises OperationalFailure on timeout.
    """
    consumer = Consumer(
        {
            **connection_options(bootstrap_servers, client_config),
            "group.id": "drill-reader",
            "enable.auto.commit": False,
        }
    )
    deadline = time.monotonic() + within_s
    try:
        known = consumer.list_topics(timeout=within_s).topics
        places = [(topic, index) for topic in topics if topic in known for index in known[topic].partitions]
        ends = {}
        for place in places:
            low, high = consumer.get_watermark_offsets(TopicPartition(*place), timeout=within_s)
            if high > low:
                ends[place] = high
        consumer.assign([TopicPartition(topic, index, OFFSET_BEGINNING) for topic, index in ends])
        while ends:
            if time.monotonic() > deadline:
                raise OperationalFailure(f"{len(ends)} partitions could not be read to their end within {within_s:g} s")
            for message in consumer.consume(5_000, timeout=0.5):
                if message.error() is not None:
                    continue
                topic, index, offset = str(message.topic()), int(message.partition() or 0), int(message.offset() or 0)
                yield topic, index, offset, value_of(message)
                if offset + 1 >= ends.get((topic, index), 1 << 62):
                    del ends[topic, index]
    except KafkaException as error:
        raise OperationalFailure(f"logs at {bootstrap_servers} cannot be read: {error}") from error
    finally:
        consumer.close()


def main(arguments: list[str]) -> int:
    """Run one client; the last line of its standard output has its counts."""
    verb, path = arguments
    fields = json.loads(Path(path).read_text(encoding="utf-8"))
    stop = _StopFlag()
    try:
        if verb == "produce":
            counts = ProducingClient(ProducerSettings.model_validate(fields), stop).run()
        else:
            counts = ConsumingClient(ConsumerSettings.model_validate(fields), stop).run()
    except (KafkaException, OperationalFailure) as error:
        print(f"error: {error}", file=sys.stderr, flush=True)
        return ExitCode.FAILED
    print(json.dumps(counts), flush=True)
    return ExitCode.DONE


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
