"""Collects records into batches by size and time; one batch of a partition is in flight at a time.
Pure.

There are three independent settings: a batch is closed when it is `batch_bytes_max` or
`batch_records_max` large, and sent when it is closed or has been open for `linger_ms`; the budget
bounds everything that waits (`budget.py`).

  a. Batches of a partition leave in the order in which they were closed, and the next one leaves
     only when the previous one has its outcome.
  b. A batch that is sent again goes to the front of its partition, as it was: same records, same
     sequence.
  c. Every token that came in goes out once: with its batch, by `expire`, or by `drop_all`.
  d. A batch that is too large for its topic is split (KIP-126): the halves go to the front as
     batches that were never sent, and later batches of the topic are kept as small.

Called by the producer. A token is the caller's value that is returned with the outcome of a record.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Generic, NamedTuple, TypeVar

from msgspec import Struct, field

from wire.batches.record_batch import HEADER_SIZE, Compression
from wire.batches.records import Record, decode_records, encode_record, seal_batch
from wire.protocol.ids import NO_PRODUCER_ID, NO_SEQUENCE, PartitionKey

TokenT = TypeVar("TokenT")


class ProducerIdentity(Struct, frozen=True):
    """The producer id and epoch under which batches are written; NO_IDENTITY without
    idempotence.
    """

    producer_id: int
    epoch: int


NO_IDENTITY = ProducerIdentity(NO_PRODUCER_ID, -1)


class Outgoing(Struct, Generic[TokenT], kw_only=True):
    """A batch. It is open until `is_closed`; `queued_bytes` is its part of the budget."""

    place: PartitionKey
    opened_at_ms: float
    base_timestamp: int = 0
    max_timestamp: int = 0
    parts: list[bytes] = field(default_factory=list)
    tokens: list[TokenT] = field(default_factory=list)
    record_count: int = 0
    size_bytes: int = HEADER_SIZE
    queued_bytes: int = 0
    is_closed: bool = False
    identity: ProducerIdentity = NO_IDENTITY
    base_sequence: int = NO_SEQUENCE
    attempts: int = 0
    not_before_ms: float = 0.0
    is_doubtful: bool = False
    """An attempt was not answered in time: the batch may be in the log."""
    sealed: bytes = b""

    def seal(self, compression: Compression) -> bytes:
        """The bytes for the wire, the same for every attempt."""
        # sealed once: with other bytes or another sequence, a retry would be a second batch to the
        # broker
        if not self.sealed:
            self.sealed = seal_batch(
                b"".join(self.parts),
                record_count=self.record_count,
                base_timestamp=self.base_timestamp,
                max_timestamp=self.max_timestamp,
                compression=compression,
                producer_id=self.identity.producer_id,
                producer_epoch=self.identity.epoch,
                base_sequence=self.base_sequence,
            )
            self.parts.clear()
        return self.sealed


class Appended(NamedTuple):
    """The effect of an appended record: the batch is full, or there is something new to send or to
    wait for.
    """

    is_news: bool
    is_full: bool


class _Lane(Struct, Generic[TokenT]):
    """The batches of one partition: waiting and in flight."""

    waiting: deque[Outgoing[TokenT]] = field(default_factory=deque)
    in_flight: Outgoing[TokenT] | None = None


class Accumulator(Generic[TokenT]):
    """The waiting batches of all partitions of a producer."""

    def __init__(self, *, batch_bytes_max: int, batch_records_max: int, linger_ms: float) -> None:
        self._batch_bytes_max = batch_bytes_max
        self._batch_records_max = batch_records_max
        self._linger_ms = linger_ms
        self._lanes: dict[PartitionKey, _Lane[TokenT]] = {}
        self._topic_bytes_max: dict[str, int] = {}
        self.flushes = 0
        """Number of callers that want everything sent without lingering."""

    @property
    def is_empty(self) -> bool:
        """True if no batch waits and none is in flight."""
        return not self._lanes

    def append(
        self, place: PartitionKey, record: Record, token: TokenT, *, queued_bytes: int, now_ms: float
    ) -> Appended:
        """Add a record to its partition's open batch, or to a new one."""
        lane = self._lanes.setdefault(place, _Lane())
        batch = lane.waiting[-1] if lane.waiting else None
        # a batch that was sent may be in the log, so it gets no more records
        is_new = batch is None or batch.is_closed or batch.attempts > 0
        if batch is None or is_new or not self._has_room(batch, len(record.value or b"") + len(record.key or b"")):
            if batch is not None:
                batch.is_closed = True
            batch = self._open(lane, place, record.timestamp_ms, now_ms)
            is_new = True
        encoded = encode_record(record, batch.record_count, batch.base_timestamp)
        batch.parts.append(encoded)
        batch.tokens.append(token)
        batch.record_count += 1
        batch.size_bytes += len(encoded)
        batch.queued_bytes += queued_bytes
        batch.max_timestamp = max(batch.max_timestamp, record.timestamp_ms)
        batch.is_closed = batch.record_count >= self._batch_records_max or batch.size_bytes >= self._bytes_max(place)
        return Appended(is_new or batch.is_closed, batch.is_closed)

    def ready(self, now_ms: float) -> Iterator[Outgoing[TokenT]]:
        """The head of every partition that may be sent now."""
        for lane in self._lanes.values():
            # one batch in flight for each partition: a retry cannot overtake a later batch
            if lane.in_flight is None and lane.waiting and self._due_ms(lane) <= now_ms:
                yield lane.waiting[0]

    def next_due_ms(self, now_ms: float) -> float | None:
        """The time (monotonic ms) at which the next batch becomes ready; None if only a response or
        a new record can make a batch ready.
        """
        waits = [self._due_ms(lane) for lane in self._lanes.values() if lane.in_flight is None and lane.waiting]
        return min((due for due in waits if due > now_ms), default=None)

    def begin(self, batch: Outgoing[TokenT]) -> None:
        """Mark the head of its partition as in flight."""
        lane = self._lanes[batch.place]
        assert lane.in_flight is None, "one batch of a partition is in flight at a time"
        assert lane.waiting[0] is batch, "batches leave in their order"
        lane.waiting.popleft()
        batch.is_closed = True
        batch.attempts += 1
        lane.in_flight = batch

    def finish(self, batch: Outgoing[TokenT]) -> None:
        """The outcome of the batch is known: remove it."""
        self._lanes[batch.place].in_flight = None
        self._tidy(batch.place)

    def send_again(self, batch: Outgoing[TokenT], *, not_before_ms: float) -> None:
        """Put the batch back to the front of its partition."""
        lane = self._lanes[batch.place]
        lane.in_flight = None
        batch.not_before_ms = not_before_ms
        # to the front: the broker expects the sequences of a partition in order
        lane.waiting.appendleft(batch)

    def split(self, batch: Outgoing[TokenT]) -> bool:
        """Replace a batch in flight by its halves; False for one that cannot be split, or may be in
        the log.
        """
        # a doubtful batch may be in the log: its halves would be written a second time
        if batch.record_count < 2 or batch.is_doubtful:
            return False
        records = list(decode_records(batch.sealed))
        middle = len(records) // 2
        halves = [self._half(batch, records, 0, middle), self._half(batch, records, middle, len(records))]
        # the remainder goes to the second half: the budget of queued bytes must balance
        halves[1].queued_bytes = batch.queued_bytes - halves[0].queued_bytes
        lane = self._lanes[batch.place]
        lane.in_flight = None
        lane.waiting.extendleft(reversed(halves))
        # the broker's limit is not known here: later batches of the topic are smaller from the
        # start
        self._topic_bytes_max[batch.place[0]] = min(self._bytes_max(batch.place), batch.size_bytes // 2)
        return True

    def _half(self, batch: Outgoing[TokenT], records: Sequence[Record], first: int, end: int) -> Outgoing[TokenT]:
        base_timestamp = records[first].timestamp_ms
        parts = [encode_record(record, number, base_timestamp) for number, record in enumerate(records[first:end])]
        return Outgoing(
            place=batch.place,
            opened_at_ms=batch.opened_at_ms,
            base_timestamp=base_timestamp,
            max_timestamp=max(record.timestamp_ms for record in records[first:end]),
            parts=parts,
            tokens=batch.tokens[first:end],
            record_count=end - first,
            size_bytes=HEADER_SIZE + sum(map(len, parts)),
            queued_bytes=batch.queued_bytes * (end - first) // batch.record_count,
            is_closed=True,
        )

    def expire(self, opened_before_ms: float) -> list[Outgoing[TokenT]]:
        """Remove batches that have waited too long; batches in flight are left to their answer."""
        expired = []
        for place, lane in list(self._lanes.items()):
            while lane.waiting and lane.waiting[0].opened_at_ms < opened_before_ms:
                expired.append(lane.waiting.popleft())
            self._tidy(place)
        return expired

    def drop_all(self) -> list[Outgoing[TokenT]]:
        """Remove all batches, in flight or not, each partition in its order."""
        dropped = []
        for lane in self._lanes.values():
            if lane.in_flight is not None:
                dropped.append(lane.in_flight)
            dropped += lane.waiting
        self._lanes.clear()
        return dropped

    def tokens(self) -> list[TokenT]:
        """The tokens of all records whose outcome is unknown."""
        return [
            token
            for lane in self._lanes.values()
            for batch in ((lane.in_flight,) if lane.in_flight else ()) + tuple(lane.waiting)
            for token in batch.tokens
        ]

    def _due_ms(self, lane: _Lane[TokenT]) -> float:
        batch = lane.waiting[0]
        # a retry waits for its backoff, and not for linger.ms
        if batch.attempts:
            return batch.not_before_ms
        is_due = batch.is_closed or len(lane.waiting) > 1 or self.flushes > 0
        return batch.opened_at_ms if is_due else batch.opened_at_ms + self._linger_ms

    def _bytes_max(self, place: PartitionKey) -> int:
        return self._topic_bytes_max.get(place[0], self._batch_bytes_max)

    def _has_room(self, batch: Outgoing[TokenT], size_bytes: int) -> bool:
        return batch.size_bytes + size_bytes <= self._bytes_max(batch.place)

    def _open(self, lane: _Lane[TokenT], place: PartitionKey, base_timestamp: int, now_ms: float) -> Outgoing[TokenT]:
        batch: Outgoing[TokenT] = Outgoing(
            place=place, opened_at_ms=now_ms, base_timestamp=base_timestamp, max_timestamp=base_timestamp
        )
        lane.waiting.append(batch)
        return batch

    def _tidy(self, place: PartitionKey) -> None:
        lane = self._lanes[place]
        if lane.in_flight is None and not lane.waiting:
            del self._lanes[place]
