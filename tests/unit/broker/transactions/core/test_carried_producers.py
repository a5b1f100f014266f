"""Mirrored producers of the other site: those that continue after the promotion, and those that are
fenced.
"""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from broker.transactions.core import transaction_records
from broker.transactions.core.transaction_machine import TransactionLimits, Transactions
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
    TransactionAnswer,
    TransactionCommand,
    TransactionDecision,
    TransactionReply,
    WriteMarkers,
)
from broker.transactions.core.transaction_states import TransactionState
from wire.protocol.ids import TopicPartition

NAME = "booking"
THEIRS, OURS, NEXT = 7, (1 << 40) + 1, (1 << 40) + 2
EPOCH = 5
T0 = TopicPartition("t", 0)


class Machine:
    """A machine whose records go to a log, and from there into another machine when it is
    replayed.
    """

    def __init__(self) -> None:
        self._transactions = Transactions(TransactionLimits())
        self._log: list[tuple[bytes, bytes | None]] = []

    def ask(self, command: TransactionCommand, *, now_ms: int = 1_000) -> TransactionReply:
        decision = self.give(command, now_ms=now_ms)
        (reply,) = [effect.reply for effect in decision.effects if isinstance(effect, TransactionAnswer)]
        return reply

    def give(self, command: TransactionCommand, *, now_ms: int = 1_000) -> TransactionDecision:
        """The decision on a command that no request waits for."""
        decision = self._transactions.decide(command, now_ms=now_ms, token=1)
        for record in decision.records:
            self._log.append(transaction_records.encode(record))
            self._transactions.apply(record)
        assert self._transactions.violations() == []
        return decision

    @property
    def state(self) -> TransactionState | None:
        known = self._transactions.get(NAME)
        return None if known is None else known.state

    @property
    def record_count(self) -> int:
        return len(self._log)

    def replay(self) -> None:
        """The coordinator's broker dies here, and another one reads the log."""
        before = self._transactions.durable_state()
        self._transactions = Transactions(TransactionLimits())
        for key, value in self._log:
            record = transaction_records.decode(key, value)
            assert record is not None
            self._transactions.apply(record)
        assert self._transactions.durable_state() == before

    def passive_decision_count(self, command: TransactionCommand, *, now_ms: int) -> int:
        return len(self._transactions.decide(command, now_ms=now_ms).records)


def carry(*, producer_id: int = THEIRS, epoch: int = EPOCH) -> CarryProducer:
    return CarryProducer(transactional_id=NAME, producer_id=producer_id, producer_epoch=epoch, timeout_ms=60_000)


def init(*, producer_id: int = -1, epoch: int = -1, fresh: int | None = OURS) -> InitProducer:
    return InitProducer(
        transactional_id=NAME, timeout_ms=60_000, producer_id=producer_id, producer_epoch=epoch, fresh_producer_id=fresh
    )


def add(*, producer_id: int = THEIRS, epoch: int = EPOCH, client_version: int = 0) -> AddPartitions:
    return AddPartitions(
        transactional_id=NAME,
        producer_id=producer_id,
        producer_epoch=epoch,
        partitions=frozenset((T0,)),
        client_version=client_version,
    )


def end(
    *,
    producer_id: int = THEIRS,
    epoch: int = EPOCH,
    is_commit: bool = True,
    is_bumped: bool = True,
    fresh: int | None = None,
) -> EndTransaction:
    return EndTransaction(
        transactional_id=NAME,
        producer_id=producer_id,
        producer_epoch=epoch,
        is_commit=is_commit,
        is_bumped=is_bumped,
        fresh_producer_id=fresh,
    )


def marked(*, producer_id: int, epoch: int) -> MarkersWritten:
    return MarkersWritten(transactional_id=NAME, producer_id=producer_id, producer_epoch=epoch)


@pytest.fixture
def machine() -> Machine:
    """A machine that knows a carried producer and was restored from its log."""
    made = Machine()
    assert made.ask(carry()) == ProducerReply()
    made.replay()
    return made


@pytest.mark.parametrize("epoch", [EPOCH, EPOCH + 3])
def test_a_transaction_that_was_open_never_goes_on(machine: Machine, epoch: int) -> None:
    """The producer's epoch may be above the carried one, because a mirror is always a moment
    behind.
    """
    reply = machine.ask(add(epoch=epoch))
    assert isinstance(reply, AddReply)
    assert reply.error is ErrorCode.invalid_producer_id_mapping
    assert machine.ask(end(epoch=epoch, is_bumped=False)) == ProducerReply(error=ErrorCode.invalid_producer_id_mapping)


@pytest.mark.parametrize("epoch", [EPOCH, EPOCH + 3])
def test_the_producer_goes_on_under_a_fresh_producer_id(machine: Machine, epoch: int) -> None:
    asked = machine.ask(init(producer_id=THEIRS, epoch=epoch, fresh=None))
    assert isinstance(asked, ProducerReply)
    assert asked.needs_producer_id
    reply = machine.ask(init(producer_id=THEIRS, epoch=epoch))
    assert (reply.producer_id, reply.producer_epoch) == (OURS, 0)  # type: ignore[union-attr]
    machine.replay()
    assert machine.ask(add(producer_id=OURS, epoch=0)) == AddReply(errors={T0: ErrorCode.none})
    assert machine.ask(add()).error is ErrorCode.invalid_producer_id_mapping


def test_a_producer_that_did_not_hear_of_its_fresh_id_gets_it_again_and_no_other_instance_does(
    machine: Machine,
) -> None:
    for _ in range(2):
        reply = machine.ask(init(producer_id=THEIRS, epoch=EPOCH + 1))
        assert (reply.producer_id, reply.producer_epoch) == (OURS, 0)  # type: ignore[union-attr]
    assert machine.ask(init(producer_id=THEIRS, epoch=EPOCH)).error is ErrorCode.producer_fenced
    machine.ask(add(producer_id=OURS, epoch=0))
    assert machine.ask(init(producer_id=THEIRS, epoch=EPOCH + 1)).error is ErrorCode.producer_fenced


def test_an_instance_that_was_fenced_before_the_promotion_stays_fenced(machine: Machine) -> None:
    assert machine.ask(add(epoch=EPOCH - 1)).error is ErrorCode.producer_fenced
    assert machine.ask(end(epoch=EPOCH - 1)).error is ErrorCode.producer_fenced
    assert machine.ask(init(producer_id=THEIRS, epoch=EPOCH - 1)).error is ErrorCode.producer_fenced
    assert machine.ask(init(producer_id=THEIRS - 1, epoch=EPOCH)).error is ErrorCode.producer_fenced


def test_a_new_instance_takes_the_id_over_and_fences_the_carried_one(machine: Machine) -> None:
    assert machine.ask(init()).producer_id == OURS  # type: ignore[union-attr]
    assert machine.ask(init(producer_id=THEIRS, epoch=EPOCH)).error is ErrorCode.producer_fenced


def test_the_same_word_again_writes_nothing_and_a_newer_one_counts(machine: Machine) -> None:
    count = machine.record_count
    assert machine.ask(carry()) == ProducerReply()
    assert machine.record_count == count
    machine.ask(carry(epoch=EPOCH + 1))
    machine.replay()
    assert machine.ask(add(epoch=EPOCH)).error is ErrorCode.producer_fenced


def test_a_site_that_is_passive_again_follows_the_other_one_but_never_over_a_transaction_of_its_own(
    machine: Machine,
) -> None:
    machine.ask(init())
    machine.ask(add(producer_id=OURS, epoch=0))
    assert machine.ask(carry(producer_id=NEXT, epoch=0)) == ProducerReply(error=ErrorCode.concurrent_transactions)
    other = Machine()
    other.ask(init())
    assert other.ask(carry(producer_id=NEXT, epoch=0)) == ProducerReply()
    assert other.ask(add(producer_id=OURS, epoch=0)).error is ErrorCode.invalid_producer_id_mapping


@pytest.mark.parametrize("epoch", [EPOCH, EPOCH + 1])
def test_an_abort_by_the_present_producer_succeeds_and_one_by_a_fenced_instance_does_not(
    machine: Machine, epoch: int
) -> None:
    reply = machine.ask(end(epoch=epoch, is_commit=False, is_bumped=False))
    assert reply == ProducerReply(producer_id=THEIRS, producer_epoch=epoch)
    late = machine.ask(end(epoch=EPOCH - 1, is_commit=False, is_bumped=False))
    assert late == ProducerReply(error=ErrorCode.producer_fenced)
    assert machine.ask(add(epoch=epoch)).error is ErrorCode.invalid_producer_id_mapping


@pytest.mark.parametrize("epoch", [EPOCH, EPOCH + 1])
def test_a_producer_of_the_newer_protocol_aborts_and_goes_on_under_the_id_that_the_abort_brings(
    machine: Machine, epoch: int
) -> None:
    """Its clients end at INVALID_PRODUCER_ID_MAPPING (KIP-1050)."""
    assert machine.ask(add(epoch=epoch, client_version=2)).error is ErrorCode.transaction_abortable
    assert machine.ask(end(epoch=epoch)) == ProducerReply(error=ErrorCode.transaction_abortable)
    asked = machine.ask(end(epoch=epoch, is_commit=False))
    assert asked == ProducerReply(needs_producer_id=True)
    for _ in range(2):  # an answer may be lost
        reply = machine.ask(end(epoch=epoch, is_commit=False, fresh=OURS))
        assert reply == ProducerReply(producer_id=OURS, producer_epoch=0)
    machine.replay()
    assert machine.ask(add(producer_id=OURS, epoch=0, client_version=2)) == AddReply(errors={T0: ErrorCode.none})


def test_a_fenced_instance_of_the_newer_protocol_gets_no_id(machine: Machine) -> None:
    assert machine.ask(add(epoch=EPOCH - 1, client_version=2)).error is ErrorCode.producer_fenced
    for is_commit in (True, False):
        reply = machine.ask(end(epoch=EPOCH - 1, is_commit=is_commit, fresh=OURS))
        assert reply == ProducerReply(error=ErrorCode.producer_fenced)
    other = add(producer_id=THEIRS - 1, epoch=EPOCH, client_version=2)
    assert machine.ask(other).error is ErrorCode.invalid_producer_id_mapping
    machine.ask(end(epoch=EPOCH, is_commit=False, fresh=OURS))
    late = machine.ask(end(epoch=EPOCH - 1, is_commit=False, fresh=NEXT))
    assert late == ProducerReply(error=ErrorCode.invalid_producer_id_mapping)


@pytest.fixture
def abandoned() -> Machine:
    """A machine whose producer of epoch 0 had a transaction open when another site became
    active.
    """
    made = Machine()
    made.ask(init())
    made.ask(add(producer_id=OURS, epoch=0))
    decision = made.give(Abandon(transactional_id=NAME))
    (sent,) = [effect.transaction for effect in decision.effects if isinstance(effect, WriteMarkers)]
    assert (sent.state, sent.producer_epoch) == (TransactionState.PREPARE_ABORT, 0)
    assert (sent.client_version, sent.partitions) == (0, frozenset((T0,)))
    made.replay()
    return made


def test_the_present_producer_is_carried_once_what_was_open_has_its_markers(abandoned: Machine) -> None:
    """The producer got its id at the other site, and returns with it."""
    news = carry(producer_id=NEXT, epoch=0)
    assert abandoned.ask(news) == ProducerReply(error=ErrorCode.concurrent_transactions)
    assert abandoned.ask(init(fresh=NEXT)) == ProducerReply(error=ErrorCode.concurrent_transactions)
    abandoned.give(marked(producer_id=OURS, epoch=0))
    abandoned.replay()
    assert abandoned.state is TransactionState.EMPTY
    assert abandoned.ask(news) == ProducerReply()
    assert abandoned.ask(add(producer_id=NEXT, epoch=0)).error is ErrorCode.invalid_producer_id_mapping
    reply = abandoned.ask(init(producer_id=NEXT, epoch=0, fresh=NEXT + 1))
    assert reply == ProducerReply(producer_id=NEXT + 1, producer_epoch=0)


def test_a_producer_that_slept_through_two_moves_aborts_and_goes_on(abandoned: Machine) -> None:
    """The other site's leaders have aborted a part of its transaction, so it must not continue with
    it.
    """
    abandoned.give(marked(producer_id=OURS, epoch=0))
    assert abandoned.ask(add(producer_id=OURS, epoch=0)).error is ErrorCode.invalid_producer_id_mapping
    assert abandoned.ask(end(producer_id=OURS, epoch=0)) == ProducerReply(error=ErrorCode.transaction_abortable)
    reply = abandoned.ask(init(producer_id=OURS, epoch=0, fresh=NEXT))
    assert reply == ProducerReply(producer_id=NEXT, producer_epoch=0)


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_decided_transaction_is_not_abandoned(is_commit: bool) -> None:
    machine = Machine()
    machine.ask(init())
    machine.ask(add(producer_id=OURS, epoch=0))
    machine.ask(end(producer_id=OURS, epoch=0, is_commit=is_commit, is_bumped=False))
    decided = machine.state
    assert machine.give(Abandon(transactional_id=NAME)).records == ()
    assert machine.state is decided


def test_a_carried_id_is_forgotten_like_any_other_and_has_nothing_to_resume(machine: Machine) -> None:
    late_ms = TransactionLimits().expiration_ms + 2_000
    assert machine.passive_decision_count(Resume(transactional_id=NAME), now_ms=late_ms) == 0
    assert machine.passive_decision_count(Expire(transactional_id=NAME), now_ms=2_000) == 0
    assert machine.passive_decision_count(Expire(transactional_id=NAME), now_ms=late_ms) == 1
