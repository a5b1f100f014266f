"""Rules of the transaction machine for producers: which id and epoch a producer gets, and who is
fenced.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from broker.transactions.core.transaction_answers import answer, refuse
from broker.transactions.core.transaction_messages import (
    CarryProducer,
    InitProducer,
    ProducerReply,
    TransactionAnswer,
    TransactionDecision,
    TransactionStored,
)
from broker.transactions.core.transaction_states import FENCING_EPOCH_MAX, Transaction, TransactionState
from wire.protocol.ids import NO_EPOCH, NO_PRODUCER_ID


def begin_id(command: InitProducer, now_ms: int, token: int) -> TransactionDecision:
    """The first producer of an id."""
    if command.fresh_producer_id is None:
        return answer(token, ProducerReply(needs_producer_id=True))
    made = Transaction(
        transactional_id=command.transactional_id,
        producer_id=command.fresh_producer_id,
        producer_epoch=0,
        timeout_ms=command.timeout_ms,
        updated_ms=now_ms,
    )
    return hand_out(made, token)


def carry(known: Transaction | None, command: CarryProducer, now_ms: int, token: int) -> TransactionDecision:
    """Apply the other site's report, but not over a transaction that is unfinished here."""
    carried = Transaction(
        transactional_id=command.transactional_id,
        producer_id=command.producer_id,
        producer_epoch=command.producer_epoch,
        timeout_ms=command.timeout_ms,
        updated_ms=now_ms,
        is_carried=True,
    )
    answer = TransactionAnswer(token=token, reply=ProducerReply())
    # the mirror reports again once the markers are written
    if known is not None and not known.state.is_over:
        return refuse(token, ErrorCode.concurrent_transactions)
    if known is not None and known.is_carried and known.is_same_producer(carried):
        return TransactionDecision(effects=(answer,))
    return TransactionDecision(records=(TransactionStored(transaction=carried),), effects=(answer,))


def go_on_here(known: Transaction, command: InitProducer, now_ms: int, token: int) -> TransactionDecision:
    """The first producer of a mirrored id after the promotion; a producer that names its id must be
    the mirrored one, or a later one of its transactional id.
    """
    is_named = command.producer_id != NO_PRODUCER_ID
    # a higher epoch is right: the mirror's report may be late by one
    if is_named and (command.producer_id != known.producer_id or command.producer_epoch < known.producer_epoch):
        return refuse(token, ErrorCode.producer_fenced)
    if command.fresh_producer_id is None:
        return answer(token, ProducerReply(needs_producer_id=True))
    fresh = known.of_new_producer(command.fresh_producer_id, timeout_ms=command.timeout_ms, now_ms=now_ms)
    return hand_out(replace(fresh, last_producer_epoch=command.producer_epoch if is_named else NO_EPOCH), token)


def may_continue(known: Transaction, command: InitProducer) -> bool:
    """True if the producer id and epoch are the current ones, or the request repeats the one that
    created them.
    """
    if command.producer_id == NO_PRODUCER_ID:
        return True
    if known.state is TransactionState.ONGOING:
        # an open transaction belongs to exactly one producer
        return (command.producer_id, command.producer_epoch) == (known.producer_id, known.producer_epoch)
    if command.producer_id == known.producer_id:
        # the last epoch: the answer that handed out the present one may be lost
        return command.producer_epoch in (known.producer_epoch, known.last_producer_epoch, NO_EPOCH)
    is_rotated = command.producer_id == known.previous_producer_id and known.producer_epoch == 0
    was_carried = known.last_producer_epoch != NO_EPOCH and command.producer_epoch == known.last_producer_epoch
    return is_rotated and (command.producer_epoch >= FENCING_EPOCH_MAX - 1 or was_carried)


def next_epoch(known: Transaction, command: InitProducer, now_ms: int, token: int) -> TransactionDecision:
    """The next epoch of the producer, or the present one for a repeated request."""
    timeout_ms = command.timeout_ms
    is_repeated = command.producer_id != NO_PRODUCER_ID and (
        command.producer_id != known.producer_id or command.producer_epoch != known.producer_epoch
    )
    # no producer gets the epoch of the markers of a coordinator that aborts
    if is_repeated and known.producer_epoch < FENCING_EPOCH_MAX:
        last_epoch = known.last_producer_epoch
        return hand_out(known.in_epoch(known.producer_epoch, last_epoch, timeout_ms=timeout_ms, now_ms=now_ms), token)
    if not known.has_used_up_epochs:
        last_epoch = NO_EPOCH if command.producer_id == NO_PRODUCER_ID else known.producer_epoch
        epoch = known.producer_epoch + 1
        return hand_out(known.in_epoch(epoch, last_epoch, timeout_ms=timeout_ms, now_ms=now_ms), token)
    if command.fresh_producer_id is None:
        return answer(token, ProducerReply(needs_producer_id=True))
    fresh = known.of_new_producer(command.fresh_producer_id, timeout_ms=timeout_ms, now_ms=now_ms)
    return hand_out(fresh, token)


def hand_out(transaction: Transaction, token: int) -> TransactionDecision:
    """Store the transaction and answer with its producer id and epoch."""
    reply = ProducerReply(producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch)
    return TransactionDecision(
        records=(TransactionStored(transaction=transaction),),
        effects=(TransactionAnswer(token=token, reply=reply),),
        reason=f"producer {transaction.producer_id} begins epoch {transaction.producer_epoch}",
    )
