"""One partition of `__transaction_state` that this broker leads: the transaction machine, its
timeouts, the markers under way.

The common part of internal partitions is in `broker/coordination/state_shard.py`. A decision to end
a transaction is carried out in the background, by a task for each transaction; a caller that needs
the end of the transaction can wait for it. Called by `transaction_coordinator.py` only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol, assert_never

from broker.coordination.shard_lanes import Access
from broker.coordination.shard_writes import Content
from broker.coordination.state_shard import InternalLog, StateShard
from broker.coordination.timer_queue import TimerQueue
from broker.transactions.core import transaction_records
from broker.transactions.core.transaction_machine import TransactionLimits, Transactions
from broker.transactions.core.transaction_messages import (
    Abandon,
    AddReply,
    CancelTimeout,
    MarkersWritten,
    Resume,
    StartTimeout,
    TimeOut,
    TransactionAnswer,
    TransactionCommand,
    TransactionDecision,
    TransactionReply,
    TransactionStored,
    VerifyPartitions,
    WriteMarkers,
)
from broker.transactions.core.transaction_states import Transaction
from runtime.clock import Clock
from runtime.logs import get_logger
from runtime.supervision import until_done
from wire.batches.records import Record, decode_records
from wire.protocol.byte_reader import Malformed

log = get_logger(__name__)


class Markers(Protocol):
    """Writes the decision of a transaction to its partitions."""

    async def send(self, transaction: Transaction, coordinator_epoch: int) -> None:
        """Return when every partition is done."""
        ...


class TransactionShard(StateShard[TransactionCommand, TransactionReply, TransactionDecision]):
    """The transactional ids of one partition that this broker leads."""

    def __init__(
        self,
        partition: int,
        leader_epoch: int,
        *,
        limits: TransactionLimits,
        internal_log: InternalLog,
        clock: Clock,
        markers: Markers,
        on_failure: Callable[[StateShard[Any, Any, Any]], None],
        is_elsewhere: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_elsewhere` says whether another site coordinates instead of this one."""
        super().__init__(partition, leader_epoch, internal_log=internal_log, clock=clock, on_failure=on_failure)
        self.transactions = Transactions(limits)
        self.timeouts: TimerQueue[str] = TimerQueue(clock, self._time_out)
        self._markers = markers
        self._is_elsewhere = is_elsewhere
        self._sending: set[asyncio.Task[None]] = set()
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}

    async def wait_until_over(self, transactional_id: str, *, timeout_ms: float) -> None:
        """Return when no markers are under way for the transactional id, or after the timeout."""
        known = self.transactions.get(transactional_id)
        if known is None or not known.state.is_ending:
            return
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        waiting = self._waiting.setdefault(transactional_id, [])
        waiting.append(over)
        try:
            await asyncio.wait([over], timeout=timeout_ms / 1000)
        finally:
            waiting.remove(over)

    def answer_now(self, question: VerifyPartitions) -> AddReply | None:
        """The answer, None while something about the transactional id is on its way into the
        log, or when the log has to confirm the answer.
        """
        # while a record is being appended, the machine's own answer would be out of date
        return None if question.transactional_id in self._lanes else self.transactions.verified(question)

    # --- loading

    def _replay(self, batches: bytes) -> int:
        record_count = 0
        for record in decode_records(batches):
            self._replay_record(record)
            record_count += 1
        return record_count

    def _replay_record(self, record: Record) -> None:
        if record.key is None:
            return
        try:
            fact = transaction_records.decode(record.key, record.value)
        except Malformed as error:
            # One record that cannot be decoded must not remove all transactions of the partition.
            log.warning(
                "unreadable transaction record skipped",
                partition=self.partition,
                offset=record.offset,
                reason=str(error),
            )
            return
        if fact is not None:
            self.transactions.apply(fact)

    def _resume(self) -> None:
        for transaction in self.transactions:
            self.submit(Resume(transactional_id=transaction.transactional_id))
        # A shard that is loaded after a change of the role must not wait for the next change.
        if self._is_elsewhere():
            self.abandon()

    def abandon(self) -> None:
        """Abort all open transactions, also those that earlier commands are about to open: another
        site coordinates now.
        """
        # lanes too: a command under way may open a transaction that is not in the machine yet
        for name in {*(transaction.transactional_id for transaction in self.transactions), *self._lanes}:
            self.submit(Abandon(transactional_id=name))

    # --- commands

    def _lane_of(self, command: TransactionCommand) -> str:
        return command.transactional_id

    def _access(self, command: TransactionCommand) -> Access:  # noqa: ARG002  the base's signature
        return Access.ALONE

    def _decide(self, command: TransactionCommand, token: int) -> TransactionDecision:
        decision = self.transactions.decide(command, now_ms=self._clock.now_ms(), token=token)
        if decision.reason:
            log.info("transaction", id=command.transactional_id, partition=self.partition, reason=decision.reason)
        return decision

    def _content_of(self, decision: TransactionDecision) -> Content:
        return [Record(*transaction_records.encode(record)) for record in decision.records]

    def _apply(self, decision: TransactionDecision) -> None:
        for record in decision.records:
            self.transactions.apply(record)
            # the end is in memory and in the log: waiting clients may ask for the next producer id
            if isinstance(record, TransactionStored) and not record.transaction.state.is_ending:
                _wake(self._waiting.pop(record.transaction.transactional_id, ()))

    def _act(self, decision: TransactionDecision) -> None:
        for effect in decision.effects:
            match effect:
                case TransactionAnswer(token=token, reply=reply):
                    self._answer(token, reply)
                case StartTimeout(transactional_id=name, delay_ms=delay_ms):
                    self.timeouts.start(name, delay_ms)
                case CancelTimeout(transactional_id=name):
                    self.timeouts.cancel(name)
                case WriteMarkers(transaction=transaction):
                    self._send_markers(transaction)
                case _:
                    assert_never(effect)

    def _send_markers(self, transaction: Transaction) -> None:
        # Otherwise the transaction would be neither open nor ended for as long as this broker
        # coordinates it.
        work = until_done("transaction markers", partial(self._carry_out, transaction))
        task = asyncio.get_running_loop().create_task(work)
        self._sending.add(task)
        task.add_done_callback(self._sending.discard)

    async def _carry_out(self, transaction: Transaction) -> None:
        await self._markers.send(transaction, self.leader_epoch)
        # a shard that has ended must not write: another broker coordinates the partition
        if not self.is_ended:
            self.submit(
                MarkersWritten(
                    transactional_id=transaction.transactional_id,
                    producer_id=transaction.producer_id,
                    producer_epoch=transaction.producer_epoch,
                )
            )

    def _time_out(self, transactional_id: str) -> None:
        self.submit(TimeOut(transactional_id=transactional_id))

    def _stop(self) -> None:
        self.timeouts.stop()
        for task in tuple(self._sending):
            task.cancel()
        for waiting in self._waiting.values():
            _wake(waiting)
        self._waiting.clear()


def _wake(waiting: Iterable[asyncio.Future[None]]) -> None:
    for future in waiting:
        if not future.done():
            future.set_result(None)
