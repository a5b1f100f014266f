"""The asynchronous producer: a bounded queue, batches by size and time, one request for each
leader, retries with metadata refresh.

`send` puts a record into the queue (waiting or refusing by `enqueue_timeout_ms`) and returns a
future of its partition and offset; futures of one partition are resolved in the order of their
sends. Records are encoded there and are bytes from then on. One batch of a partition is in flight
at a time, so a retry never reorders. With idempotence the broker recognises a batch that is sent
again after a lost answer.

A record fails when the broker refuses it with a final error, or when it has not been acknowledged
for `delivery_timeout_ms`. With `is_aborting_on_failure` (the classic mirror's
`abort.on.send.failure`) the first failure ends the producer, so that nothing after a lost record is
written.

Use as `async with Producer(...) as producer`: leaving the block delivers the queued records;
leaving it by an error drops them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Self

from kio.schema.errors import ErrorCode

from clients.budget import Budget
from clients.producer.core.accumulator import NO_IDENTITY, Accumulator, Outgoing, ProducerIdentity
from clients.producer.core.deliveries import MAY_BE_APPENDED, Sequences, Verdict, judge
from clients.producer.core.produce_requests import produce_request, produced_by_partition
from clients.producer.partition_choice import PartitionChoice
from clients.producer.producer_options import (
    Delivered,
    DeliveryTimedOut,
    ProducerClosed,
    ProducerCounts,
    ProducerOptions,
    ProducerRecord,
)
from clients.producer.record_token import RecordToken
from clients.topics import Topics
from runtime.clock import Clock, SystemClock
from wire.batches.records import Record
from wire.client.client_errors import KafkaClientError, UnsupportedApi, broker_error, error_code
from wire.client.raw_client import KafkaClient
from wire.protocol.messages.produce_codec import PartitionProduced


class Producer:
    """Call `start` first and `close` last, or use it as a context. One event loop only; the client
    becomes the producer's.
    """

    def __init__(self, client: KafkaClient, options: ProducerOptions | None = None, clock: Clock | None = None) -> None:
        self._client = client
        self._options = options or ProducerOptions()
        self._clock = clock or SystemClock()
        self._budget = Budget(
            capacity_bytes=self._options.queue_bytes_max,
            capacity_count=self._options.queue_records_max,
            timeout_ms=self._options.enqueue_timeout_ms,
        )
        self._accumulator: Accumulator[RecordToken] = Accumulator(
            batch_bytes_max=self._options.batch_bytes_max,
            batch_records_max=self._options.batch_records_max,
            linger_ms=self._options.linger_ms,
        )
        self._topics = Topics(
            client,
            self._clock,
            max_age_ms=self._options.metadata_max_age_ms,
            backoff_ms=self._options.retry_backoff_ms,
            may_create=self._options.is_creating_topics,
            first_look_ms=self._options.metadata_timeout_ms,
            on_refresh=self._refreshed,
        )
        self._choice = PartitionChoice(self._topics, self._options)
        self._sequences = Sequences()
        self._wake = asyncio.Event()
        self._in_flight: dict[int, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._has_identity_task = False
        self._closed_because: Exception | None = None
        self.counts = ProducerCounts()

    @property
    def queued_records(self) -> int:
        """Records whose outcome is not known."""
        return self._budget.used_count

    @property
    def queued_bytes(self) -> int:
        """The number of bytes that the waiting records use in the queue."""
        return self._budget.used_bytes

    @property
    def dropped_records(self) -> int:
        """Records for which the queue had no room in time."""
        return self._budget.refusals

    @property
    def metadata_refreshes(self) -> int:
        """The number of metadata requests so far."""
        return self._topics.refreshes

    async def __aenter__(self) -> Self:
        self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        await self.close(timeout_ms=None if kind is None else 0)

    def start(self) -> None:
        """Begin to send."""
        for work in (self._run(), self._topics.run()):
            self._keep(asyncio.get_running_loop().create_task(work))

    async def partition_of(self, record: ProducerRecord) -> int:
        """The partition of the record. Raises NoPartition, PartitionOutOfRange, and BrokerError
        when the topic does not exist.
        """
        return await self._choice.of(record)

    async def partition_count(self, topic: str) -> int:
        """The topic's number of partitions. Raises BrokerError when the topic does not exist."""
        return len((await self._topics.look_up(topic)).partitions)

    async def send(self, record: ProducerRecord) -> asyncio.Future[Delivered]:
        """Queue a record. Raises QueueFull by the enqueue policy, ProducerClosed, and the errors of
        `partition_of`.
        """
        return await self.send_to(await self.partition_of(record), record, chosen_by=self)

    async def send_to(
        self, partition: int, record: ProducerRecord, *, chosen_by: Producer
    ) -> asyncio.Future[Delivered]:
        """Queue a record for a partition that a producer of the same pool has chosen. QueueFull by
        the enqueue policy; ProducerClosed.
        """
        # room before the timestamp: a record that waited is as old as its batch, not as the call
        await self._take_room(record.size_bytes)
        now_ms = self._clock.now_ms()
        timestamp_ms = now_ms if record.timestamp_ms is None else record.timestamp_ms
        stored = Record(record.key, record.value, timestamp_ms, tuple(record.headers))
        token = RecordToken()
        self.counts.sent += 1
        appended = self._accumulator.append(
            (record.topic, partition),
            stored,
            token,
            queued_bytes=record.size_bytes,
            now_ms=self._clock.monotonic_ms(),
        )
        chosen_by.note_appended(record, is_batch_full=appended.is_full)
        if appended.is_news:
            self._wake.set()
        # a setting of 0 asks for the leaders after each record, as the classic producer does
        if self._options.metadata_max_age_ms == 0:
            token.outcome.add_done_callback(lambda _: self._topics.refresh_soon())
        return token.outcome

    def note_appended(self, record: ProducerRecord, *, is_batch_full: bool) -> None:
        """Make the partitioner choose another partition after a full batch, or after the same
        number of bytes in smaller batches (KIP-794).
        """
        self._choice.note_appended(record, is_batch_full=is_batch_full)

    async def flush(self) -> None:
        """Send the queued records without waiting for more, and wait until the outcome of each is
        known.
        """
        # read before the wake-up: records that are sent later are not awaited
        outcomes = [token.outcome for token in self._accumulator.tokens()]
        self._accumulator.flushes += 1
        self._wake.set()
        try:
            if outcomes:
                await asyncio.wait(outcomes)
        finally:
            self._accumulator.flushes -= 1

    async def close(self, *, timeout_ms: float | None = None) -> None:
        """Deliver queued records for at most this time (None: as long as deliveries may take, 0:
        not at all), and stop. The rest fails.
        """
        if timeout_ms is None:
            timeout_ms = self._options.delivery_timeout_ms
        try:
            if timeout_ms and self._closed_because is None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(timeout_ms / 1000):
                        await self.flush()
        finally:
            self._end(ProducerClosed("the producer was closed before the record was acknowledged"))
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._client.close()

    # Below the public calls

    async def _take_room(self, size_bytes: int) -> None:
        if self._closed_because is None:
            await self._budget.take(size_bytes)
            # closed while it waited for room: the room is returned
            if self._closed_because is None:
                return
            self._budget.release(size_bytes)
        raise ProducerClosed(str(self._closed_because)) from self._closed_because

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._end(ProducerClosed(f"the producer failed: {error!r}"))

    def _refreshed(self) -> None:
        self._choice.note_refresh()
        self._wake.set()

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            now_ms = self._clock.monotonic_ms()
            # expired first: a batch whose delivery timeout passed must not be sent again
            for batch in self._accumulator.expire(now_ms - self._options.delivery_timeout_ms):
                within = f"not acknowledged within {self._options.delivery_timeout_ms:.0f} ms"
                self._fail(batch, DeliveryTimedOut(f"{batch.place[0]}-{batch.place[1]}: {within}{self._doubt()}"))
            self._send_ready(now_ms)
            due_ms = self._accumulator.next_due_ms(now_ms)
            wait_ms = self._options.retry_backoff_ms if not self._accumulator.is_empty else None
            if due_ms is not None:
                wait_ms = max(0.0, due_ms - now_ms)
            try:
                async with asyncio.timeout(None if wait_ms is None else wait_ms / 1000):
                    await self._wake.wait()
            except TimeoutError:
                continue

    def _doubt(self) -> str:
        return f" ({self._topics.last_problem})" if self._topics.last_problem else ""

    def _send_ready(self, now_ms: float) -> None:
        if self._options.is_idempotent and self._sequences.identity == NO_IDENTITY:
            if not self._accumulator.is_empty and not self._has_identity_task:
                # one request for an identity at a time: a second one would waste a producer id
                self._has_identity_task = True
                self._keep(asyncio.get_running_loop().create_task(self._get_identity()))
            return
        by_leader: dict[int, list[Outgoing[RecordToken]]] = {}
        sizes: dict[int, int] = {}
        for batch in self._accumulator.ready(now_ms):
            leader = self._topics.leader_of(*batch.place)
            if leader < 0:
                self._topics.doubt(batch.place[0])
                continue
            size = sizes.get(leader, 0)
            # a leader with a full request queue does not delay the others: its batches stay ready
            if self._in_flight.get(leader, 0) >= self._options.in_flight_max or (
                size and size + batch.size_bytes > self._options.request_bytes_max
            ):
                continue
            by_leader.setdefault(leader, []).append(batch)
            sizes[leader] = size + batch.size_bytes
        for leader, batches in by_leader.items():
            for batch in batches:
                # stamped when sent: a batch that was split or dropped before has used no sequence
                self._sequences.stamp(batch)
                self._accumulator.begin(batch)
            self._in_flight[leader] = self._in_flight.get(leader, 0) + 1
            self._keep(asyncio.get_running_loop().create_task(self._request(leader, batches)))

    async def _get_identity(self) -> None:
        try:
            self._sequences.renew(ProducerIdentity(await self._client.new_producer_id(), 0))
        except KafkaClientError as error:
            self._topics.last_problem = str(error)
            await asyncio.sleep(self._options.retry_backoff_ms / 1000)
        finally:
            self._has_identity_task = False
            self._wake.set()

    async def _request(self, node_id: int, batches: Sequence[Outgoing[RecordToken]]) -> None:
        self.counts.requests += 1
        timeout_ms = self._options.request_timeout_ms
        request = produce_request(
            batches,
            self._topics.topic_id,
            acks=self._options.acks,
            timeout_ms=timeout_ms,
            compression=self._options.compression,
        )
        try:
            response = await self._client.produce_to(node_id, request, timeout_ms=timeout_ms)
        except KafkaClientError as error:
            for batch in batches:
                # it is unknown whether it was appended: only the same sequence may be sent again
                batch.is_doubtful = True
                self._settle(batch, error, is_final=isinstance(error, UnsupportedApi))
            return
        finally:
            self._in_flight[node_id] -= 1
            self._wake.set()
        if response is None:
            for batch in batches:
                self._deliver(batch, -1)
            return
        answers = produced_by_partition(request, response)
        for batch in batches:
            self._judge(batch, answers.get(batch.place), node_id)

    def _judge(self, batch: Outgoing[RecordToken], produced: PartitionProduced | None, node_id: int) -> None:
        code = ErrorCode.unknown_server_error if produced is None else error_code(produced.error_code)
        verdict = judge(code)
        if verdict is Verdict.DELIVERED:
            self._deliver(batch, -1 if produced is None else produced.base_offset)
            return
        if code is ErrorCode.message_too_large and self._closed_because is None:
            # never appended, so its sequence is free: the halves use it
            self._sequences.take_back(batch)
            if self._accumulator.split(batch):
                return
        batch.is_doubtful |= code in MAY_BE_APPENDED
        reason = None if produced is None else produced.error_message
        place = f"{batch.place[0]}-{batch.place[1]}"
        error = broker_error(code, message=f"{place}: {reason}" if reason else place, node=f"node {node_id}", api_key=0)
        self._settle(batch, error, is_final=verdict is Verdict.GIVE_UP)

    def _settle(self, batch: Outgoing[RecordToken], error: KafkaClientError, *, is_final: bool) -> None:
        """A batch that was not delivered: send it again, or reject it."""
        # closed: every record has failed already
        if self._closed_because is not None:
            return
        attempts_max = self._options.attempts_max
        if is_final or (attempts_max is not None and batch.attempts >= attempts_max):
            self._accumulator.finish(batch)
            self._fail(batch, error)
            return
        self.counts.retries += 1
        self._topics.last_problem = str(error)
        self._topics.doubt(batch.place[0])
        backoff_ms = self._options.retry_backoff_ms
        self._accumulator.send_again(batch, not_before_ms=self._clock.monotonic_ms() + backoff_ms)

    def _deliver(self, batch: Outgoing[RecordToken], base_offset: int) -> None:
        if self._closed_because is not None:
            return
        self._accumulator.finish(batch)
        self.counts.delivered += len(batch.tokens)
        for number, token in enumerate(batch.tokens):
            token.deliver(Delivered(*batch.place, base_offset + number if base_offset >= 0 else -1))
        self._budget.release(batch.queued_bytes, len(batch.tokens))

    def _fail(self, batch: Outgoing[RecordToken], error: Exception) -> None:
        # a lost batch leaves a hole in the sequences, which only a new identity can pass
        if self._sequences.is_over_with(batch):
            self._sequences.renew(NO_IDENTITY)
        self._reject(batch, error)
        if self._options.is_aborting_on_failure:
            self._end(error)

    def _reject(self, batch: Outgoing[RecordToken], error: Exception) -> None:
        self.counts.failed += len(batch.tokens)
        for token in batch.tokens:
            token.reject(error)
        self._budget.release(batch.queued_bytes, len(batch.tokens))

    def _end(self, error: Exception) -> None:
        if self._closed_because is None:
            self._closed_because = error
        for batch in self._accumulator.drop_all():
            self._reject(batch, error)
