"""The transaction machine: the transactional ids of one partition of `__transaction_state`. Decide,
commit, apply, act.

As `broker/groups/core/group_machine.py`: `decide` changes nothing, `apply` is the only way to
change the state, for live records and for the replay of the log alike. The shell
(`broker/transactions/transaction_shard.py`) decides upon one transactional id's commands one after
the other, never before the records of the former are applied. Both protocols are spoken: the older
one, and KIP-890's, in which every end of a transaction brings a new epoch.

Fencing: an epoch only grows under a producer id; whatever comes with another one than the present
is refused, and a transaction that its producer does not end itself (timeout, another producer) is
aborted under an epoch that its producer does not have.

Confirmed answers: a former coordinator may not know yet that there is a new one (it is cut off from
ZooKeeper and the controller, say), and most answers are final for a producer. So an answer that
follows from memory alone brings a record that changes nothing: its append fails where another
broker leads, and the producer looks for the coordinator anew.

Carried producers: a mirror keeps a passive site's machine informed of the other site's. What it
says is late by a moment, and under KIP-890 every transaction has an epoch of its own, so an epoch
counted on from a carried one could be one that the logs have passed. After a promotion the id
therefore goes on under a fresh producer id. Until then a carried producer of a lower epoch than the
known one is fenced. Any other aborts: an abort succeeds at once, because nothing is open under the
id here. A producer of the older protocol gets INVALID_PRODUCER_ID_MAPPING and asks for an id after
it (KIP-360). One of KIP-890's gets TRANSACTION_ABORTABLE, because its clients end at the other code
(KIP-1050), and the answer to its abort brings the fresh id.

Abandoned transactions: when another site becomes active, its leaders abort what their logs leave
open. This machine aborts its open transactions too and counts their producers as carried. Otherwise
an open transaction would keep the mirror from reporting the producer's next id, and a site that
becomes active again would fence the present producer or go on with half a transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, assert_never

from kio.schema.errors import ErrorCode
from msgspec import structs

from broker.transactions.core.transaction_messages import (
    Abandon,
    AddPartitions,
    AddReply,
    CancelTimeout,
    CarryProducer,
    EndTransaction,
    Expire,
    InitProducer,
    MarkersWritten,
    ProducerCommand,
    ProducerReply,
    Resume,
    StartTimeout,
    TimeOut,
    TransactionAnswer,
    TransactionCommand,
    TransactionDecision,
    TransactionEffect,
    TransactionRecord,
    TransactionRemoved,
    TransactionReply,
    TransactionStored,
    VerifyPartitions,
    WriteMarkers,
)
from broker.transactions.core.transaction_states import (
    BUMPING_CLIENT_VERSION,
    FENCING_EPOCH_MAX,
    NO_EPOCH,
    NO_PRODUCER_ID,
    Transaction,
    TransactionState,
)

NOTHING: Final = TransactionDecision()
_NEED_NO_LOG: Final = frozenset(
    (ErrorCode.concurrent_transactions, ErrorCode.invalid_request, ErrorCode.invalid_transaction_timeout)
)
"""Refusals that are repeated, or that follow from the request alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionLimits:
    """The broker's bounds for transactions."""

    timeout_ms_max: int = 15 * 60_000
    expiration_ms: int = 7 * 24 * 3600 * 1000


class Transactions:
    """See the module."""

    def __init__(self, limits: TransactionLimits) -> None:
        self._limits = limits
        self._transactions: dict[str, Transaction] = {}

    # --- reading

    def get(self, transactional_id: str) -> Transaction | None:
        """The transactional id, None when it is not known."""
        return self._transactions.get(transactional_id)

    def verified(self, question: VerifyPartitions) -> AddReply | None:
        """Verify the partitions by the applied records: as `decide`, without a decision. None when
        the log has to confirm the answer.
        """
        reply = _verified(self._transactions.get(question.transactional_id), question)
        return None if _may_be_outdated(question, reply) else reply

    def __iter__(self) -> Iterator[Transaction]:
        return iter(tuple(self._transactions.values()))

    def __len__(self) -> int:
        return len(self._transactions)

    def durable_state(self) -> Mapping[str, Transaction]:
        """The state that a replay of the log must restore."""
        return {name: transaction.durable() for name, transaction in self._transactions.items()}

    def violations(self) -> list[str]:
        """The invariants that the state violates; none for a sound state."""
        return [f"{name}: {wrong}" for name, found in self._transactions.items() for wrong in found.violations()]

    # --- applying

    def apply(self, record: TransactionRecord) -> None:
        """Apply one record."""
        match record:
            case TransactionStored(transaction=transaction):
                self._transactions[transaction.transactional_id] = transaction
            case TransactionRemoved(transactional_id=transactional_id):
                self._transactions.pop(transactional_id, None)
            case _:
                assert_never(record)

    # --- deciding

    def decide(self, command: TransactionCommand, *, now_ms: int, token: int = 0) -> TransactionDecision:
        """Decide a command. `now_ms` is Unix time; `token` names the request that waits for the
        response (0: none).
        """
        known = self._transactions.get(command.transactional_id)
        return _confirmed(known, command, self._decided(known, command, now_ms, token))

    def _decided(
        self, known: Transaction | None, command: TransactionCommand, now_ms: int, token: int
    ) -> TransactionDecision:
        match command:
            case InitProducer():
                return self._init(known, command, now_ms, token)
            case AddPartitions():
                return _add(known, command, now_ms, token)
            case VerifyPartitions():
                return _answer(token, _verified(known, command))
            case EndTransaction():
                return _end(known, command, now_ms, token)
            case CarryProducer():
                return _carry(known, command, now_ms, token)
            case MarkersWritten():
                return _complete(known, command, now_ms)
            case Abandon():
                return _abandon(known, now_ms)
            case TimeOut():
                return _time_out(known, now_ms)
            case Resume():
                return _resume(known, now_ms)
            case Expire():
                return self._expire(known, now_ms)
            case _:
                raise AssertionError(f"no rule for command {command!r}")

    def _init(self, known: Transaction | None, command: InitProducer, now_ms: int, token: int) -> TransactionDecision:
        if not command.transactional_id:
            return _refuse(token, ErrorCode.invalid_request)
        if not 0 < command.timeout_ms <= self._limits.timeout_ms_max:
            return _refuse(token, ErrorCode.invalid_transaction_timeout)
        if known is None:
            return _begin_id(command, now_ms, token)
        if known.state.is_ending:
            return _refuse(token, ErrorCode.concurrent_transactions)
        if known.is_carried:
            return _go_on_here(known, command, now_ms, token)
        if not _may_continue(known, command):
            return _refuse(token, ErrorCode.producer_fenced)
        if known.state is TransactionState.ONGOING:
            fenced = _given_up(known, now_ms, last_epoch=command.producer_epoch)
            return _ending(
                fenced,
                TransactionAnswer(token=token, reply=ProducerReply(error=ErrorCode.concurrent_transactions)),
                reason="a new producer instance begins: the open transaction is aborted",
            )
        return _next_epoch(known, command, now_ms, token)

    def _expire(self, known: Transaction | None, now_ms: int) -> TransactionDecision:
        if known is None or not known.state.is_over or now_ms - known.updated_ms < self._limits.expiration_ms:
            return NOTHING
        removed = TransactionRemoved(transactional_id=known.transactional_id)
        return TransactionDecision(records=(removed,), reason="the transactional id was unused for too long")


# --- producers


def _begin_id(command: InitProducer, now_ms: int, token: int) -> TransactionDecision:
    if command.fresh_producer_id is None:
        return _answer(token, ProducerReply(needs_producer_id=True))
    made = Transaction(
        transactional_id=command.transactional_id,
        producer_id=command.fresh_producer_id,
        producer_epoch=0,
        timeout_ms=command.timeout_ms,
        updated_ms=now_ms,
    )
    return _hand_out(made, token)


def _carry(known: Transaction | None, command: CarryProducer, now_ms: int, token: int) -> TransactionDecision:
    """The other site's word counts, but never over something that this site has not finished."""
    carried = Transaction(
        transactional_id=command.transactional_id,
        producer_id=command.producer_id,
        producer_epoch=command.producer_epoch,
        timeout_ms=command.timeout_ms,
        updated_ms=now_ms,
        is_carried=True,
    )
    answer = TransactionAnswer(token=token, reply=ProducerReply())
    if known is not None and not known.state.is_over:
        return _refuse(token, ErrorCode.concurrent_transactions)
    if known is not None and known.is_carried and known.is_same_producer(carried):
        return TransactionDecision(effects=(answer,))
    return TransactionDecision(records=(TransactionStored(transaction=carried),), effects=(answer,))


def _go_on_here(known: Transaction, command: InitProducer, now_ms: int, token: int) -> TransactionDecision:
    """The first producer of a carried id after the promotion; one that says who it is must be the
    carried one, or a later one of its id.
    """
    is_named = command.producer_id != NO_PRODUCER_ID
    if is_named and (command.producer_id != known.producer_id or command.producer_epoch < known.producer_epoch):
        return _refuse(token, ErrorCode.producer_fenced)
    if command.fresh_producer_id is None:
        return _answer(token, ProducerReply(needs_producer_id=True))
    fresh = known.of_new_producer(command.fresh_producer_id, timeout_ms=command.timeout_ms, now_ms=now_ms)
    return _hand_out(replace(fresh, last_producer_epoch=command.producer_epoch if is_named else NO_EPOCH), token)


def _may_continue(known: Transaction, command: InitProducer) -> bool:
    """True if the producer id and epoch are the current ones, or the request repeats the one that
    created them.
    """
    if command.producer_id == NO_PRODUCER_ID:
        return True
    if known.state is TransactionState.ONGOING:
        return (command.producer_id, command.producer_epoch) == (known.producer_id, known.producer_epoch)
    if command.producer_id == known.producer_id:
        return command.producer_epoch in (known.producer_epoch, known.last_producer_epoch, NO_EPOCH)
    is_rotated = command.producer_id == known.previous_producer_id and known.producer_epoch == 0
    was_carried = known.last_producer_epoch != NO_EPOCH and command.producer_epoch == known.last_producer_epoch
    return is_rotated and (command.producer_epoch >= FENCING_EPOCH_MAX - 1 or was_carried)


def _next_epoch(known: Transaction, command: InitProducer, now_ms: int, token: int) -> TransactionDecision:
    timeout_ms = command.timeout_ms
    is_repeated = command.producer_id != NO_PRODUCER_ID and (
        command.producer_id != known.producer_id or command.producer_epoch != known.producer_epoch
    )
    if is_repeated:
        last_epoch = known.last_producer_epoch
        return _hand_out(known.in_epoch(known.producer_epoch, last_epoch, timeout_ms=timeout_ms, now_ms=now_ms), token)
    if not known.has_used_up_epochs:
        last_epoch = NO_EPOCH if command.producer_id == NO_PRODUCER_ID else known.producer_epoch
        epoch = known.producer_epoch + 1
        return _hand_out(known.in_epoch(epoch, last_epoch, timeout_ms=timeout_ms, now_ms=now_ms), token)
    if command.fresh_producer_id is None:
        return _answer(token, ProducerReply(needs_producer_id=True))
    fresh = known.of_new_producer(command.fresh_producer_id, timeout_ms=timeout_ms, now_ms=now_ms)
    return _hand_out(fresh, token)


def _hand_out(transaction: Transaction, token: int) -> TransactionDecision:
    reply = ProducerReply(producer_id=transaction.producer_id, producer_epoch=transaction.producer_epoch)
    return TransactionDecision(
        records=(TransactionStored(transaction=transaction),),
        effects=(TransactionAnswer(token=token, reply=reply),),
        reason=f"producer {transaction.producer_id} begins epoch {transaction.producer_epoch}",
    )


# --- partitions


def _producer_error(known: Transaction | None, command: ProducerCommand) -> ErrorCode:
    if not command.transactional_id:
        return ErrorCode.invalid_request
    if known is None or known.producer_id != command.producer_id:
        return ErrorCode.invalid_producer_id_mapping
    if known.is_carried and command.producer_epoch >= known.producer_epoch:
        return ErrorCode.invalid_producer_id_mapping
    if known.producer_epoch != command.producer_epoch:
        return ErrorCode.producer_fenced
    return ErrorCode.none


def _add(known: Transaction | None, command: AddPartitions, now_ms: int, token: int) -> TransactionDecision:
    error = _producer_error(known, command)
    if known is not None and known.state.is_ending:
        # before the id and the epoch: EndTxn has given the producer its next ones already (KIP-890)
        error = ErrorCode.concurrent_transactions
    elif command.client_version >= BUMPING_CLIENT_VERSION:
        error = _abortable(known, command, error)
    if error is not ErrorCode.none or known is None:
        return _answer(token, AddReply(error=error))
    reply = AddReply(errors=dict.fromkeys(command.partitions, ErrorCode.none))
    if known.state is TransactionState.ONGOING and command.partitions <= known.partitions:
        return _answer(token, reply)
    added = known.with_partitions(command.partitions, client_version=command.client_version, now_ms=now_ms)
    effects: tuple[TransactionEffect, ...] = (TransactionAnswer(token=token, reply=reply),)
    if known.state is not TransactionState.ONGOING:
        timeout = StartTimeout(transactional_id=known.transactional_id, delay_ms=known.timeout_ms)
        effects = (timeout, *effects)
    return TransactionDecision(records=(TransactionStored(transaction=added),), effects=effects)


def _verified(known: Transaction | None, command: VerifyPartitions) -> AddReply:
    error = _producer_error(known, command)
    if known is not None and known.state.is_ending:
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


# --- the end


def _end(known: Transaction | None, command: EndTransaction, now_ms: int, token: int) -> TransactionDecision:
    """Refuse the end as too early, whatever it asks for, while the markers of the transaction
    before are being written.

    The producer was answered when the decision was in the log, so it may have begun and ended its
    next transaction by then.
    """
    if known is not None and command.is_bumped:
        if known.state.is_ending:
            return _refuse(token, ErrorCode.concurrent_transactions)
        if _is_repeated_end(known, command):
            return _answer(token, _outcome_of_repeated_end(known, command))
    error = _producer_error(known, command)
    if known is not None and _is_abort_of_carried(known, command):
        return _abort_carried(known, command, now_ms, token)
    if command.is_bumped:
        error = _abortable(known, command, error)
    if error is not ErrorCode.none or known is None:
        return _refuse(token, error)
    if known.state is TransactionState.ONGOING:
        return _decide_end(known, command, now_ms, token)
    if known.state.is_ending:
        return _refuse(token, ErrorCode.concurrent_transactions)
    if command.is_bumped:
        return _end_nothing(known, command, now_ms, token)
    done = TransactionState.COMPLETE_COMMIT if command.is_commit else TransactionState.COMPLETE_ABORT
    if known.state is not done:
        return _refuse(token, ErrorCode.invalid_txn_state)
    return _answer(token, ProducerReply(producer_id=known.producer_id, producer_epoch=known.producer_epoch))


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
        return _answer(token, ProducerReply(producer_id=command.producer_id, producer_epoch=command.producer_epoch))
    if not known.is_carried:
        return _answer(token, ProducerReply(producer_id=known.producer_id, producer_epoch=known.producer_epoch))
    if command.fresh_producer_id is None:
        return _answer(token, ProducerReply(needs_producer_id=True))
    fresh = known.of_new_producer(command.fresh_producer_id, timeout_ms=known.timeout_ms, now_ms=now_ms)
    return _hand_out(replace(fresh, last_producer_epoch=command.producer_epoch), token)


def _abortable(known: Transaction | None, command: ProducerCommand, error: ErrorCode) -> ErrorCode:
    """The error for a producer of KIP-890's protocol: the present one of a carried id aborts."""
    is_present = known is not None and known.is_carried and known.producer_id == command.producer_id
    is_unknown_here = is_present and error is ErrorCode.invalid_producer_id_mapping
    return ErrorCode.transaction_abortable if is_unknown_here else error


def _is_repeated_end(known: Transaction, command: EndTransaction) -> bool:
    """True if the request was carried out before: the producer did not receive its new epoch."""
    is_ended = known.state not in (TransactionState.ONGOING, TransactionState.EMPTY)
    if not is_ended or known.client_version < BUMPING_CLIENT_VERSION:
        return False
    if command.producer_id == known.producer_id:
        return command.producer_epoch == known.producer_epoch - 1
    was_rotated = command.producer_id == known.previous_producer_id and known.producer_epoch == 0
    return was_rotated and command.producer_epoch == FENCING_EPOCH_MAX - 1


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
                return _answer(token, ProducerReply(needs_producer_id=True))
            next_producer_id = command.fresh_producer_id
        epoch += 1
    ending = known.ending(
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
    return _ending(ending, TransactionAnswer(token=token, reply=reply))


def _end_nothing(known: Transaction, command: EndTransaction, now_ms: int, token: int) -> TransactionDecision:
    """A transaction without partitions: there is nothing to commit, and an abort is just the next
    epoch.
    """
    if command.is_commit:
        return _refuse(token, ErrorCode.invalid_txn_state)
    if known.has_used_up_epochs and command.fresh_producer_id is None:
        return _answer(token, ProducerReply(needs_producer_id=True))
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
    return _hand_out(ended, token)


def _given_up(known: Transaction, now_ms: int, *, last_epoch: int = NO_EPOCH) -> Transaction:
    """Aborted under an epoch that its producer does not have."""
    return known.ending(
        is_commit=False,
        epoch=min(known.producer_epoch + 1, FENCING_EPOCH_MAX),
        next_producer_id=NO_PRODUCER_ID,
        last_epoch=last_epoch,
        now_ms=now_ms,
        client_version=known.client_version,
    )


def _ending(transaction: Transaction, *effects: TransactionEffect, reason: str = "") -> TransactionDecision:
    return TransactionDecision(
        records=(TransactionStored(transaction=transaction),),
        effects=(
            CancelTimeout(transactional_id=transaction.transactional_id),
            *effects,
            WriteMarkers(transaction=transaction),
        ),
        reason=reason,
    )


def _complete(known: Transaction | None, command: MarkersWritten, now_ms: int) -> TransactionDecision:
    if known is None or not known.state.is_ending:
        return NOTHING
    if (known.producer_id, known.producer_epoch) != (command.producer_id, command.producer_epoch):
        return NOTHING
    return TransactionDecision(records=(TransactionStored(transaction=known.ended(now_ms=now_ms)),))


def _abandon(known: Transaction | None, now_ms: int) -> TransactionDecision:
    if known is None or known.state is not TransactionState.ONGOING:
        return NOTHING
    return _ending(known.abandoned(now_ms=now_ms), reason="another site is active now: the transaction is aborted")


def _time_out(known: Transaction | None, now_ms: int) -> TransactionDecision:
    if known is None or known.state is not TransactionState.ONGOING:
        return NOTHING
    if now_ms < known.deadline_ms:
        left_ms = known.deadline_ms - now_ms
        return TransactionDecision(effects=(StartTimeout(transactional_id=known.transactional_id, delay_ms=left_ms),))
    return _ending(_given_up(known, now_ms), reason="the transaction timed out and is aborted")


def _resume(known: Transaction | None, now_ms: int) -> TransactionDecision:
    if known is None:
        return NOTHING
    if known.state.is_ending:
        return TransactionDecision(
            effects=(WriteMarkers(transaction=known),), reason="the coordinator resumes the end of the transaction"
        )
    if known.state is TransactionState.ONGOING:
        left_ms = max(known.deadline_ms - now_ms, 0)
        return TransactionDecision(effects=(StartTimeout(transactional_id=known.transactional_id, delay_ms=left_ms),))
    return NOTHING


# --- answers


def _confirmed(
    known: Transaction | None, command: TransactionCommand, decision: TransactionDecision
) -> TransactionDecision:
    """The decision, with a record that changes nothing when it would answer from memory alone."""
    if decision.records or not any(
        isinstance(effect, TransactionAnswer) and _may_be_outdated(command, effect.reply) for effect in decision.effects
    ):
        return decision
    same: TransactionRecord = TransactionRemoved(transactional_id=command.transactional_id)
    if known is not None:
        same = TransactionStored(transaction=known)
    return structs.replace(decision, records=(same,))


def _may_be_outdated(command: TransactionCommand, reply: TransactionReply) -> bool:
    """True if the answer may be wrong because another broker coordinates by now. A mirror repeats
    its carries, so its answers do not count. Taking part needs no proof either: the partition
    itself refuses a batch behind the transaction's marker (KIP-890).
    """
    if isinstance(command, CarryProducer):
        return False
    if isinstance(reply, ProducerReply):
        return not reply.needs_producer_id and reply.error not in _NEED_NO_LOG
    codes = {reply.error, *reply.errors.values()} - _NEED_NO_LOG
    return not codes <= {ErrorCode.none} if isinstance(command, VerifyPartitions) else bool(codes)


def _answer(token: int, reply: TransactionReply) -> TransactionDecision:
    return TransactionDecision(effects=(TransactionAnswer(token=token, reply=reply),))


def _refuse(token: int, error: ErrorCode) -> TransactionDecision:
    return _answer(token, ProducerReply(error=error))
