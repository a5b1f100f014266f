"""Deliberate defects of the transaction coordinator, of markers and of reads of committed records;
`mutants.py` says what a mutant is.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

from kio.schema.errors import ErrorCode

from broker.coordination.internal_log import InternalLog
from broker.handlers.records.transactional_produce import TransactionalProduce
from broker.transactions import marker_sender
from broker.transactions.core import partition_rules
from broker.transactions.core import transaction_machine as transactions
from broker.transactions.core.transaction_answers import NOTHING
from broker.transactions.core.transaction_messages import (
    EndTransaction,
    MarkersWritten,
    ProducerReply,
    TransactionAnswer,
    TransactionDecision,
)
from broker.transactions.core.transaction_states import Transaction
from broker.transactions.transaction_shard import TransactionShard
from tests.sim.disk import MemoryLog
from tests.sim.mutants import Mutant, Original
from tests.sim.seed_run import Kind


def _refuses_the_next_end(end: Original) -> Original:
    """EndTxn with the other outcome is INVALID_TXN_STATE while markers are being written."""

    def decided(known: Transaction | None, command: EndTransaction, now_ms: int, token: int) -> TransactionDecision:
        if known is not None and known.state.is_ending:
            reply = ProducerReply(error=ErrorCode.invalid_txn_state)
            return TransactionDecision(effects=(TransactionAnswer(token=token, reply=reply),))
        return end(known, command, now_ms, token)  # type: ignore[no-any-return]

    return decided


def _completes_first(send: Original) -> Original:
    def send_markers(self: TransactionShard, transaction: Transaction) -> None:
        send(self, transaction)
        done = MarkersWritten(
            transactional_id=transaction.transactional_id,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
        )
        asyncio.get_running_loop().call_soon(lambda: None if self.is_ended else self.submit(done))

    return send_markers


def _forgets_the_pending(resume: Original) -> Original:
    def resumed(known: Transaction | None, now_ms: int) -> TransactionDecision:
        if known is not None and known.state.is_ending:
            return NOTHING
        return resume(known, now_ms)  # type: ignore[no-any-return]

    return resumed


def _reads_what_is_committed(_: Original) -> Original:
    """The coordinator reads only up to its high watermark, which a new leader does not know yet."""

    async def read_all(self: InternalLog, partition: int) -> Any:
        hosted = self._led(partition)
        end = hosted.state.high_watermark
        with self._replicas.read(
            hosted, hosted.log.log_start_offset, max_bytes=1 << 30, end_offset=end, has_minimum_one_batch=True
        ) as piece:
            yield piece.read_bytes()

    return read_all


def _always(value: Any) -> Any:
    return lambda _: lambda *__, **___: value


TRANSACTION_MUTANTS: Final[tuple[Mutant, ...]] = (
    Mutant(
        title="EndTxn is refused for good while the markers of the transaction before are written",
        owner=transactions,
        name="end",
        substitute=_refuses_the_next_end,
        known_seed=14,
        kind=Kind.TRANSACTIONS,
    ),
    Mutant(
        title="a transaction is complete before its markers are written",
        owner=TransactionShard,
        name="_send_markers",
        substitute=_completes_first,
        known_seed=4,
        is_long=True,
        kind=Kind.TRANSACTIONS,
    ),
    Mutant(
        title="a new coordinator forgets markers that are not written yet",
        owner=transactions,
        name="resume",
        substitute=_forgets_the_pending,
        known_seed=6,
        is_long=True,
        kind=Kind.TRANSACTIONS,
    ),
    Mutant(
        title="a new coordinator reads its log only as far as it knows it to be committed",
        owner=InternalLog,
        name="read_all",
        substitute=_reads_what_is_committed,
        known_seed=2,
        kind=Kind.TRANSACTIONS,
    ),
    Mutant(
        title="a transaction may begin in a partition that does not take part (KIP-890)",
        owner=TransactionalProduce,
        name="may_begin",
        substitute=_always(True),
        known_seed=2,
        kind=Kind.TRANSACTIONS,
    ),
    Mutant(
        title="the epoch of a producer is not checked",
        owner=partition_rules,
        name="producer_error",
        substitute=_always(ErrorCode.none),
        known_seed=2,
        kind=Kind.TRANSACTIONS,
    ),
    Mutant(
        title="readers of committed records are not stopped by open transactions",
        owner=MemoryLog,
        name="last_stable_offset",
        substitute=lambda _: property(lambda log: log.high_watermark),
        known_seed=1,
        kind=Kind.TRANSACTIONS,
    ),
    Mutant(
        title="an aborted transaction does not get into the index",
        owner=MemoryLog,
        name="_note_aborted",
        substitute=_always(None),
        known_seed=1,
        kind=Kind.TRANSACTIONS,
    ),
    Mutant(
        title="a marker that the leader refuses for now counts as written",
        owner=marker_sender,
        name="_SETTLED",
        substitute=lambda _: tuple(ErrorCode),
        known_seed=10,
        is_long=True,
        kind=Kind.TRANSACTIONS,
    ),
)
