"""The transaction machine: the transactional ids of one partition of `__transaction_state`. Decide,
commit, apply, act.

As `broker/groups/core/group_machine.py`: `decide` changes nothing, `apply` is the only way to
change the state, for live records and for the replay of the log alike. The shell
(`broker/transactions/transaction_shard.py`) decides upon one transactional id's commands one after
the other, never before the records of the former are applied. Both protocols are spoken: the older
one, and KIP-890's, in which every end of a transaction brings a new epoch.

Fencing: an epoch only grows under a producer id. A request with any epoch except the current one is
refused. A transaction that its producer does not end itself (timeout, another producer) is aborted
under an epoch that its producer does not have.

Confirmed answers: a former coordinator may not know yet that there is a new one (for example if it
is disconnected from ZooKeeper and the controller), and most answers are final for a producer. So
before the machine answers without a change of state, its shell appends a record that changes
nothing. Where another broker leads, this append fails, and the producer looks for the coordinator
again.

Carried producers: a mirror keeps a passive site's machine informed of the other site's. The
mirror's report is late by a moment, and under KIP-890 every transaction has an epoch of its own, so
the logs could already contain an epoch that is counted from a mirrored one. After a promotion the
id therefore goes on under a fresh producer id. Until then a carried producer of a lower epoch than
the known one is fenced. Any other aborts: an abort succeeds at once, because nothing is open under
the id here. A producer of the older protocol gets INVALID_PRODUCER_ID_MAPPING and asks for an id
after it (KIP-360). One of KIP-890's gets TRANSACTION_ABORTABLE, because its clients end at the
other code (KIP-1050), and the answer to its abort brings the fresh id.

Abandoned transactions: when another site becomes active, its leaders abort what their logs leave
open. This machine aborts its open transactions too and counts their producers as carried. Otherwise
an open transaction would keep the mirror from reporting the producer's next id, and a site that
becomes active again would fence the present producer or continue with half a transaction.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, assert_never

from kio.schema.errors import ErrorCode
from msgspec import Struct, structs

from broker.transactions.core.ending_rules import abandon, complete, end, ending, given_up, resume, time_out
from broker.transactions.core.partition_rules import add, verified
from broker.transactions.core.producer_rules import begin_id, carry, go_on_here, may_continue, next_epoch
from broker.transactions.core.transaction_answers import NOTHING, answer, refuse
from broker.transactions.core.transaction_messages import (
    Abandon,
    AddPartitions,
    AddReply,
    CarryProducer,
    EndTransaction,
    Expire,
    InitProducer,
    MarkersWritten,
    ProducerReply,
    Resume,
    TimeOut,
    TransactionAnswer,
    TransactionCommand,
    TransactionDecision,
    TransactionRecord,
    TransactionRemoved,
    TransactionReply,
    TransactionStored,
    VerifyPartitions,
)
from broker.transactions.core.transaction_states import (
    Transaction,
    TransactionState,
)

_NEED_NO_LOG: Final = frozenset(
    (ErrorCode.concurrent_transactions, ErrorCode.invalid_request, ErrorCode.invalid_transaction_timeout)
)
"""Refusals that are repeated, or that follow from the request alone."""


class TransactionLimits(Struct, frozen=True, kw_only=True):
    """The broker's bounds for transactions."""

    timeout_ms_max: int = 15 * 60_000
    expiration_ms: int = 7 * 24 * 3600 * 1000


class Transactions:
    """The transactions of one partition: `decide`, then `apply`."""

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
        reply = verified(self._transactions.get(question.transactional_id), question)
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
                return add(known, command, now_ms, token)
            case VerifyPartitions():
                return answer(token, verified(known, command))
            case EndTransaction():
                return end(known, command, now_ms, token)
            case CarryProducer():
                return carry(known, command, now_ms, token)
            case MarkersWritten():
                return complete(known, command, now_ms)
            case Abandon():
                return abandon(known, now_ms)
            case TimeOut():
                return time_out(known, now_ms)
            case Resume():
                return resume(known, now_ms)
            case Expire():
                return self._expire(known, now_ms)
            case _:
                raise AssertionError(f"no rule for command {command!r}")

    def _init(self, known: Transaction | None, command: InitProducer, now_ms: int, token: int) -> TransactionDecision:
        if not command.transactional_id:
            return refuse(token, ErrorCode.invalid_request)
        if not 0 < command.timeout_ms <= self._limits.timeout_ms_max:
            return refuse(token, ErrorCode.invalid_transaction_timeout)
        if known is None:
            return begin_id(command, now_ms, token)
        if known.state.is_ending:
            return refuse(token, ErrorCode.concurrent_transactions)
        if known.is_carried:
            return go_on_here(known, command, now_ms, token)
        if not may_continue(known, command):
            return refuse(token, ErrorCode.producer_fenced)
        if known.state is TransactionState.ONGOING:
            fenced = given_up(known, now_ms, last_epoch=command.producer_epoch)
            return ending(
                fenced,
                TransactionAnswer(token=token, reply=ProducerReply(error=ErrorCode.concurrent_transactions)),
                reason="a new producer instance begins: the open transaction is aborted",
            )
        return next_epoch(known, command, now_ms, token)

    def _expire(self, known: Transaction | None, now_ms: int) -> TransactionDecision:
        if known is None or not known.state.is_over or now_ms - known.updated_ms < self._limits.expiration_ms:
            return NOTHING
        removed = TransactionRemoved(transactional_id=known.transactional_id)
        return TransactionDecision(records=(removed,), reason="the transactional id was unused for too long")


def _confirmed(
    known: Transaction | None, command: TransactionCommand, decision: TransactionDecision
) -> TransactionDecision:
    """The decision; if it answers without a record, with a record that changes nothing."""
    # a decision with records is confirmed by its own append
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
        # these refusals are retried by clients, or follow from the request: an old coordinator may
        # give them
        return not reply.needs_producer_id and reply.error not in _NEED_NO_LOG
    codes = {reply.error, *reply.errors.values()} - _NEED_NO_LOG
    return not codes <= {ErrorCode.none} if isinstance(command, VerifyPartitions) else bool(codes)
