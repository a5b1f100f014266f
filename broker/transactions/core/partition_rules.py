"""Rules of the transaction machine for partitions: which producer may add or verify them."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from broker.transactions.core.transaction_answers import answer
from broker.transactions.core.transaction_messages import (
    AddPartitions,
    AddReply,
    ProducerCommand,
    StartTimeout,
    TransactionAnswer,
    TransactionDecision,
    TransactionEffect,
    TransactionStored,
    VerifyPartitions,
)
from broker.transactions.core.transaction_states import (
    BUMPING_CLIENT_VERSION,
    Transaction,
    TransactionState,
)


def producer_error(known: Transaction | None, command: ProducerCommand) -> ErrorCode:
    """The error for a producer that is not the present one of the id."""
    if not command.transactional_id:
        return ErrorCode.invalid_request
    if known is None or known.producer_id != command.producer_id:
        return ErrorCode.invalid_producer_id_mapping
    if known.is_carried and command.producer_epoch >= known.producer_epoch:
        return ErrorCode.invalid_producer_id_mapping
    if known.producer_epoch != command.producer_epoch:
        return ErrorCode.producer_fenced
    return ErrorCode.none


def add(known: Transaction | None, command: AddPartitions, now_ms: int, token: int) -> TransactionDecision:
    """Add partitions to the transaction, which the first ones begin."""
    error = producer_error(known, command)
    if known is not None and known.state.is_ending:
        # before the id and the epoch: EndTxn has given the producer its next ones already (KIP-890)
        error = ErrorCode.concurrent_transactions
    elif command.client_version >= BUMPING_CLIENT_VERSION:
        error = abortable(known, command, error)
    if error is not ErrorCode.none or known is None:
        return answer(token, AddReply(error=error))
    reply = AddReply(errors=dict.fromkeys(command.partitions, ErrorCode.none))
    # a repetition: nothing is stored, and the time goes on
    if known.state is TransactionState.ONGOING and command.partitions <= known.partitions:
        return answer(token, reply)
    added = known.with_partitions(command.partitions, client_version=command.client_version, now_ms=now_ms)
    effects: tuple[TransactionEffect, ...] = (TransactionAnswer(token=token, reply=reply),)
    # the transaction begins here, and its time with it
    if known.state is not TransactionState.ONGOING:
        timeout = StartTimeout(transactional_id=known.transactional_id, delay_ms=known.timeout_ms)
        effects = (timeout, *effects)
    return TransactionDecision(records=(TransactionStored(transaction=added),), effects=effects)


def verified(known: Transaction | None, command: VerifyPartitions) -> AddReply:
    """The error for each partition that does not take part."""
    error = producer_error(known, command)
    if known is not None and known.state.is_ending:
        # the producer has its next id from the answer to EndTxn, and is early rather than fenced
        is_next = command.producer_id == known.next_producer_id and command.producer_epoch == 0
        if error is ErrorCode.none or is_next:
            error = ErrorCode.concurrent_transactions
    if error is not ErrorCode.none or known is None:
        return AddReply(error=error)
    return AddReply(
        errors={
            partition: ErrorCode.none if partition in known.partitions else ErrorCode.transaction_abortable
            for partition in command.partitions
        }
    )


def abortable(known: Transaction | None, command: ProducerCommand, error: ErrorCode) -> ErrorCode:
    """The error for a producer of KIP-890's protocol: the present one of a carried id aborts."""
    is_present = known is not None and known.is_carried and known.producer_id == command.producer_id
    is_unknown_here = is_present and error is ErrorCode.invalid_producer_id_mapping
    return ErrorCode.transaction_abortable if is_unknown_here else error
