"""A producer whose epochs are used up while the coordinator aborts its transaction: the epoch of
the markers is never a producer's.
"""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from broker.transactions.core.producer_ids import PRODUCER_EPOCH_MAX
from broker.transactions.core.transaction_machine import TransactionLimits, Transactions
from broker.transactions.core.transaction_messages import (
    AddPartitions,
    EndTransaction,
    InitProducer,
    MarkersWritten,
    ProducerReply,
    TimeOut,
    TransactionAnswer,
    TransactionCommand,
    TransactionReply,
    TransactionStored,
)
from broker.transactions.core.transaction_states import (
    BUMPING_CLIENT_VERSION,
    FENCING_EPOCH_MAX,
    Transaction,
    TransactionState,
)
from wire.protocol.ids import TopicPartition

NAME, PRODUCER, NEXT = "booking", 7, 8
LAST = PRODUCER_EPOCH_MAX


class Machine:
    def __init__(self) -> None:
        self._transactions = Transactions(TransactionLimits())
        last = Transaction(transactional_id=NAME, producer_id=PRODUCER, producer_epoch=LAST, timeout_ms=1000)
        self._transactions.apply(TransactionStored(transaction=last))
        self.ask(
            AddPartitions(
                transactional_id=NAME,
                producer_id=PRODUCER,
                producer_epoch=LAST,
                partitions=frozenset((TopicPartition("t", 0),)),
                client_version=BUMPING_CLIENT_VERSION,
            )
        )

    def ask(self, command: TransactionCommand, *, now_ms: int = 10_000) -> TransactionReply | None:
        decision = self._transactions.decide(command, now_ms=now_ms, token=1)
        for record in decision.records:
            self._transactions.apply(record)
        assert self._transactions.violations() == []
        return next((effect.reply for effect in decision.effects if isinstance(effect, TransactionAnswer)), None)

    def aborted(self) -> None:
        self.ask(MarkersWritten(transactional_id=NAME, producer_id=PRODUCER, producer_epoch=FENCING_EPOCH_MAX))
        found = self._transactions.get(NAME)
        assert found is not None
        assert found.state is TransactionState.COMPLETE_ABORT


@pytest.fixture
def machine() -> Machine:
    return Machine()


def init(fresh: int | None) -> InitProducer:
    return InitProducer(
        transactional_id=NAME, timeout_ms=1000, producer_id=PRODUCER, producer_epoch=LAST, fresh_producer_id=fresh
    )


def abort(fresh: int | None) -> EndTransaction:
    return EndTransaction(
        transactional_id=NAME,
        producer_id=PRODUCER,
        producer_epoch=LAST,
        is_commit=False,
        is_bumped=True,
        fresh_producer_id=fresh,
    )


def test_an_abort_after_the_timeout_goes_on_under_a_new_id(machine: Machine) -> None:
    machine.ask(TimeOut(transactional_id=NAME), now_ms=20_000)
    machine.aborted()
    assert machine.ask(abort(None)) == ProducerReply(needs_producer_id=True)
    expected = ProducerReply(producer_id=NEXT, producer_epoch=0)
    assert machine.ask(abort(NEXT)) == expected
    assert machine.ask(abort(None)) == expected


def test_a_producer_that_asks_for_its_next_epoch_goes_on_under_a_new_id(machine: Machine) -> None:
    assert machine.ask(init(None)) == ProducerReply(error=ErrorCode.concurrent_transactions)
    machine.aborted()
    assert machine.ask(init(None)) == ProducerReply(needs_producer_id=True)
    expected = ProducerReply(producer_id=NEXT, producer_epoch=0)
    assert machine.ask(init(NEXT)) == expected
    assert machine.ask(init(None)) == expected
