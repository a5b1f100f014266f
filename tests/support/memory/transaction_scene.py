"""Transactions over partitions and a group's offsets, with every part that can stop in the middle,
driven by lines of text or by calls.

The transaction machine, two data partitions with their producers' state and guards, and a group
machine, joined as the broker joins them; records go through their bytes into `log`. Nothing happens
by itself: markers are written one partition at a time (`mark`), so that a script can crash the
coordinator between any two steps. Commands of scripts (`key=value` in any order):

    init ID [timeout=MS] [producer=7/0]        add ID 7/0 p0,p1 [version=2]        verify ID 7/0 p0
    end ID 7/0 commit|abort [bumped=yes]       write ID 7/0 p0 VALUE     offsets ID 7/0 g t-0=5
    mark [PARTITION]      complete ID advance MS restart expire show ID read p0 committed g
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from kio.schema.errors import ErrorCode

from broker.transactions.core import transaction_records
from broker.transactions.core.transaction_machine import TransactionLimits, Transactions
from broker.transactions.core.transaction_messages import (
    AddPartitions,
    AddReply,
    CancelTimeout,
    EndTransaction,
    Expire,
    InitProducer,
    MarkersWritten,
    ProducerReply,
    Resume,
    StartTimeout,
    TimeOut,
    TransactionAnswer,
    TransactionCommand,
    TransactionDecision,
    TransactionRemoved,
    TransactionReply,
    VerifyPartitions,
    WriteMarkers,
)
from broker.transactions.core.transaction_states import BUMPING_CLIENT_VERSION, Transaction, TransactionState
from tests.support.memory.data_partition import DataPartition
from wire.protocol.ids import TopicPartition

START_MS = 1_000_000
LIMITS = TransactionLimits(timeout_ms_max=60_000, expiration_ms=100_000)
DEFAULT_TIMEOUT_MS = 10_000


class LateWrite(NamedTuple):
    """A write that was admitted and is not in the log yet."""

    producer_id: int
    producer_epoch: int
    partition: TopicPartition
    value: str
    guard: int | None


class TransactionScene:
    """The machines of a transaction, joined as in a broker."""

    def __init__(self) -> None:
        self.now_ms = START_MS
        self.transactions = Transactions(LIMITS)
        self.log: list[tuple[bytes, bytes | None]] = []
        self.partitions = {TopicPartition("p", index): DataPartition(f"p{index}") for index in range(3)}
        self.timeouts: dict[str, int] = {}
        self.unmarked: dict[str, tuple[Transaction, set[TopicPartition]]] = {}
        self.lines: list[str] = []
        self.next_producer_id = 7
        self._token = 0
        self._replies: dict[int, TransactionReply] = {}

    # --- calls

    def ask(self, command: TransactionCommand) -> TransactionReply | None:
        """Decide, commit, apply, act."""
        self._token += 1
        self.take(self.transactions.decide(command, now_ms=self.now_ms, token=self._token))
        return self._replies.pop(self._token, None)

    def take(self, decision: TransactionDecision) -> None:
        """Commit the decision's records, apply them, and carry out its actions."""
        self.commit(decision)
        self.finish(decision)

    def commit(self, decision: TransactionDecision) -> None:
        """The records reach the log."""
        self.log.extend(transaction_records.encode(record) for record in decision.records)

    def finish(self, decision: TransactionDecision) -> None:
        """Apply the records and act on the effects."""
        for record in decision.records:
            self.transactions.apply(record)
            if isinstance(record, TransactionRemoved):
                self.lines.append(f"remove {record.transactional_id}")
            else:
                self.lines.append(f"store {transaction_text(record.transaction)}")
        assert not self.transactions.violations(), self.transactions.violations()
        for effect in decision.effects:
            match effect:
                case TransactionAnswer(token=token, reply=reply):
                    self._replies[token] = reply
                case StartTimeout(transactional_id=name, delay_ms=delay_ms):
                    self.timeouts[name] = self.now_ms + delay_ms
                    self.lines.append(f"timeout {name} {delay_ms}")
                case CancelTimeout(transactional_id=name):
                    self.timeouts.pop(name, None)
                case WriteMarkers(transaction=transaction):
                    name = transaction.transactional_id
                    self.unmarked[name] = transaction, set(transaction.partitions)
                    self.lines.append(f"markers for {name}: {_names(transaction.partitions)}")

    def init(
        self, name: str, *, timeout_ms: int = DEFAULT_TIMEOUT_MS, producer_id: int = -1, producer_epoch: int = -1
    ) -> ProducerReply:
        """InitProducerId, with an id from the block when one is needed."""
        command = InitProducer(
            transactional_id=name, timeout_ms=timeout_ms, producer_id=producer_id, producer_epoch=producer_epoch
        )
        reply = self.ask(command)
        assert isinstance(reply, ProducerReply)
        if reply.needs_producer_id:
            fresh = self._fresh()
            reply = self.ask(
                InitProducer(
                    transactional_id=name,
                    timeout_ms=timeout_ms,
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                    fresh_producer_id=fresh,
                )
            )
            assert isinstance(reply, ProducerReply)
        return reply

    def _fresh(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id - 1

    def add(self, name: str, producer_id: int, epoch: int, partitions: set[TopicPartition], version: int) -> ErrorCode:
        """AddPartitionsToTxn."""
        reply = self.ask(
            AddPartitions(
                transactional_id=name,
                producer_id=producer_id,
                producer_epoch=epoch,
                partitions=frozenset(partitions),
                client_version=version,
            )
        )
        assert isinstance(reply, AddReply)
        return reply.error

    def end(self, name: str, producer_id: int, epoch: int, *, is_commit: bool, is_bumped: bool) -> ProducerReply:
        """EndTxn."""
        command = EndTransaction(
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=epoch,
            is_commit=is_commit,
            is_bumped=is_bumped,
        )
        reply = self.ask(command)
        assert isinstance(reply, ProducerReply)
        if reply.needs_producer_id:
            fresh = self._fresh()
            reply = self.ask(
                EndTransaction(
                    transactional_id=name,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    is_commit=is_commit,
                    is_bumped=is_bumped,
                    fresh_producer_id=fresh,
                )
            )
            assert isinstance(reply, ProducerReply)
        return reply

    def write(self, name: str, producer_id: int, epoch: int, partition: TopicPartition, value: str) -> ErrorCode:
        """A transactional Produce of the older protocol: verified first when the partition is new
        to the transaction.
        """
        late = self.begin_write(name, producer_id, epoch, partition, value)
        return late if isinstance(late, ErrorCode) else self.finish_write(late)

    def begin_write(
        self, name: str, producer_id: int, epoch: int, partition: TopicPartition, value: str
    ) -> ErrorCode | LateWrite:
        """The part of a write before the coordinator's answer is there; `finish_write` may come any
        time later.
        """
        target = self.partitions[partition]
        guard = None
        if not target.producers.is_in_transaction(producer_id, epoch):
            guard = target.guards.begin(producer_id)
            reply = self.ask(
                VerifyPartitions(
                    transactional_id=name,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    partitions=frozenset((partition,)),
                )
            )
            assert isinstance(reply, AddReply)
            error = reply.error or reply.errors[partition]
            if error is not ErrorCode.none:
                target.guards.end(producer_id, guard)
                return error
        return LateWrite(producer_id, epoch, partition, value, guard)

    def finish_write(self, late: LateWrite) -> ErrorCode:
        """Append the record, if its transaction did not end meanwhile."""
        target = self.partitions[late.partition]
        is_valid = late.guard is not None and target.guards.is_valid(late.producer_id, late.guard)
        outcome = target.write(late.producer_id, late.producer_epoch, late.value, may_begin=is_valid)
        if late.guard is not None:
            target.guards.end(late.producer_id, late.guard)
        return outcome

    def mark(self, name: str, partition: TopicPartition) -> ErrorCode:
        """One marker reaches its partition; the coordinator does not know yet whether all have."""
        transaction, left = self.unmarked[name]
        outcome = self.partitions[partition].mark(
            transaction.producer_id,
            transaction.producer_epoch,
            is_commit=transaction.state is TransactionState.PREPARE_COMMIT,
        )
        left.discard(partition)
        return outcome

    def complete(self, name: str) -> None:
        """Every remaining marker is written, and the coordinator gets the results."""
        transaction, left = self.unmarked[name]
        for partition in sorted(left):
            self.mark(name, partition)
        del self.unmarked[name]
        self.ask(
            MarkersWritten(
                transactional_id=name,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
            )
        )

    def advance(self, elapsed_ms: int) -> None:
        """Let time pass. Timeouts that are due fire."""
        end_ms = self.now_ms + elapsed_ms
        while due := [(deadline, name) for name, deadline in self.timeouts.items() if deadline <= end_ms]:
            deadline, name = min(due)
            del self.timeouts[name]
            self.now_ms = max(self.now_ms, deadline)
            self.lines.append(f"{name} times out at +{self.now_ms - START_MS}")
            self.ask(TimeOut(transactional_id=name))
        self.now_ms = end_ms

    def replayed(self) -> Transactions:
        """A new machine from the log."""
        transactions = Transactions(LIMITS)
        for key, value in self.log:
            record = transaction_records.decode(key, value)
            assert record is not None
            transactions.apply(record)
        return transactions

    def restart(self) -> None:
        """The coordinator moves: it loses the state that was not committed, timers, and markers
        under way.
        """
        self.transactions = self.replayed()
        self.timeouts.clear()
        self.unmarked.clear()
        for transaction in self.transactions:
            self.ask(Resume(transactional_id=transaction.transactional_id))

    # --- scripts

    def answer(self, line: str) -> str:
        """Run one line of a script, and return the events as text."""
        self.lines = []
        verb, *words = line.split()
        plain = [word for word in words if "=" not in word]
        values = dict(word.split("=", 1) for word in words if "=" in word)
        verbs: dict[str, Callable[[list[str], dict[str, str]], object]] = {
            "init": self._init,
            "add": self._add,
            "write": self._write,
            "end": self._end,
            "mark": lambda plain, _: self.lines.append(self.mark(plain[0], _partition(plain[1])).name),
            "complete": lambda plain, _: self.complete(plain[0]),
            "advance": lambda plain, _: self.advance(int(plain[0])),
            "restart": lambda *_: self.restart(),
            "expire": lambda plain, _: self.ask(Expire(transactional_id=plain[0])),
            "read": lambda plain, _: self.lines.append(
                " ".join(self.partitions[_partition(plain[0])].read_committed()) or "-"
            ),
            "show": self._show,
        }
        verbs[verb](plain, values)
        return "\n".join(self.lines) or "nothing"

    def _init(self, plain: list[str], values: dict[str, str]) -> None:
        producer_id, epoch = _producer(values.get("producer", "-1/-1"))
        timeout_ms = int(values.get("timeout", DEFAULT_TIMEOUT_MS))
        reply = self.init(plain[0], timeout_ms=timeout_ms, producer_id=producer_id, producer_epoch=epoch)
        self.lines.append(_reply_text(reply))

    def _add(self, plain: list[str], values: dict[str, str]) -> None:
        partitions = {_partition(name) for name in plain[2].split(",")}
        version = int(values.get("version", 0))
        self.lines.append(self.add(plain[0], *_producer(plain[1]), partitions, version).name)

    def _write(self, plain: list[str], _: dict[str, str]) -> None:
        name, producer, partition, value = plain
        self.lines.append(self.write(name, *_producer(producer), _partition(partition), value).name)

    def _end(self, plain: list[str], values: dict[str, str]) -> None:
        reply = self.end(
            plain[0], *_producer(plain[1]), is_commit=plain[2] == "commit", is_bumped=values.get("bumped") == "yes"
        )
        self.lines.append(_reply_text(reply))

    def _show(self, plain: list[str], _: dict[str, str]) -> None:
        known = self.transactions.get(plain[0])
        self.lines.append("unknown" if known is None else transaction_text(known))


def version_of(is_bumped: bool) -> int:
    """The client version that goes with the protocol."""
    return BUMPING_CLIENT_VERSION if is_bumped else 0


def _producer(text: str) -> tuple[int, int]:
    producer_id, epoch = text.split("/")
    return int(producer_id), int(epoch)


def _partition(name: str) -> TopicPartition:
    return TopicPartition(name[0], int(name[1:]))


def _names(partitions: frozenset[TopicPartition]) -> str:
    return " ".join(f"{partition.topic}{partition.partition}" for partition in sorted(partitions)) or "none"


def _reply_text(reply: ProducerReply) -> str:
    return reply.error.name if reply.error else f"producer {reply.producer_id}/{reply.producer_epoch}"


def transaction_text(transaction: Transaction) -> str:
    """A transactional id in one line."""
    following = f" then {transaction.next_producer_id}" if transaction.next_producer_id >= 0 else ""
    return (
        f"{transaction.transactional_id} {transaction.state.label} {transaction.producer_id}/"
        f"{transaction.producer_epoch}{following} [{_names(transaction.partitions)}]"
    )
