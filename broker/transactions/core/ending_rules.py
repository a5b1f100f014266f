"""Rules of the transaction machine for the end of a transaction: by its producer, by a timeout, by
another producer or by another site.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode
from msgspec.structs import replace

from broker.transactions.core.partition_rules import abortable, producer_error
from broker.transactions.core.producer_rules import hand_out
from broker.transactions.core.transaction_answers import NOTHING, answer, refuse
from broker.transactions.core.transaction_messages import (
    CancelTimeout,
    EndTransaction,
    MarkersWritten,
    ProducerReply,
    StartTimeout,
    TransactionAnswer,
    TransactionDecision,
    TransactionEffect,
    TransactionStored,
    WriteMarkers,
)
from broker.transactions.core.transaction_states import (
    BUMPING_CLIENT_VERSION,
    FENCING_EPOCH_MAX,
    Transaction,
    TransactionState,
)
from wire.protocol.ids import NO_EPOCH, NO_PRODUCER_ID


def end(known: Transaction | None, command: EndTransaction, now_ms: int, token: int) -> TransactionDecision:
    """Refuse the end as too early, for a commit and for an abort, while the markers of the former
    transaction are being written.

    The producer got its response when the decision was in the log, so it may have begun and ended
    its next transaction in the meantime.
    """
    if known is not None and command.is_bumped:
        if known.state.is_ending:
            return refuse(token, ErrorCode.concurrent_transactions)
        if _is_repeated_end(known, command):
            return _repeat_end(known, command, now_ms, token)
    error = producer_error(known, command)
    # asked in spite of the error: every other request of a carried id's producer is refused
    if known is not None and _is_abort_of_carried(known, command):
        return _abort_carried(known, command, now_ms, token)
    if command.is_bumped:
        error = abortable(known, command, error)
    if error is not ErrorCode.none or known is None:
        return refuse(token, error)
    if known.state is TransactionState.ONGOING:
        return _decide_end(known, command, now_ms, token)
    if known.state.is_ending:
        return refuse(token, ErrorCode.concurrent_transactions)
    if command.is_bumped:
        return _end_nothing(known, command, now_ms, token)
    done = TransactionState.COMPLETE_COMMIT if command.is_commit else TransactionState.COMPLETE_ABORT
    if known.state is not done:
        return refuse(token, ErrorCode.invalid_txn_state)
    return answer(token, ProducerReply(producer_id=known.producer_id, producer_epoch=known.producer_epoch))


def _is_abort_of_carried(known: Transaction, command: EndTransaction) -> bool:
    """True if the current producer of a carried id asks for the abort that the promotion has done,
    or asks again. Clients cannot handle a refused abort.
    """
    if command.is_commit:
        return False
    if known.is_carried:
        return command.producer_id == known.producer_id and command.producer_epoch >= known.producer_epoch
    is_first = known.state is TransactionState.EMPTY and known.producer_epoch == 0
    was_carried = known.last_producer_epoch != NO_EPOCH and command.producer_epoch == known.last_producer_epoch
    return command.is_bumped and is_first and was_carried and command.producer_id == known.previous_producer_id


def _abort_carried(known: Transaction, command: EndTransaction, now_ms: int, token: int) -> TransactionDecision:
    if not command.is_bumped:
        return answer(token, ProducerReply(producer_id=command.producer_id, producer_epoch=command.producer_epoch))
    if not known.is_carried:
        return answer(token, ProducerReply(producer_id=known.producer_id, producer_epoch=known.producer_epoch))
    return _go_on_under_new_id(known, command, now_ms, token)


def _go_on_under_new_id(known: Transaction, command: EndTransaction, now_ms: int, token: int) -> TransactionDecision:
    if command.fresh_producer_id is None:
        return answer(token, ProducerReply(needs_producer_id=True))
    fresh = known.of_new_producer(command.fresh_producer_id, timeout_ms=known.timeout_ms, now_ms=now_ms)
    return hand_out(replace(fresh, last_producer_epoch=command.producer_epoch), token)


def _is_repeated_end(known: Transaction, command: EndTransaction) -> bool:
    """True if the request was carried out before: the producer did not receive its new epoch."""
    is_ended = known.state not in (TransactionState.ONGOING, TransactionState.EMPTY)
    if not is_ended or known.client_version < BUMPING_CLIENT_VERSION:
        return False
    if command.producer_id == known.producer_id:
        # The end assigned the next epoch, and the answer with it was lost.
        return command.producer_epoch == known.producer_epoch - 1
    was_rotated = command.producer_id == known.previous_producer_id and known.producer_epoch == 0
    # The previous producer id had used its last epoch, which ended the transaction.
    return was_rotated and command.producer_epoch == FENCING_EPOCH_MAX - 1


def _repeat_end(known: Transaction, command: EndTransaction, now_ms: int, token: int) -> TransactionDecision:
    reply = _outcome_of_repeated_end(known, command)
    # aborted by the coordinator under an epoch that only markers carry
    if reply.error is ErrorCode.none and reply.producer_epoch == FENCING_EPOCH_MAX:
        return _go_on_under_new_id(known, command, now_ms, token)
    return answer(token, reply)


def _outcome_of_repeated_end(known: Transaction, command: EndTransaction) -> ProducerReply:
    was_commit = known.state is TransactionState.COMPLETE_COMMIT
    if command.is_commit is not was_commit:
        # aborted by its timeout, or by another producer: a commit is too
        # late
        late = ErrorCode.producer_fenced if command.is_commit else ErrorCode.invalid_txn_state
        return ProducerReply(error=late)
    return ProducerReply(producer_id=known.producer_id, producer_epoch=known.producer_epoch)


def _decide_end(known: Transaction, command: EndTransaction, now_ms: int, token: int) -> TransactionDecision:
    epoch, next_producer_id = known.producer_epoch, NO_PRODUCER_ID
    if command.is_bumped:
        if known.has_used_up_epochs:
            if command.fresh_producer_id is None:
                return answer(token, ProducerReply(needs_producer_id=True))
            next_producer_id = command.fresh_producer_id
        epoch += 1
    decided = known.ending(
        is_commit=command.is_commit,
        epoch=epoch,
        next_producer_id=next_producer_id,
        last_epoch=known.producer_epoch if command.is_bumped else NO_EPOCH,
        now_ms=now_ms,
        client_version=BUMPING_CLIENT_VERSION if command.is_bumped else 0,
    )
    is_rotated = next_producer_id != NO_PRODUCER_ID
    reply = ProducerReply(
        producer_id=next_producer_id if is_rotated else known.producer_id, producer_epoch=0 if is_rotated else epoch
    )
    return ending(decided, TransactionAnswer(token=token, reply=reply))


def _end_nothing(known: Transaction, command: EndTransaction, now_ms: int, token: int) -> TransactionDecision:
    """A transaction without partitions: there is nothing to commit, and an abort is just the next
    epoch.
    """
    if command.is_commit:
        return refuse(token, ErrorCode.invalid_txn_state)
    if known.has_used_up_epochs and command.fresh_producer_id is None:
        return answer(token, ProducerReply(needs_producer_id=True))
    ended = known.ending(
        is_commit=False,
        epoch=known.producer_epoch + 1,
        next_producer_id=command.fresh_producer_id
        if known.has_used_up_epochs and command.fresh_producer_id is not None
        else NO_PRODUCER_ID,
        last_epoch=known.producer_epoch,
        now_ms=now_ms,
        client_version=BUMPING_CLIENT_VERSION,
    ).ended(now_ms=now_ms)
    return hand_out(ended, token)


def given_up(known: Transaction, now_ms: int, *, last_epoch: int = NO_EPOCH) -> Transaction:
    """Aborted under an epoch that its producer does not have."""
    return known.ending(
        is_commit=False,
        epoch=min(known.producer_epoch + 1, FENCING_EPOCH_MAX),
        next_producer_id=NO_PRODUCER_ID,
        last_epoch=last_epoch,
        now_ms=now_ms,
        client_version=known.client_version,
    )


def ending(transaction: Transaction, *effects: TransactionEffect, reason: str = "") -> TransactionDecision:
    """The transaction ends: its markers are to be written."""
    return TransactionDecision(
        records=(TransactionStored(transaction=transaction),),
        effects=(
            CancelTimeout(transactional_id=transaction.transactional_id),
            *effects,
            WriteMarkers(transaction=transaction),
        ),
        reason=reason,
    )


def complete(known: Transaction | None, command: MarkersWritten, now_ms: int) -> TransactionDecision:
    """All markers are written."""
    if known is None or not known.state.is_ending:
        return NOTHING
    # an answer about an earlier transaction of the id
    if (known.producer_id, known.producer_epoch) != (command.producer_id, command.producer_epoch):
        return NOTHING
    return TransactionDecision(records=(TransactionStored(transaction=known.ended(now_ms=now_ms)),))


def abandon(known: Transaction | None, now_ms: int) -> TransactionDecision:
    """Another site became active: its leaders have aborted an open transaction."""
    if known is None or known.state is not TransactionState.ONGOING:
        return NOTHING
    return ending(known.abandoned(now_ms=now_ms), reason="another site is active now: the transaction is aborted")


def time_out(known: Transaction | None, now_ms: int) -> TransactionDecision:
    """Abort an open transaction whose time is over, or wait for the rest of its time."""
    if known is None or known.state is not TransactionState.ONGOING:
        return NOTHING
    # the timer may have started for an earlier transaction: the deadline counts
    if now_ms < known.deadline_ms:
        left_ms = known.deadline_ms - now_ms
        return TransactionDecision(effects=(StartTimeout(transactional_id=known.transactional_id, delay_ms=left_ms),))
    # its producer may ask for the next epoch and go on (KIP-588)
    given = given_up(known, now_ms, last_epoch=known.producer_epoch)
    return ending(given, reason="the transaction timed out and is aborted")


def resume(known: Transaction | None, now_ms: int) -> TransactionDecision:
    """The id was loaded: its markers are written again, or its timeout starts."""
    if known is None:
        return NOTHING
    if known.state.is_ending:
        return TransactionDecision(
            effects=(WriteMarkers(transaction=known),), reason="the coordinator resumes the end of the transaction"
        )
    if known.state is TransactionState.ONGOING:
        # The deadline also counts the time without a coordinator.
        left_ms = max(known.deadline_ms - now_ms, 0)
        return TransactionDecision(effects=(StartTimeout(transactional_id=known.transactional_id, delay_ms=left_ms),))
    return NOTHING
