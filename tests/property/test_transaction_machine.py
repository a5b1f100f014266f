"""Transactions under random producers, zombies, crashes and late writes: nothing torn, aborted or
fenced is ever read as committed.

Two transactional ids, each with one producer that follows the answers and zombies that keep older
ids and epochs, of both protocols. The coordinator may lose an answer or everything that is not in
its log, between any two steps; markers arrive one by one, or twice.

Two more ids have one faithful producer each, one of each protocol, and no other producer fences
them. They end their transactions with alternating outcomes and begin the next one while the markers
are under way: they are asked to wait, and refused nothing.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from kio.schema.errors import ErrorCode

from broker.transactions.core.transaction_messages import EndTransaction, TransactionDecision, TransactionStored
from broker.transactions.core.transaction_states import TransactionState
from tests.support.examples import examples
from tests.support.memory.transaction_scene import LateWrite, TransactionScene, version_of
from wire.protocol.ids import NO_EPOCH, TopicPartition

NAMES = st.sampled_from(["t", "u"])
PARTITIONS = st.sampled_from([TopicPartition("p", index) for index in range(3)])
Producer = tuple[int, int]
FAITHFUL = {"older": False, "newer": True}
"""Transactional id, and whether each transaction has an epoch of its own."""


class Recorded(TransactionScene):
    """A scene that notes what was decided about each accepted write, the moment that the decision
    is in the log.
    """

    def __init__(self) -> None:
        super().__init__()
        self.open: dict[str, list[tuple[TopicPartition, str]]] = {}
        self.committed: list[tuple[TopicPartition, str]] = []
        self.lost: set[str] = set()

    def commit(self, decision: TransactionDecision) -> None:
        super().commit(decision)
        for record in decision.records:
            if isinstance(record, TransactionStored) and record.transaction.state.is_ending:
                written = self.open.pop(record.transaction.transactional_id, [])
                if record.transaction.state is TransactionState.PREPARE_COMMIT:
                    self.committed += written
                else:
                    self.lost.update(value for _, value in written)

    def take_note(self, name: str, partition: TopicPartition, value: str, outcome: ErrorCode) -> None:
        """A write was answered.

        In the older protocol one that comes between decision and marker shares the fate of its
        transaction: its producer broke its promise to write nothing after the end.
        """
        transaction = self.transactions.get(name)
        if outcome is not ErrorCode.none:
            self.lost.add(value)
        elif transaction is None or not transaction.state.is_ending:
            self.open.setdefault(name, []).append((partition, value))
        elif transaction.state is TransactionState.PREPARE_COMMIT:
            self.committed.append((partition, value))
        else:
            self.lost.add(value)


class TransactionHistory(RuleBasedStateMachine):
    """Random histories of two transactional ids."""

    def __init__(self) -> None:
        super().__init__()
        self.scene = Recorded()
        self.known: dict[str, list[Producer]] = {"t": [], "u": []}
        self.late: list[tuple[str, LateWrite]] = []
        self.values = 0
        self.faithful: dict[str, Producer] = {}
        self.commits: dict[str, bool] = {}

    def a_producer(self, data: st.DataObject, name: str) -> Producer:
        """Mostly the newest, sometimes a zombie."""
        known = self.known[name]
        if not known:
            return (99, 0)  # an id that was not given to any producer
        return data.draw(st.sampled_from([known[-1], known[-1], known[-1], *known]))

    def a_value(self) -> str:
        self.values += 1
        return f"v{self.values}"

    def learn(self, name: str, producer: Producer) -> None:
        if producer[0] >= 0 and producer not in self.known[name]:
            self.known[name].append(producer)

    @rule(name=NAMES, is_named=st.booleans(), data=st.data())
    def init(self, name: str, is_named: bool, data: st.DataObject) -> None:
        producer_id, epoch = self.a_producer(data, name) if is_named else (-1, NO_EPOCH)
        reply = self.scene.init(name, producer_id=producer_id, producer_epoch=epoch)
        self.learn(name, (reply.producer_id, reply.producer_epoch))

    @rule(name=NAMES, partition=PARTITIONS, is_bumped=st.booleans(), data=st.data())
    def add_and_write(self, name: str, partition: TopicPartition, is_bumped: bool, data: st.DataObject) -> None:
        producer = self.a_producer(data, name)
        self.scene.add(name, *producer, {partition}, version_of(is_bumped))
        value = self.a_value()
        self.scene.take_note(name, partition, value, self.scene.write(name, *producer, partition, value))

    @rule(name=NAMES, partition=PARTITIONS, data=st.data())
    def write_without_adding(self, name: str, partition: TopicPartition, data: st.DataObject) -> None:
        value = self.a_value()
        outcome = self.scene.write(name, *self.a_producer(data, name), partition, value)
        self.scene.take_note(name, partition, value, outcome)

    @rule(name=NAMES, partition=PARTITIONS, data=st.data())
    def begin_a_write_that_comes_late(self, name: str, partition: TopicPartition, data: st.DataObject) -> None:
        begun = self.scene.begin_write(name, *self.a_producer(data, name), partition, self.a_value())
        if isinstance(begun, LateWrite):
            self.late.append((name, begun))

    @rule(data=st.data())
    def a_late_write_arrives(self, data: st.DataObject) -> None:
        if self.late:
            name, late = self.late.pop(data.draw(st.integers(0, len(self.late) - 1)))
            self.scene.take_note(name, late.partition, late.value, self.scene.finish_write(late))

    @rule(name=NAMES, is_commit=st.booleans(), is_bumped=st.booleans(), data=st.data())
    def end(self, name: str, is_commit: bool, is_bumped: bool, data: st.DataObject) -> None:
        reply = self.scene.end(name, *self.a_producer(data, name), is_commit=is_commit, is_bumped=is_bumped)
        self.learn(name, (reply.producer_id, reply.producer_epoch))

    def complete_and_say_wait(self, name: str, error: ErrorCode) -> bool:
        """Whether the producer has to ask again; all markers are written then. Any other refusal is
        a defect.
        """
        assert error in (ErrorCode.none, ErrorCode.concurrent_transactions), error.name
        if error is ErrorCode.none:
            return False
        assert self.scene.transactions.get(name).state.is_ending  # type: ignore[union-attr]
        self.scene.complete(name)
        return True

    @rule(name=st.sampled_from(sorted(FAITHFUL)), partition=PARTITIONS, is_early=st.booleans())
    def a_faithful_producer_ends_its_next_transaction(
        self, name: str, partition: TopicPartition, is_early: bool
    ) -> None:
        """With the outcome that the one before did not have; an abort may come before anything was
        written.
        """
        is_bumped = FAITHFUL[name]
        if name not in self.faithful:
            reply = self.scene.init(name)
            self.faithful[name] = reply.producer_id, reply.producer_epoch
        is_commit = self.commits[name] = not self.commits.get(name, False)
        if is_commit or not is_bumped or not is_early:
            version = version_of(is_bumped)
            while self.complete_and_say_wait(name, self.scene.add(name, *self.faithful[name], {partition}, version)):
                pass
            value = self.a_value()
            outcome = self.scene.write(name, *self.faithful[name], partition, value)
            self.scene.take_note(name, partition, value, outcome)
            assert outcome is ErrorCode.none
        while True:
            reply = self.scene.end(name, *self.faithful[name], is_commit=is_commit, is_bumped=is_bumped)
            if not self.complete_and_say_wait(name, reply.error):
                break
        self.faithful[name] = reply.producer_id, reply.producer_epoch

    @rule(name=NAMES, is_commit=st.booleans(), is_bumped=st.booleans(), data=st.data())
    def end_and_lose_the_answer_in_a_crash(
        self, name: str, is_commit: bool, is_bumped: bool, data: st.DataObject
    ) -> None:
        producer_id, epoch = self.a_producer(data, name)
        command = EndTransaction(
            transactional_id=name,
            producer_id=producer_id,
            producer_epoch=epoch,
            is_commit=is_commit,
            is_bumped=is_bumped,
        )
        self.scene.commit(self.scene.transactions.decide(command, now_ms=self.scene.now_ms))
        self.scene.restart()

    @rule(name=NAMES, data=st.data())
    def one_marker_arrives(self, name: str, data: st.DataObject) -> None:
        if name in self.scene.unmarked:
            partitions = sorted(self.scene.unmarked[name][0].partitions)
            if partitions:
                self.scene.mark(name, data.draw(st.sampled_from(partitions)))

    @rule(name=NAMES)
    def all_markers_arrive(self, name: str) -> None:
        if name in self.scene.unmarked:
            self.scene.complete(name)

    @rule(elapsed_ms=st.sampled_from([100, 9_000, 11_000]))
    def time_passes(self, elapsed_ms: int) -> None:
        self.scene.advance(elapsed_ms)

    @rule()
    def crash(self) -> None:
        self.scene.restart()

    @invariant()
    def readers_see_only_committed_records(self) -> None:
        committed = {value for _, value in self.scene.committed}
        for partition in self.scene.partitions.values():
            seen = partition.read_committed()
            assert set(seen) <= committed, (seen, committed)
            assert len(seen) == len(set(seen))

    @invariant()
    def the_log_replays_to_the_same_state(self) -> None:
        assert self.scene.replayed().durable_state() == self.scene.transactions.durable_state()

    def teardown(self) -> None:
        """After all effects are carried out, every committed record is in the log, and no request
        waits.
        """
        for name in tuple(self.scene.unmarked):
            self.scene.complete(name)
        self.scene.advance(100_000)
        for name in tuple(self.scene.unmarked):
            self.scene.complete(name)
        for key, partition in self.scene.partitions.items():
            assert partition.producers.first_unstable_offset is None
            wanted = {value for found, value in self.scene.committed if found == key}
            assert set(partition.read_committed()) == wanted


TestTransactionHistory = TransactionHistory.TestCase
TestTransactionHistory.settings = settings(max_examples=examples(60), stateful_step_count=40, deadline=None)
