"""Transactions of a translate link at its target: records and the notes of them become visible together (`core/transaction_cycle.py`).

One producer for a link, by its transactional id: whoever opens it last fences all others, and has their open transaction aborted.
Writers (`transactional_append.py`) enter the open transaction, or begin one; a task for each transaction ends it in time, with the
positions and map runs of everything in it as its last records. What goes wrong breaks it off, and the next writer opens anew.

A producer that is fenced may have been replaced by another mirror, or only have been silent for longer than the transaction's timeout. The
link's topic tells: each mirror notes a token of its own first of all. Who finds another's behind its own has been replaced, and stays out.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Sequence
from typing import Protocol, TypeVar

from kio.schema.errors import ErrorCode

from mirror.core.partitions import PartitionKey
from mirror.core.renumbering import Stamp, next_sequence
from mirror.core.stored_map import StoredLink, StoredRecord, owner_record, writer_record
from mirror.core.transaction_cycle import CycleLimits, Phase, Place, TransactionCycle
from mirror.kafka_site import reached
from mirror.offset_store import OffsetStore, encoded, read_topic
from mirror.ports import Unreachable
from runtime.clock import Clock
from runtime.logs import get_logger, state_change_logger
from runtime.retries import jittered_backoff
from wire.client import KafkaClient
from wire.client_errors import TRANSIENT, BrokerError, KafkaClientError, broker_error, error_code
from wire.connection import Connection
from wire.produce_codec import PartitionRecords, ProduceRequest, TopicRecords
from wire.record_batch import BatchHeader
from wire.transaction_requests import ProducerIdentity, request_end, request_identity, request_partitions

TRANSACTIONAL_ID_PREFIX = "antipode-mirror."

REOPEN_MS = 500
"""After a transaction was broken off: time for a mirror that has taken over to say so, before we open anew."""

LAST_ABORT_TIMEOUT_S = 3.0

_log = get_logger("mirror.transactions")
_state_change = state_change_logger()

Result = TypeVar("Result")


class TakenOver(Unreachable):
    """Another mirror of the link writes now; this one must not."""


class Book(Protocol):
    """What is noted of the link (`translations.py`)."""

    def notes(self, keys: Iterable[PartitionKey]) -> Sequence[Sequence[StoredRecord]]:
        """What is to be noted when everything planned of these partitions is done, with what else has changed."""
        ...

    def settle(self, keys: Iterable[PartitionKey]) -> None:
        """The last notes, and with them everything planned of these partitions, count."""
        ...

    def give_up(self, keys: Iterable[PartitionKey]) -> None:
        """The last notes do not count, and nothing planned of these partitions."""
        ...

    async def load(self) -> None:
        """Read what the target has noted, and go by that."""
        ...


class Transaction:
    """One transaction as its writers see it. `over` resolves when it is committed, with Unreachable when it was broken off."""

    def __init__(self, stamp: ProducerIdentity) -> None:
        self.stamp = stamp
        self.notes: list[Sequence[StoredRecord]] = []
        # Partitions whose brokers know already that they belong to it.
        self.begun: set[Place] = set()
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Nobody may be waiting.
        self.over.add_done_callback(lambda over: over.cancelled() or over.exception())


class Coordinator:
    """The target's coordinator of a link's transactional id, looked up again after a failure."""

    def __init__(self, client: KafkaClient, link: str, *, timeout_ms: int) -> None:
        self._client = client
        self._timeout_ms = timeout_ms
        self._node_id = -1
        self.transactional_id = TRANSACTIONAL_ID_PREFIX + link

    async def fence(self) -> ProducerIdentity:
        """A new epoch: whoever wrote under the id can do so no longer, and what was open is aborted. Unreachable."""
        return await self._asked(
            lambda connection: request_identity(connection, self.transactional_id, timeout_ms=self._timeout_ms)
        )

    async def add(self, stamp: ProducerIdentity, places: Sequence[Place]) -> None:
        """Let the open transaction, or a new one, include these. Unreachable."""
        await self._asked(lambda connection: request_partitions(connection, self.transactional_id, stamp, places))

    async def end(self, stamp: ProducerIdentity, *, is_commit: bool) -> None:
        """End the open transaction. Unreachable: its outcome is not known."""
        await self._asked(lambda connection: request_end(connection, self.transactional_id, stamp, is_commit=is_commit))

    async def _asked(self, ask: Callable[[Connection], Awaitable[Result]]) -> Result:
        """Asked again while the coordinator moves, loads or still ends the transaction before."""

        async def once() -> Result:
            if self._node_id < 0:
                self._node_id = await self._client.transaction_coordinator(self.transactional_id)
            node_id = self._node_id
            try:
                return await ask(await self._client.connection(node_id))
            except KafkaClientError as error:
                if not is_still_ending(error):
                    self._node_id = -1
                raise

        retrying = jittered_backoff(retry_on=TRANSIENT, initial_ms=4, max_ms=200, budget_ms=self._timeout_ms / 2)
        result: Result = await reached(retrying(once))
        return result


class Transactions:
    """All transactions of one link; one event loop only."""

    def __init__(
        self,
        client: KafkaClient,
        store: OffsetStore,
        *,
        link: str,
        origin: str,
        limits: CycleLimits,
        clock: Clock,
        timeout_ms: int,
        request_timeout_ms: int,
    ) -> None:
        self._client = client
        self._store = store
        self._origin = origin
        self._clock = clock
        self._request_timeout_ms = request_timeout_ms
        self._coordinator = Coordinator(client, link, timeout_ms=timeout_ms)
        self.transactional_id = self._coordinator.transactional_id
        self._cycle = TransactionCycle(limits)
        self._identity = ProducerIdentity(-1, -1)
        self._note_sequence = 0
        self._opening = asyncio.Lock()
        self._opened_not_before_ms = 0.0
        self._instance = uuid.uuid4().hex
        self._tokens = 0
        # The offset of our last notes in the link's topic; -1 before the first ones.
        self._noted_at = -1
        self._reason = ""
        # Why another mirror writes now and this one must not; empty while none does.
        self.taken_over = ""
        self._current: Transaction | None = None
        # Whose broken transaction may still be open at the target.
        self._left_open: ProducerIdentity | None = None
        self._ending: asyncio.Task[None] | None = None
        self._beginnings: dict[int, asyncio.Lock] = {}
        self._changed = asyncio.Event()
        self.book: Book

    # For writers.

    async def ready(self) -> None:
        """Have a producer. TakenOver; Unreachable while the target does not give one."""
        async with self._opening:
            if self.taken_over:
                raise TakenOver(self.taken_over)
            if self._cycle.phase is not Phase.CLOSED:
                return
            if self._clock.monotonic_ms() < self._opened_not_before_ms:
                raise Unreachable(f"the transaction was broken off: {self._reason}")
            try:
                await self._open()
            except BaseException:
                self._opened_not_before_ms = self._clock.monotonic_ms() + REOPEN_MS
                raise

    async def enter(self) -> Transaction:
        """The open transaction, or a new one, for a writer that will `leave` or `break_off`. As `ready`."""
        while True:
            await self.ready()
            if self._cycle.may_enter:
                break
            if self._current is not None:
                await asyncio.wait([self._current.over])
        if self._cycle.enter(self._clock.monotonic_ms()) or self._current is None:
            self._current = Transaction(self._identity)
            self._ending = asyncio.get_running_loop().create_task(self._end_in_time(self._current))
        return self._current

    def leave(self, transaction: Transaction) -> None:
        """A writer is done; `transaction.over` tells what became of it."""
        if transaction is self._current:
            self._cycle.leave()
            self._changed.set()

    def carry(
        self,
        transaction: Transaction,
        key: PartitionKey,
        headers: Sequence[BatchHeader],
        *,
        left_out: Collection[int],
        size_bytes: int,
    ) -> None:
        """As the cycle's `carry`, for a writer that has entered and not left."""
        if transaction is self._current:
            self._cycle.carry(key, headers, left_out=left_out, size_bytes=size_bytes)
            self._changed.set()

    async def add(self, transaction: Transaction, places: Iterable[Place]) -> None:
        """Have the coordinator know that these partitions are written to. Unreachable."""
        wanted = self._cycle.unadded(places)
        if transaction is not self._current:
            raise Unreachable(f"the transaction was broken off: {self._reason}")
        if wanted:
            await self._coordinator.add(transaction.stamp, wanted)
            if transaction is self._current:
                self._cycle.add(wanted)

    @contextlib.asynccontextmanager
    async def beginning(self, transaction: Transaction, node_id: int) -> AsyncIterator[None]:
        """For the first batches of a transaction in partitions of a broker: one writer after the other. Unreachable.

        Apache Kafka's broker (KIP-890) refuses the first of two at once as not_enough_replicas, with a NETWORK_EXCEPTION.
        """
        async with self._beginnings.setdefault(node_id, asyncio.Lock()):
            if transaction is not self._current:
                raise Unreachable(f"the transaction was broken off: {self._reason}")
            yield

    def break_off(self, transaction: Transaction, reason: str) -> None:
        """Something in the transaction went wrong: nothing of it is to be seen, and it is written again in another one."""
        if transaction is not self._current:
            return
        _log.warning("the transaction is broken off", reason=reason)
        self._reason = reason
        self._current = None
        self._left_open = transaction.stamp if self._cycle.places else None
        keys = list(self._cycle.keys)
        self._cycle.break_off()
        self._opened_not_before_ms = self._clock.monotonic_ms() + REOPEN_MS
        self.book.give_up(keys)
        transaction.over.set_exception(Unreachable(f"the transaction was broken off: {reason}"))
        self._changed.set()

    async def write(self, notes: Collection[Sequence[StoredRecord]] = ()) -> None:
        """Note these, and all that has changed; returns when it counts. As `ready`; Unreachable when it does not."""
        transaction = await self.enter()
        transaction.notes += notes
        self._cycle.hasten()
        self.leave(transaction)
        await asyncio.shield(transaction.over)

    async def close(self) -> None:
        """End; what is open is aborted, so that readers need not wait for its timeout."""
        if self._ending is not None:
            self._ending.cancel()
            await asyncio.gather(self._ending, return_exceptions=True)
        if self._current is not None:
            self.break_off(self._current, "the mirror ends")
        if self._left_open is not None:
            with contextlib.suppress(TimeoutError, Unreachable):
                async with asyncio.timeout(LAST_ABORT_TIMEOUT_S):
                    await self._coordinator.end(self._left_open, is_commit=False)

    # The end of a transaction.

    async def _end_in_time(self, transaction: Transaction) -> None:
        try:
            while transaction is self._current:
                self._changed.clear()
                wait_ms = self._cycle.due_in_ms(self._clock.monotonic_ms())
                if wait_ms <= 0:
                    break
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_ms / 1000):
                        await self._changed.wait()
            if transaction is self._current:
                self._cycle.take_nobody()
            while transaction is self._current and not self._cycle.may_end:
                self._changed.clear()
                await self._changed.wait()
            if transaction is self._current:
                await self._commit(transaction)
        except Unreachable as error:
            self.break_off(transaction, str(error))
        except Exception as error:
            # A story for whoever reads the log; writers must not wait for ever.
            _log.exception("ending a transaction failed")
            self.break_off(transaction, f"{type(error).__name__}: {error}")

    async def _commit(self, transaction: Transaction) -> None:
        self._cycle.end()
        keys = list(self._cycle.keys)
        notes = [*transaction.notes, *self.book.notes(keys)]
        if notes:
            if self._cycle.unadded([self._place]):
                await self._coordinator.add(transaction.stamp, [self._place])
                self._cycle.add([self._place])
            await self._write_notes(transaction.stamp, notes)
        if self._cycle.places:
            await self._coordinator.end(transaction.stamp, is_commit=True)
        self._cycle.committed()
        self.book.settle(keys)
        self._current = None
        transaction.over.set_result(None)

    @property
    def _place(self) -> Place:
        return (self._store.topic, 0)

    async def _write_notes(self, stamp: ProducerIdentity, notes: Sequence[Sequence[StoredRecord]]) -> None:
        for records in encoded(notes, now_ms=self._clock.now_ms()):
            batch = records.sealed(Stamp(*stamp, self._note_sequence))
            topic = TopicRecords(self._store.topic, None, [PartitionRecords(0, batch)])
            request = ProduceRequest(self.transactional_id, -1, self._request_timeout_ms, [topic])
            self._noted_at = await reached(self._produce(request))
            self._note_sequence = next_sequence(self._note_sequence, records.count)

    async def _produce(self, request: ProduceRequest) -> int:
        """The offset at which the batch lies."""
        node_id = await self._client.leader(*self._place)
        try:
            response = await self._client.produce_to(node_id, request)
        except TRANSIENT:
            self._client.forget_leaders([self._store.topic])
            raise
        assert response is not None
        produced = response.topics[0].partitions[0]
        if produced.error_code:
            self._client.forget_leaders([self._store.topic])
            raise broker_error(error_code(produced.error_code), message=produced.error_message, api_key=0)
        return produced.base_offset

    # The producer.

    async def _open(self) -> None:
        if self._noted_at >= 0:
            await self._look_for_successor()
        stamp = await self._coordinator.fence()
        self._note_sequence, self._left_open = 0, None
        await self._store.create()
        if self._cycle.must_read:
            # All that was written under earlier epochs is decided by now, and whoever writes under them is refused.
            await self.book.load()
        self._tokens += 1
        own = [owner_record(self._token), writer_record(self._origin, stamp.producer_id)]
        await self._coordinator.add(stamp, [self._place])
        await self._write_notes(stamp, [own])
        await self._coordinator.end(stamp, is_commit=True)
        self._identity = stamp
        self._cycle.open()
        _state_change.info(
            "writing in transactions",
            transactional_id=self.transactional_id,
            producer_id=stamp.producer_id,
            epoch=stamp.producer_epoch,
        )

    @property
    def _token(self) -> str:
        return f"{self._instance}/{self._tokens}"

    async def _look_for_successor(self) -> None:
        """TakenOver when another mirror has noted its token after ours."""
        seen = StoredLink()
        await read_topic(self._client, self._store.topic, seen.apply, first_offset=self._noted_at)
        if seen.owner and not seen.owner.startswith(self._instance):
            self.taken_over = (
                f"another mirror writes in the name of {self.transactional_id} now, and has fenced this one; "
                "it stays out until it is started again"
            )
            _state_change.warning(self.taken_over)
            raise TakenOver(self.taken_over)


def is_still_ending(error: KafkaClientError) -> bool:
    """Whether the coordinator only has to finish the transaction before."""
    return isinstance(error, BrokerError) and error.code is ErrorCode.concurrent_transactions
