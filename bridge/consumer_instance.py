"""One consumer instance of API v2: a librdkafka consumer, and its records that were read but not
sent. It serves one request at a time.

Every call to the consumer runs in a thread of its own pool, so that a waiting read delays no other
request. A second concurrent request is refused; but deleting the instance ends a waiting read.
Records that a read has collected for a disconnected client are kept for the next read. Only records
that were sent to the client count as read: their offsets are stored for the next commit.

librdkafka takes part in rebalances only while it is polled. So that an idle instance does not delay
its group, the bridge polls it with all partitions paused (`tend`), which handles rebalances and
returns no records. The next read resumes the partitions.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from bridge.core.media_types import EmbeddedFormat
from bridge.core.refusals import bad_request, illegal_state, instance_not_found
from bridge.kafka_errors import error_of, refused_v2

SLICE_S = 0.1
"""Time (s) that a read waits before it checks whether its client is still there."""
MESSAGES_PER_TURN = 200  # then the client's connection is checked again
IDLE_S = 1.0
"""Time (s) after its last poll until an instance is polled in the background."""
CALL_TIMEOUT_S = 15.0
_HARMLESS = {
    KafkaError._PARTITION_EOF,
    # librdkafka reports a consumer that polls too seldom; a slow HTTP client is no error
    KafkaError._MAX_POLL_EXCEEDED,
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._RESOLVE,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_TOPIC,
}
"""librdkafka recovers from these errors; the response has the records so far."""
_NOTHING_TO_COMMIT = KafkaError._NO_OFFSET

Result = TypeVar("Result")
Place = tuple[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLimits:
    """The limits that end a read."""

    timeout_ms: int
    bytes_max: int
    bytes_min: int


def _size(message: Message) -> int:
    return len(message.key() or b"") + len(message.value() or b"")


def _behind(message: Message) -> TopicPartition:
    """The position after the message, with the epoch that reveals a truncated log (KIP-320)."""
    topic, partition = _place(message)
    epoch = message.leader_epoch()
    offset = (message.offset() or 0) + 1
    if epoch is None or epoch < 0:
        return TopicPartition(topic, partition, offset)
    return TopicPartition(topic, partition, offset, leader_epoch=epoch)


def _place(message: Message) -> Place:
    return (message.topic() or "", message.partition() or 0)


@dataclass(slots=True, kw_only=True)
class ConsumerInstance:
    """A consumer that HTTP clients talk to by its name."""

    group: str
    name: str
    embedded: EmbeddedFormat
    consumer: Consumer
    executor: Executor
    read_timeout_ms: int
    fetch_min_bytes: int
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The options of the Kafka user that reads."""
    last_used_s: float = field(default_factory=time.monotonic)
    _is_busy: bool = False
    _is_closing: bool = False
    _pending: deque[Message] = field(default_factory=deque)
    _subscribed: tuple[str, ...] = ()
    _mode: str = ""
    _paused: set[Place] = field(default_factory=set)
    _polled_at_s: float = 0.0
    _at_consumer: asyncio.Lock = field(default_factory=asyncio.Lock)
    _read_must_end: threading.Event = field(default_factory=threading.Event)
    _idle: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self._idle.set()

    @property
    def is_busy(self) -> bool:
        """True if a request is in progress."""
        return self._is_busy

    @asynccontextmanager
    async def used(self) -> AsyncIterator[None]:
        """Reserve the instance for one request. Raises Refused if another request has it."""
        if self._is_closing:
            raise instance_not_found()
        if self._is_busy:
            raise illegal_state("another request of this consumer instance is under way")
        self._is_busy = True
        self._idle.clear()
        self.last_used_s = time.monotonic()
        try:
            async with self._at_consumer:
                yield
        finally:
            self._is_busy = False
            self.last_used_s = time.monotonic()
            self._idle.set()

    def interrupt_read(self) -> None:
        """End a read in progress; it answers with the records it has."""
        self._read_must_end.set()

    async def close(self) -> None:
        # set before the wait: a new request must not find the instance
        """Leave the group; commit the offsets of sent records if the instance commits
        automatically. Ends a read that waits.
        """
        self._is_closing = True
        self.interrupt_read()
        await self._idle.wait()
        async with self._at_consumer:
            await self._call(self.consumer.close)

    async def tend(self) -> None:
        """Take part in rebalances of the group without a read."""
        is_idle = not self._is_busy and not self._is_closing and time.monotonic() - self._polled_at_s > IDLE_S
        if not is_idle or self._mode not in ("topics", "pattern"):
            return
        async with self._at_consumer:
            if not self._is_busy and not self._is_closing:
                await self._call(self._tend)

    async def subscribe(self, *, topics: Sequence[str] | None, pattern: str | None) -> None:
        """Subscribe by names, or by a pattern that matches the whole name. Raises Refused when the
        instance has partitions of another kind.
        """
        mode = "topics" if topics is not None else "pattern"
        self._enter(mode)
        names = tuple(topics) if topics is not None else (f"^({pattern})$",)
        # the anchors make a pattern match whole names, as in Java
        await self._call(self.consumer.subscribe, list(names))
        self._mode, self._subscribed = mode, names
        # records of the old subscription must not be returned under the new one
        self._pending.clear()

    async def unsubscribe(self) -> None:
        """Have no partitions at all."""
        await self._call(self.consumer.unsubscribe)
        await self._call(self.consumer.unassign)
        self._mode, self._subscribed = "", ()
        self._pending.clear()

    async def assign(self, partitions: Sequence[Place]) -> None:
        """Read these partitions, without the group's assignment."""
        self._enter("assignment")
        await self._call(self.consumer.assign, [TopicPartition(*place) for place in partitions])
        self._mode = "assignment" if partitions else ""
        self._pending.clear()

    async def subscription(self) -> list[str]:
        """Names of the topics; for a pattern, the topics that it has matched so far."""
        if self._mode == "pattern":
            return sorted({place[0] for place in await self.assignment()})
        return list(self._subscribed)

    async def assignment(self) -> list[Place]:
        """The partitions that the instance has."""
        return [(item.topic, item.partition) for item in await self._call(self.consumer.assignment)]

    async def seek(self, offsets: Sequence[tuple[Place, int]]) -> None:
        """Go on at these offsets. Raises Refused for a partition that the instance does not
        have.
        """
        held = set(await self.assignment())
        for place, _ in offsets:
            if place not in held:
                raise illegal_state(f"No current assignment for partition {place[0]}-{place[1]}")
        await self._call(self._seek, offsets)
        moved = {place for place, _ in offsets}
        self._pending = deque(message for message in self._pending if _place(message) not in moved)

    async def seek_to_edge(self, partitions: Sequence[Place], *, is_end: bool) -> None:
        """Continue at the partition's first offset, or at its end."""
        edges = [(place, OFFSET_END if is_end else OFFSET_BEGINNING) for place in partitions]
        await self.seek(edges)

    async def commit(self, offsets: Sequence[TopicPartition] | None, *, is_waiting: bool) -> None:
        """Commit the offsets, or those after all sent records."""
        try:
            await self._call(self._commit, None if offsets is None else list(offsets), is_waiting)
        except KafkaException as error:
            if error_of(error).code() != _NOTHING_TO_COMMIT:
                raise refused_v2(error_of(error)) from error

    async def committed(self, partitions: Sequence[Place]) -> list[TopicPartition]:
        """The group's committed offsets; partitions without a commit are left out."""
        asked = [TopicPartition(*place) for place in partitions]
        answered = await self._call(lambda: self.consumer.committed(asked, timeout=CALL_TIMEOUT_S))
        for item in answered:
            if item.error is not None:
                raise refused_v2(item.error)
        return [item for item in answered if item.offset >= 0]

    async def read(self, limits: ReadLimits) -> list[Message]:
        """Records in the order of their partitions; at least one record, even if it exceeds the
        limit of bytes. Call `hand_out` or `keep` with them next.
        """
        self._read_must_end.clear()
        if not self._mode:
            raise illegal_state("Consumer is not subscribed to any topics or assigned any partitions")
        if self._is_closing:
            return []
        return await self._call(self._read, limits)

    def hand_out(self, messages: Sequence[Message]) -> None:
        """Mark these messages as returned to the client: a commit covers them."""
        last = {_place(message): message for message in messages}
        # the last one of each partition: commits are about positions
        stored = [_behind(message) for message in last.values()]
        for item in stored:
            try:
                self.consumer.store_offsets(offsets=[item])
            except KafkaException:  # another member has the partition now, and reads these records again
                continue

    def keep(self, messages: Sequence[Message]) -> None:
        """These messages were not returned: the next read begins with them."""
        # put them in front, in order: the next read must not skip them
        self._pending.extendleft(reversed(messages))

    def _enter(self, mode: str) -> None:
        if self._mode not in ("", mode):
            raise illegal_state("Subscription to topics, partitions and pattern are mutually exclusive")

    async def _call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Call librdkafka in a thread; its errors become responses."""
        try:
            return await asyncio.get_running_loop().run_in_executor(self.executor, function, *arguments)
        except KafkaException as error:
            if error_of(error).code() == _NOTHING_TO_COMMIT:
                raise
            raise refused_v2(error_of(error)) from error
        except (RuntimeError, ValueError, TypeError) as error:
            raise bad_request(str(error)) from error

    def _commit(self, offsets: list[TopicPartition] | None, is_waiting: bool) -> None:
        given = {} if offsets is None else {"offsets": offsets}
        answered: list[TopicPartition] | None = self.consumer.commit(asynchronous=not is_waiting, **given)  # type: ignore[call-overload]
        for item in answered or ():
            if item.error is not None:
                raise KafkaException(item.error)

    def _tend(self) -> None:
        held = self.consumer.assignment()
        self.consumer.pause(held)
        self._paused |= {(item.topic, item.partition) for item in held}
        self._poll(0)

    def _resume(self) -> None:
        """Resume paused partitions. A partition stays paused when it is revoked and assigned again,
        so a read checks again after each poll.
        """
        if self._paused:
            back = [item for item in self.consumer.assignment() if (item.topic, item.partition) in self._paused]
            self.consumer.resume(back)
            self._paused -= {(item.topic, item.partition) for item in back}

    def _read(self, limits: ReadLimits) -> list[Message]:
        self._resume()
        held = {(item.topic, item.partition) for item in self.consumer.assignment()}
        # a rebalance may have revoked partitions whose records wait here
        self._pending = deque(message for message in self._pending if _place(message) in held)
        gathered: list[Message] = []
        try:
            self._gather(gathered, limits)
        except BaseException:
            self.keep(gathered)
            raise
        return gathered

    def _gather(self, gathered: list[Message], limits: ReadLimits) -> None:
        size_bytes = 0
        deadline = time.monotonic() + limits.timeout_ms / 1000
        if not self._pending:
            self._poll(0)
        while True:
            while self._pending:
                more = _size(self._pending[0])
                if gathered and size_bytes + more > limits.bytes_max:
                    return
                gathered.append(self._pending.popleft())
                size_bytes += more
            left_s = deadline - time.monotonic()
            has_enough = size_bytes >= limits.bytes_max or 0 < limits.bytes_min <= size_bytes
            if has_enough or left_s <= 0 or self._read_must_end.is_set():
                return
            self._poll(min(SLICE_S, left_s))
            self._resume()

    def _poll(self, timeout_s: float) -> None:
        """Wait for one message, then take all that are available. Raises KafkaException when all
        are taken.
        """
        first = self.consumer.poll(timeout_s)
        self._polled_at_s = time.monotonic()
        if first is None:
            return
        failure: KafkaError | None = None
        for message in (first, *self.consumer.consume(MESSAGES_PER_TURN, 0)):
            error = message.error()
            if error is None:
                self._pending.append(message)
            elif error.code() not in _HARMLESS:
                failure = failure or error
        # only now: librdkafka does not return the messages again that follow the error
        if failure is not None:
            raise KafkaException(failure)

    def _seek(self, offsets: Sequence[tuple[Place, int]]) -> None:
        """Seek. Offsets are resolved first, so that a later commit uses the position of the
        reader.
        """
        for place, offset in offsets:
            target = offset
            if offset in (OFFSET_BEGINNING, OFFSET_END):
                low, high = self.consumer.get_watermark_offsets(TopicPartition(*place), timeout=CALL_TIMEOUT_S)
                target = low if offset == OFFSET_BEGINNING else high
            self._seek_once_possible(TopicPartition(*place, target))
            self.consumer.store_offsets(offsets=[TopicPartition(*place, target)])

    def _seek_once_possible(self, target: TopicPartition) -> None:
        """librdkafka refuses to seek until a new partition's first offset is known; polling makes
        it load this offset.

        Other partitions may bring records all the while: only a few of their records are kept, so
        that the buffer stays bounded.
        """
        deadline_s = time.monotonic() + CALL_TIMEOUT_S
        while True:
            try:
                self.consumer.seek(target)
            except KafkaException as error:
                is_over = self._is_closing or time.monotonic() > deadline_s
                if error_of(error).code() != KafkaError._STATE or is_over:
                    raise
                if len(self._pending) < MESSAGES_PER_TURN:
                    self._poll(SLICE_S)
                else:
                    # sleeping holds the thread: polling would bring more records than the buffer
                    # may hold
                    time.sleep(SLICE_S)
            else:
                return
