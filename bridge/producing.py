"""Writes records to Kafka: one librdkafka producer for all requests of a Kafka user, whose
acknowledgements are passed to the event loop.

A thread runs librdkafka's callbacks and wakes the loop once for all acknowledgements that arrived
together. Unacknowledged bytes are bounded: a request that does not fit waits in a queue. A producer
with a fatal error is replaced by a new one.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from bridge.core.refusals import kafka_failed
from bridge.metrics import BridgeMetrics
from runtime.logs import get_logger
from runtime.supervision import note_death

POLL_S = 0.1
RECORDS_PER_TURN = 500
"""Records given to librdkafka before other tasks may run."""
ROOM_PAUSE_S = 0.01
PARTITION_ANY = -1

log = get_logger(__name__)

DEFAULTS: Mapping[str, Any] = {
    "partitioner": "murmur2_random",  # the same partition as Java's clients choose
    "linger.ms": 0,  # a single record is not delayed; under load batches form by themselves
    "enable.idempotence": True,
    "message.timeout.ms": 120_000,
    "message.max.bytes": 2 * 1024 * 1024,
    "queue.buffering.max.messages": 200_000,
    "socket.keepalive.enable": True,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingRecord:
    """A record to be sent to a topic."""

    key: bytes | None
    value: bytes | None
    partition: int = PARTITION_ANY
    timestamp_ms: int = 0
    headers: Sequence[tuple[str, bytes | None]] = ()

    @property
    def size_bytes(self) -> int:
        """Bytes of key and value."""
        return len(self.key or b"") + len(self.value or b"")


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivered:
    """The partition and offset of an acknowledged record."""

    partition: int
    offset: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Undelivered:
    """The reason why a record is not in the log, as far as the client knows."""

    error: KafkaError

    @property
    def is_retriable(self) -> bool:
        """True if the same record may succeed later."""
        return self.error.retriable() or self.error.code() in _RETRIABLE

    @property
    def is_unknown_topic(self) -> bool:
        """True if the topic does not exist."""
        return self.error.code() in (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART)

    @property
    def is_unknown_partition(self) -> bool:
        """The topic has no such partition."""
        return bool(self.error.code() == KafkaError._UNKNOWN_PARTITION)


Outcome = Delivered | Undelivered

_RETRIABLE = {
    KafkaError._MSG_TIMED_OUT,
    KafkaError._TIMED_OUT,
    KafkaError._QUEUE_FULL,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._PURGE_QUEUE,
    KafkaError._PURGE_INFLIGHT,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.NOT_ENOUGH_REPLICAS,
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError._FATAL,
    KafkaError._STATE,
}


class Room:
    """Maximum number of unacknowledged bytes; a request that does not fit waits in a queue. One
    item larger than the whole limit is admitted when no other item is pending. A room may be part
    of a larger one that it shares with others.
    """

    def __init__(self, size_bytes: int, *, within: Room | None = None) -> None:
        self.size_bytes = size_bytes
        self._outer = within
        self.used_bytes = 0
        self._line: deque[tuple[int, asyncio.Future[None]]] = deque()

    async def take(self, amount: int, *, within_ms: float) -> None:
        """Take so many bytes. Raises Refused, as retriable, if the space does not become free
        within the time limit.
        """
        await self._take(amount, within_ms)
        if self._outer is None:
            return
        try:
            await self._outer.take(amount, within_ms=within_ms)
        except BaseException:
            self._give_back(amount)
            raise

    async def _take(self, amount: int, within_ms: float) -> None:
        # behind the waiting requests, even if there is room: large requests must not starve
        if not self._line and self._has(amount):
            self.used_bytes += amount
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append((amount, turn))
        try:
            async with asyncio.timeout(within_ms / 1000):
                await turn
        except BaseException as error:
            # the space was granted just before the wait ended, so it is returned
            if turn.done() and not turn.cancelled():
                self._give_back(amount)
            elif (amount, turn) in self._line:
                self._line.remove((amount, turn))
                self._call_next()
            if isinstance(error, TimeoutError):
                raise kafka_failed("no room in the producer's buffer", is_retriable=True) from error
            raise

    def give_back(self, amount: int) -> None:
        """Release this many bytes."""
        self._give_back(amount)
        if self._outer is not None:
            self._outer.give_back(amount)

    def _give_back(self, amount: int) -> None:
        self.used_bytes -= amount
        self._call_next()

    def _has(self, amount: int) -> bool:
        # one item larger than the room is admitted alone, or it could never be sent
        return self.used_bytes == 0 or self.used_bytes + amount <= self.size_bytes

    def _call_next(self) -> None:
        while self._line and self._has(self._line[0][0]):
            amount, turn = self._line.popleft()
            if not turn.done():
                self.used_bytes += amount
                turn.set_result(None)


class _Sent:
    """One record that librdkafka has; called in librdkafka's thread with its outcome."""

    __slots__ = ("arrivals", "future", "size_bytes")

    def __init__(self, arrivals: list[tuple[_Sent, Outcome]], future: asyncio.Future[Outcome], size_bytes: int) -> None:
        self.arrivals = arrivals
        self.future = future
        self.size_bytes = size_bytes

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        outcome: Outcome
        if error is not None:
            outcome = Undelivered(error=error)
        else:
            outcome = Delivered(
                partition=message.partition() or 0, offset=message.offset() or 0, timestamp_ms=message.timestamp()[1]
            )
        self.arrivals.append((self, outcome))


class RecordProducer:
    """The producer of one Kafka user. `start` before use; `stop` waits until all records have an
    outcome.
    """

    def __init__(self, properties: Mapping[str, Any], metrics: BridgeMetrics, *, room: Room, block_ms_max: int) -> None:
        self._properties = {**DEFAULTS, **properties, "error_cb": self.on_error}
        self._metrics = metrics
        self._block_ms_max = block_ms_max
        self._arrivals: list[tuple[_Sent, Outcome]] = []
        self._is_over = threading.Event()
        self._is_broken = threading.Event()
        self._retired: list[Producer] = []
        self._thread = threading.Thread(target=self._serve_callbacks, name="bridge-producer", daemon=True)
        self.room = room

    def start(self) -> None:
        """Create the producer; it connects at the first record."""
        self._loop = asyncio.get_running_loop()
        self._producer = Producer(self._properties)
        self._thread.start()

    async def stop(self, *, within_ms: int) -> int:
        """Wait for the acknowledgements of sent records; return the number of records without
        one.
        """
        deadline_s = time.monotonic() + within_ms / 1000
        while len(self._producer) and time.monotonic() < deadline_s:  # noqa: ASYNC110 (librdkafka does not report that it is empty)
            await asyncio.sleep(ROOM_PAUSE_S)
        left = len(self._producer)
        self._is_over.set()
        await asyncio.to_thread(self._thread.join)
        return left

    async def send_all(self, topic: str, records: Sequence[OutgoingRecord]) -> list[Outcome]:
        """The outcome of each record, in the order of the records."""
        waiting: list[asyncio.Future[Outcome]] = []
        for first in range(0, len(records), RECORDS_PER_TURN):
            waiting += await self.submit(topic, records[first : first + RECORDS_PER_TURN])
            await asyncio.sleep(0)
        return [await future for future in waiting]

    async def submit(self, topic: str, records: Sequence[OutgoingRecord]) -> list[asyncio.Future[Outcome]]:
        """Pass the records to librdkafka when there is room; their outcomes follow. Raises Refused
        if there is no room in time.
        """
        untaken_bytes = sum(record.size_bytes for record in records)
        await self.room.take(untaken_bytes, within_ms=self._block_ms_max)
        waiting = []
        try:
            if self._is_broken.is_set():
                self._replace()
            for record in records:
                future: asyncio.Future[Outcome] = self._loop.create_future()
                waiting.append(future)
                await self._produce(topic, record, _Sent(self._arrivals, future, record.size_bytes))
                untaken_bytes -= record.size_bytes
        except BaseException:
            self.room.give_back(untaken_bytes)  # librdkafka reports no outcome for these
            raise
        return waiting

    async def _produce(self, topic: str, record: OutgoingRecord, sent: _Sent) -> None:
        while True:
            try:
                self._producer.produce(
                    topic,
                    record.value,
                    record.key,
                    record.partition,
                    sent,
                    None,
                    record.timestamp_ms,
                    list(record.headers) or None,
                )
            except BufferError:
                await asyncio.sleep(ROOM_PAUSE_S)
            except KafkaException as error:
                self._settle([(sent, Undelivered(error=error.args[0]))])
                return
            else:
                return

    def _serve_callbacks(self) -> None:
        while not self._is_over.is_set():
            try:
                self._serve_once()
            except Exception:
                if self._loop.is_closed():
                    return
                note_death("bridge producer")  # without this thread no record would get an outcome any more
                self._is_over.wait(POLL_S)

    def _serve_once(self) -> None:
        try:
            self._producer.poll(POLL_S)
        except KafkaException as error:  # a fatal error, which ends the producer
            self.on_error(error.args[0])
        for retired in self._retired[:]:
            retired.poll(0)
            if not len(retired):
                self._retired.remove(retired)
        if self._arrivals:
            arrived, self._arrivals[:] = self._arrivals[:], []
            self._loop.call_soon_threadsafe(self._settle, arrived)

    def _settle(self, arrived: Sequence[tuple[_Sent, Outcome]]) -> None:
        """Wake the waiters; runs on the event loop."""
        freed = produced = produced_bytes = 0
        for sent, outcome in arrived:
            freed += sent.size_bytes
            if isinstance(outcome, Delivered):
                produced += 1
                produced_bytes += sent.size_bytes
            else:
                self._metrics.record_failed(is_retriable=outcome.is_retriable)
            if not sent.future.done():
                sent.future.set_result(outcome)
        self._metrics.record_produced(records=produced, size_bytes=produced_bytes)
        self.room.give_back(freed)

    def on_error(self, error: KafkaError) -> None:
        """librdkafka's own error events; a fatal error ends the producer."""
        if error.code() == KafkaError._FATAL or error.fatal():
            self._is_broken.set()
        log.warning("producer", error=error.str(), is_fatal=bool(error.fatal()))

    def _replace(self) -> None:
        """Replace the producer after a fatal error: its records get errors, and new records go to a
        new producer.
        """
        self._is_broken.clear()
        retired, self._producer = self._producer, Producer(self._properties)
        retired.purge(blocking=False)
        self._retired.append(retired)
        log.warning("the producer was replaced after a fatal error")
