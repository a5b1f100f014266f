"""Transactions of a translate link at its target: records and the notes of them become visible
together (`core/transaction_cycle.py`).

One producer for a mirror, by its transactional id: opening it fences the previous producer, and has
its open transaction aborted. Writers (`transactional_append.py`) enter the open transaction, or
begin one; a task for each transaction ends it in time, with the positions and map runs of
everything in it as its last records. Every error aborts it, and the next writer opens anew.

Each opening notes in the link's topic which slots it claims (`core/claims.py`), fences every
earlier claim of any of them, and then reads the positions. All mirrors of a link that is not shared
have one id. A producer that is fenced there may have been replaced, or may only have sent nothing
for longer than the transaction's timeout. A daemon that finds a later claim of another daemon has
been replaced, and stays out. Daemons that share a link have an id each, and open a new transaction
whenever their slots differ from the claimed ones.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Sequence

from mirror.link.core.slots import slot_of
from mirror.link.ports import Unreachable
from mirror.translate.claiming import fence_rivals, successor_in
from mirror.translate.core.transaction_cycle import CycleLimits, Phase, TransactionCycle
from mirror.translate.metrics import TransactionMetrics
from mirror.translate.note_writer import NoteWriter
from mirror.translate.notes.core.claims import Claim, ClaimName
from mirror.translate.notes.core.stored_map import StoredRecord, claim_record, claim_tombstone, writer_record
from mirror.translate.notes.offset_store import OffsetStore
from mirror.translate.transaction import Book, TakenOver, Transaction, is_fencing
from mirror.translate.transaction_coordinator import TransactionCoordinator
from runtime.chance import new_uuid
from runtime.clock import Clock
from runtime.logs import get_logger, state_change_logger
from runtime.supervision import was_asked_to_end
from wire.batches.record_batch import BatchHeader
from wire.client.raw_client import KafkaClient
from wire.client.requests.transaction_requests import ProducerIdentity
from wire.control.mirror_pb2 import MirrorTransactions
from wire.protocol.ids import PartitionKey, TopicPartition

TRANSACTIONAL_ID_PREFIX = "antipode-mirror."

REOPEN_MS = 500
"""Pause (ms) after an aborted transaction, in which a mirror that has replaced this one can note
its claim.
"""

LAST_ABORT_TIMEOUT_S = 3.0

_log = get_logger("mirror.transactions")
_state_change = state_change_logger()


class Transactions:
    """All transactions of one link; one event loop only."""

    def __init__(
        self,
        client: KafkaClient,
        store: OffsetStore,
        *,
        link: str,
        is_shared: bool,
        origin: str,
        limits: CycleLimits,
        clock: Clock,
        metrics: TransactionMetrics,
        timeout_ms: int,
        request_timeout_ms: int,
    ) -> None:
        self._client = client
        self._store = store
        self._origin = origin
        self._clock = clock
        self._request_timeout_ms = request_timeout_ms
        self._mirror = new_uuid().hex
        self._timeout_ms = timeout_ms
        self.transactional_id = TRANSACTIONAL_ID_PREFIX + link + (f".{self._mirror}" if is_shared else "")
        self._coordinator = self._coordinator_of(self.transactional_id)
        # Returns the slots that this mirror must write, called repeatedly; None means all.
        self.slots: Callable[[], frozenset[int] | None] = lambda: frozenset() if is_shared else None
        self._cycle = cycle = TransactionCycle(limits)
        self._metrics = metrics
        metrics.open_records = lambda: cycle.record_count
        metrics.open_for_ms = lambda: cycle.open_for_ms(clock.monotonic_ms())
        self._identity = ProducerIdentity(-1, -1)
        self._notes = NoteWriter(client, store, clock, self.transactional_id, request_timeout_ms=request_timeout_ms)
        self._opening = asyncio.Lock()
        self._opened_not_before_ms = 0.0
        # The claim of the last opening, and the offset in the link's topic from which claims are
        # later ones.
        self._claim: Claim | None = None
        self._claimed_at = -1
        # How often the producer was opened: earlier reads of the target may be outdated after that.
        self.era = 0
        self._reason = ""
        # The reason why another mirror writes instead of this one; empty while none does.
        self.taken_over = ""
        self._current: Transaction | None = None
        # The epoch of a transaction that was given up and may still be open at the target.
        self._left_open: ProducerIdentity | None = None
        self._ending: asyncio.Task[None] | None = None
        self._beginnings: dict[int, asyncio.Lock] = {}
        self._coming = 0
        self._changed = asyncio.Event()
        self.book: Book

    # Calls of writers.

    async def ready(self) -> None:
        """Have a producer for this mirror's slots. TakenOver; Unreachable while the target does not
        give one.
        """
        async with self._opening:
            if self.taken_over:
                raise TakenOver(self.taken_over)
            if self._cycle.phase is not Phase.CLOSED and self._has_claimed(self.slots()):
                return
            await self._end_of_epoch()
            if self._clock.monotonic_ms() < self._opened_not_before_ms:
                raise Unreachable(f"the transaction was aborted: {self._reason}")
            try:
                await self._open()
            except BaseException:
                self._opened_not_before_ms = self._clock.monotonic_ms() + REOPEN_MS
                raise

    def holds(self, key: TopicPartition) -> bool:
        """True if this mirror claimed the partition when it opened its producer; otherwise another
        mirror may write it.
        """
        return self._claim is not None and (self._claim.slots is None or slot_of(key) in self._claim.slots)

    @contextlib.contextmanager
    def coming(self) -> Iterator[None]:
        """A writer waits until it may `enter`: a transaction that is about to end still
        admits it.
        """
        self._coming += 1
        try:
            yield
        finally:
            self._coming -= 1
            self._changed.set()

    async def enter(self) -> Transaction:
        """The open transaction, or a new one, for a writer that will `leave` or `break_off`. As
        `ready`.
        """
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
        """Note that a writer has finished; `transaction.over` has the outcome of the
        transaction.
        """
        if transaction is self._current:
            self._cycle.leave()
            self._changed.set()

    def fill(self, transaction: Transaction) -> None:
        """End the transaction soon: a sender waits for all the answers that it may wait for."""
        if transaction is self._current:
            self._cycle.fill()
            self._changed.set()

    def carry(
        self,
        transaction: Transaction,
        key: TopicPartition,
        headers: Sequence[BatchHeader],
        *,
        skipped: Collection[int],
        size_bytes: int,
    ) -> None:
        """Carry batches like the cycle's `carry`, for a writer that has entered and not left."""
        if transaction is self._current:
            self._cycle.carry(key, headers, skipped=skipped, size_bytes=size_bytes)
            self._changed.set()

    async def add(self, transaction: Transaction, places: Iterable[PartitionKey]) -> None:
        """Add these partitions to the transaction at the coordinator. Raises Unreachable."""
        wanted = self._cycle.unadded(places)
        if transaction is not self._current:
            raise Unreachable(f"the transaction was aborted: {self._reason}")
        if wanted:
            # The notes' partition is added in the same request, which saves a request at the
            # commit.
            wanted = self._cycle.unadded([*wanted, self._place])
            await self._coordinator.add(transaction.stamp, wanted)
            if transaction is self._current:
                self._cycle.add(wanted)

    @contextlib.asynccontextmanager
    async def beginning(self, transaction: Transaction, node_id: int) -> AsyncIterator[None]:
        """Let one writer after the other send its first batches of a transaction to a broker.
        Unreachable.

        Apache Kafka's broker (KIP-890) refuses the first of two at once as not_enough_replicas,
        with a NETWORK_EXCEPTION.
        """
        async with self._beginnings.setdefault(node_id, asyncio.Lock()):
            if transaction is not self._current:
                raise Unreachable(f"the transaction was aborted: {self._reason}")
            yield

    def break_off(self, transaction: Transaction, reason: str, *, is_fenced: bool = False) -> None:
        """Abort the transaction after an error: no reader sees its records, and another transaction
        writes them again.
        """
        if transaction is not self._current:
            return
        _log.warning("the transaction is aborted", reason=reason)
        self._metrics.record_aborted(is_fenced=is_fenced)
        self._reason = reason
        self._current = None
        self._left_open = transaction.stamp if self._cycle.places else None
        keys = list(self._cycle.keys)
        self._cycle.break_off()
        self._opened_not_before_ms = self._clock.monotonic_ms() + REOPEN_MS
        self.book.give_up(keys)
        transaction.over.set_exception(Unreachable(f"the transaction was aborted: {reason}"))
        self._changed.set()

    async def write(self, notes: Collection[Sequence[StoredRecord]] = ()) -> None:
        """Write these notes and all other changes; returns when they are committed. Raises as
        `ready`, and Unreachable when they are not committed.
        """
        transaction = await self.enter()
        transaction.notes += notes
        self._cycle.hasten()
        self.leave(transaction)
        await asyncio.shield(transaction.over)

    def describe(self) -> MirrorTransactions:
        """The state for MirrorAdmin and metrics."""
        return MirrorTransactions(
            transactional_id=self.transactional_id,
            committed=self._metrics.committed,
            aborted=self._metrics.aborted,
            fenced=self._metrics.fenced,
            open_records=self._cycle.record_count,
            open_ms=int(self._cycle.open_for_ms(self._clock.monotonic_ms())),
        )

    async def close(self) -> None:
        """End; the open transaction is aborted, so that readers need not wait for its timeout."""
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
                wait_ms = self._cycle.due_in_ms(self._clock.monotonic_ms(), is_writer_coming=self._coming > 0)
                if wait_ms <= 0:
                    break
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_ms / 1000):
                        await self._changed.wait()
            if transaction is self._current:
                self._cycle.refuse_all()
            while transaction is self._current and not self._cycle.may_end:
                self._changed.clear()
                await self._changed.wait()
            if transaction is self._current:
                await self._commit(transaction)
        except Unreachable as error:
            self.break_off(transaction, str(error), is_fenced=is_fencing(error))
        except (Exception, asyncio.CancelledError) as error:
            if was_asked_to_end():
                raise
            # The log has the cause; the writers get an error, because they must not wait for ever.
            _log.exception("ending a transaction failed")
            self.break_off(transaction, f"{type(error).__name__}: {error}")

    async def _commit(self, transaction: Transaction) -> None:
        began_ms = self._clock.monotonic_ms()
        self._cycle.end()
        keys = list(self._cycle.keys)
        notes = [*transaction.notes, *self.book.notes(keys)]
        if notes:
            if self._cycle.unadded([self._place]):
                await self._coordinator.add(transaction.stamp, [self._place])
                self._cycle.add([self._place])
            await self._notes.write(transaction.stamp, notes)
        if self._cycle.places:
            await self._coordinator.end(transaction.stamp, is_commit=True)
            now_ms = self._clock.monotonic_ms()
            self._metrics.record_committed(open_ms=self._cycle.open_for_ms(now_ms), commit_ms=now_ms - began_ms)
        self._cycle.committed()
        self.book.settle(keys)
        self._current = None
        transaction.over.set_result(None)

    @property
    def _place(self) -> PartitionKey:
        return self._notes.place

    # The producer.

    def _coordinator_of(self, transactional_id: str) -> TransactionCoordinator:
        return TransactionCoordinator(self._client, transactional_id, timeout_ms=self._timeout_ms)

    def _has_claimed(self, slots: frozenset[int] | None) -> bool:
        return self._claim is not None and self._claim.slots == slots

    async def _end_of_epoch(self) -> None:
        """Wait for the open transactions under superseded claims to end."""
        if self._current is not None:
            self._cycle.hasten()
            self._changed.set()
            await asyncio.wait([self._current.over])
        if self._cycle.phase is Phase.IDLE:
            self._cycle.close()

    async def _open(self) -> None:
        if self._claim is not None:
            await self._refuse_when_taken_over(self._claim)
        stamp = await self._coordinator.fence()
        self._left_open = None
        self._notes.begin()
        await self._store.create()
        name = ClaimName(self.transactional_id, stamp.producer_id, stamp.producer_epoch)
        claim = Claim(name=name, mirror=self._mirror, slots=self.slots())
        own = [claim_record(claim), writer_record(self._origin, stamp.producer_id)]
        if self._claim is not None:
            own.insert(0, claim_tombstone(self._claim))
        self._claimed_at = await self._note(stamp, own)
        self._claim = claim
        fenced = await fence_rivals(claim, self._store, self._coordinator_of)
        if self._cycle.must_read or claim.is_shared:
            # Everything written under the fenced epochs is decided, and further writes under them
            # are refused.
            await self._store.settled()
            await self.book.load()
        if fenced:
            await self._note(stamp, [claim_tombstone(one) for one in fenced])
        self._identity = stamp
        self.era += 1
        self._cycle.open()
        _state_change.info(
            "writing in transactions",
            transactional_id=self.transactional_id,
            producer_id=stamp.producer_id,
            epoch=stamp.producer_epoch,
            slots="all" if claim.slots is None else len(claim.slots),
        )

    async def _note(self, stamp: ProducerIdentity, records: Sequence[StoredRecord]) -> int:
        """Write these notes in a separate transaction, before any other use of the producer;
        returns their offset.
        """
        await self._coordinator.add(stamp, [self._place])
        offset = await self._notes.write(stamp, [records])
        await self._coordinator.end(stamp, is_commit=True)
        return offset

    async def _refuse_when_taken_over(self, own: Claim) -> None:
        successor = await successor_in(self._store, own, since=self._claimed_at)
        if successor is not None:
            name = successor.name.transactional_id or "without transactions"
            self.taken_over = (
                f"another mirror writes as {self.transactional_id} now ({name}), and has fenced this one; "
                "this one writes nothing until it is restarted"
            )
            _state_change.warning(self.taken_over)
            raise TakenOver(self.taken_over)
