"""The cycle of a link's transactions: when one ends, and that after an interruption at any step the
target holds all of it or nothing.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from mirror.translate.core.transaction_cycle import CycleLimits, Phase, TransactionCycle
from runtime.invariants import InvariantBroken
from wire.batches.record_batch import BatchHeader, read_header
from wire.batches.records import Record, encode_batch
from wire.protocol.ids import TopicPartition

KEY, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
LIMITS = CycleLimits(interval_ms=100, hold_max_ms=1000, bytes_max=5000)
TRANSACTIONAL, CONTROL = 0x10, 0x30


def header(producer_id: int = -1, attributes: int = 0) -> BatchHeader:
    return read_header(encode_batch([Record(b"\0\0\0\1", b"v", 1)], producer_id=producer_id, attributes=attributes))


def opened() -> TransactionCycle:
    cycle = TransactionCycle(LIMITS)
    cycle.open()
    return cycle


def carry(cycle: TransactionCycle, *headers: BatchHeader, key: TopicPartition = KEY, size_bytes: int = 10) -> None:
    cycle.carry(key, headers, skipped=(), size_bytes=size_bytes)


def test_a_transaction_is_due_after_its_interval() -> None:
    cycle = opened()
    assert cycle.enter(50)
    carry(cycle, header())
    assert cycle.due_in_ms(60) == 90
    assert cycle.due_in_ms(200) == 0


def test_a_transaction_that_is_full_or_waited_for_is_due_at_once() -> None:
    full, waited_for = opened(), opened()
    for cycle in (full, waited_for):
        cycle.enter(0)
    carry(full, header(), size_bytes=LIMITS.bytes_max)
    waited_for.hasten()
    assert full.due_in_ms(0) == waited_for.due_in_ms(0) == 0


def test_the_end_is_put_off_while_a_transaction_of_the_source_goes_on_but_not_for_ever() -> None:
    cycle = opened()
    cycle.enter(0)
    carry(cycle, header(7, TRANSACTIONAL))
    carry(cycle, header(8, TRANSACTIONAL), key=OTHER)
    assert cycle.due_in_ms(100) == 900
    carry(cycle, header(7, CONTROL))
    assert cycle.due_in_ms(100) == 900
    carry(cycle, header(8, CONTROL), key=OTHER)
    assert cycle.due_in_ms(100) == 0
    carry(cycle, header(9, TRANSACTIONAL))
    assert cycle.due_in_ms(1000) == 0


def test_the_end_is_not_put_off_inside_a_transaction_of_the_source_when_no_writer_can_come() -> None:
    cycle = opened()
    cycle.enter(0)
    carry(cycle, header(7, TRANSACTIONAL))
    cycle.fill()
    assert cycle.due_in_ms(0, is_writer_coming=True) == 0
    cycle.leave()
    cycle.refuse_all()
    cycle.end()
    cycle.committed()
    cycle.enter(10)
    carry(cycle, header())
    assert cycle.due_in_ms(10) == 1000


def test_the_end_is_put_off_for_writers_that_wait_already_but_not_for_ever() -> None:
    cycle = opened()
    cycle.enter(0)
    carry(cycle, header())
    assert cycle.due_in_ms(100, is_writer_coming=True) == 900
    assert cycle.due_in_ms(100) == 0
    assert cycle.due_in_ms(1000, is_writer_coming=True) == 0


def test_the_end_is_not_put_off_for_writers_where_it_is_waited_for_or_the_transaction_is_full() -> None:
    full, waited_for = opened(), opened()
    for cycle in (full, waited_for):
        cycle.enter(0)
    carry(full, header(), size_bytes=LIMITS.bytes_max)
    waited_for.hasten()
    assert full.due_in_ms(0, is_writer_coming=True) == waited_for.due_in_ms(0, is_writer_coming=True) == 0


def test_a_transaction_of_the_source_that_was_too_long_is_still_known_in_the_next_one() -> None:
    cycle = opened()
    cycle.enter(0)
    carry(cycle, header(7, TRANSACTIONAL))
    finish(cycle)
    cycle.enter(1000)
    carry(cycle, header(), key=OTHER)
    assert cycle.due_in_ms(1100) == 0, "its partition has nothing in this one, and may be paused"
    carry(cycle, header(8, TRANSACTIONAL))
    carry(cycle, header(8, CONTROL))
    assert cycle.due_in_ms(1100) == 900
    carry(cycle, header(7, CONTROL))
    assert cycle.due_in_ms(1100) == 0


def test_a_batch_that_is_left_out_of_a_transaction_does_not_begin_it() -> None:
    cycle = opened()
    cycle.enter(0)
    batch = header(7, TRANSACTIONAL)
    cycle.carry(KEY, [batch], skipped={batch.base_offset}, size_bytes=0)
    assert cycle.due_in_ms(100) == 0
    assert KEY in cycle.keys, "its position is noted all the same"


def finish(cycle: TransactionCycle) -> None:
    cycle.refuse_all()
    cycle.leave()
    cycle.end()
    cycle.committed()


def test_no_writer_enters_a_transaction_that_is_to_end_and_it_ends_when_all_have_left() -> None:
    cycle = opened()
    cycle.enter(0)
    cycle.enter(0)
    cycle.refuse_all()
    assert not cycle.may_enter
    with pytest.raises(InvariantBroken):
        cycle.enter(0)
    for _ in range(2):
        assert not cycle.may_end
        with pytest.raises(InvariantBroken):
            cycle.end()
        cycle.leave()
    cycle.end()
    assert not cycle.may_enter
    cycle.committed()
    assert cycle.may_enter


def test_only_the_outcome_of_an_end_that_was_asked_for_is_unknown() -> None:
    filling, ending = opened(), opened()
    for cycle in (filling, ending):
        cycle.enter(0)
    ending.refuse_all()
    ending.leave()
    ending.end()
    for cycle in (filling, ending):
        cycle.break_off()
        assert cycle.phase is Phase.CLOSED
        assert not cycle.may_enter
    assert not filling.must_read
    assert ending.must_read
    ending.open()
    assert not ending.must_read


@dataclass
class Target:
    """A log and its notes, as read-committed readers see them, and the open transaction."""

    seen: list[int] = field(default_factory=list)
    noted: int = 0
    open_records: list[int] = field(default_factory=list)
    open_note: int | None = None
    epoch: int = 0

    def begin(self) -> int:
        """InitProducerId."""
        self.open_records, self.open_note = [], None
        self.epoch += 1
        return self.epoch

    def produce(self, epoch: int, records: list[int]) -> None:
        assert epoch == self.epoch, "fenced"
        self.open_records += records

    def note(self, epoch: int, position: int) -> None:
        assert epoch == self.epoch, "fenced"
        self.open_note = position

    def commit(self, epoch: int) -> None:
        assert epoch == self.epoch, "fenced"
        self.seen += self.open_records
        self.noted = self.noted if self.open_note is None else self.open_note
        self.open_records, self.open_note = [], None


class Interrupted(Exception):
    """The mirror was killed, or an answer was lost."""


class MirrorOfNumbers:
    """Writes 0, 1, 2... through a cycle; may be interrupted at each of its steps, before or after
    the target acted.
    """

    def __init__(self, target: Target, chance: random.Random, steps_left: int) -> None:
        self.target, self._chance, self.steps_left = target, chance, steps_left
        self.cycle = TransactionCycle(LIMITS)
        self._epoch = -1
        self._position = -1
        self.transactions = 0

    def step(self, action: object = None) -> None:
        """One step towards the target: is lost, arrives and is not answered, or arrives."""
        self.steps_left -= 1
        is_lost = self.steps_left < 0
        if callable(action) and (not is_lost or self._chance.random() < 0.5):
            action()
        if is_lost:
            raise Interrupted

    def run(self) -> None:
        """Until interrupted."""
        while True:
            self.round()

    def round(self) -> None:
        """One transaction with some records."""
        if self.cycle.phase is Phase.CLOSED:
            self.step(self._begin)
            if self.cycle.must_read:
                self.step()
                self._position = self.target.noted
            self.cycle.open()
        position = self._position
        self.cycle.enter(0)
        for _ in range(self._chance.randint(1, 3)):
            records = list(range(position, position + self._chance.randint(1, 3)))
            self.cycle.carry(KEY, [header()], skipped=(), size_bytes=1)
            self.step(lambda records=records: self.target.produce(self._epoch, records))
            position += len(records)
        self.cycle.refuse_all()
        self.cycle.leave()
        self.cycle.end()
        self.step(lambda: self.target.note(self._epoch, position))
        self.step(lambda: self.target.commit(self._epoch))
        self.cycle.committed()
        self._position = position
        self.transactions += 1

    def _begin(self) -> None:
        self._epoch = self.target.begin()


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "answer lost"])
def test_an_interruption_after_any_step_leaves_all_of_a_transaction_or_nothing(is_killed: bool) -> None:
    for seed in range(8):
        for steps in range(25):
            chance = random.Random(f"{seed}/{steps}")
            target = Target()
            mirror = MirrorOfNumbers(target, chance, steps)
            with pytest.raises(Interrupted):
                mirror.run()
            assert target.seen == list(range(target.noted)), "records and notes agree at every moment"
            if is_killed:
                mirror = MirrorOfNumbers(target, chance, 1000)
            else:
                mirror.cycle.break_off()
                mirror.steps_left = 1000
            before = target.noted
            for _ in range(3):
                mirror.round()
            assert target.noted > before
            assert target.seen == list(range(target.noted)), "nothing is repeated, lost or out of order"
