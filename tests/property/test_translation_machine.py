"""Mirrors of one partition that die, repeat, overtake each other and forget: the target has each
record once, in order.

The target is a broker's log with Kafka's rule for sequences (known producers must continue, unknown
ones may begin anywhere, the last five batches are known again). Mirrors are the machines of
`mirror/core`, with a queue of requests between that a killed mirror leaves behind: they may still
arrive, at any time, in their order.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mirror.translate.core.renumbering import Piece, Stamp, renumber
from mirror.translate.core.resume import TailMatch, end_of_copy
from mirror.translate.core.translation import BrokenOff, NotTheNextBatch, Planned, Position, Translation
from tests.support.examples import examples
from wire.batches.record_batch import BatchHeader, encode_header, read_header
from wire.batches.records import Record, decode_records, encode_batch

OURS = 4000


@dataclass
class Broker:
    """One partition of a target."""

    batches: list[bytes] = field(default_factory=list)
    end: int = 0
    producers: dict[int, tuple[int, int, deque[tuple[int, int]]]] = field(default_factory=dict)

    def produce(self, batch: bytes) -> int | None:
        """The offset; None: the sequence is refused."""
        header = read_header(batch)
        if header.producer_id >= 0:
            epoch, last, recent = self.producers.get(header.producer_id, (-1, -1, deque(maxlen=5)))
            for sequence, offset in recent:
                if sequence == header.base_sequence and epoch == header.producer_epoch:
                    return offset
            if epoch > header.producer_epoch:
                return None
            if epoch == header.producer_epoch and header.base_sequence != last + 1:
                return None
            if -1 < epoch < header.producer_epoch and header.base_sequence != 0:
                return None
            if epoch != header.producer_epoch:
                recent = deque(maxlen=5)
            recent.append((header.base_sequence, self.end))
            self.producers[header.producer_id] = (header.producer_epoch, header.last_sequence, recent)
        offset = self.end
        records = batch[61:]
        self.batches.append(encode_header(header._replace(base_offset=offset), records) + records)
        self.end += header.last_offset_delta + 1
        return offset

    def headers(self) -> list[BatchHeader]:
        return [read_header(batch) for batch in self.batches]


class Source:
    """One partition's log: data, and markers that are left out."""

    def __init__(self, chance: random.Random) -> None:
        self.batches: list[bytes] = []
        self.skipped: set[int] = set()
        self._chance = chance
        self._end = 0
        self._number = 0

    def grow(self) -> None:
        count = self._chance.randint(1, 4)
        values = [Record(None, f"{self._number + index}".encode(), index) for index in range(count)]
        if self._chance.random() < 0.2:
            self.skipped.add(self._end)
        else:
            self._number += count
        self.batches.append(encode_batch(values, base_offset=self._end, leader_epoch=1))
        self._end += count

    def wanted(self) -> list[bytes | None]:
        return [
            record.value
            for batch in self.batches
            if read_header(batch).base_offset not in self.skipped
            for record in decode_records(batch)
        ]

    def after(self, offset: int) -> list[bytes]:
        return [batch for batch in self.batches if read_header(batch).next_offset > offset]


class MirrorOfOne:
    """A mirror process: resumes, then plans and sends; answers come when the network delivers."""

    def __init__(self, source: Source, broker: Broker, stored: Position | None) -> None:
        self.source, self.broker = source, broker
        self.translation = Translation(stored)
        self.requests: deque[tuple[Planned, bytes]] = deque()
        self._is_opened = False
        self._is_doubted = False
        self.was_silent_for_long = False
        self.has_renewed = False
        self.resume()

    def resume(self) -> None:
        before = self.translation.position.source_next
        match = TailMatch(self.translation, producer_ids={OURS})
        match.see_target(b"".join(self.broker.batches))
        match.see_source(b"".join(self.source.batches), skipped=self.source.skipped, producer_of=lambda _: OURS)
        match.finish()
        self.translation.rest()
        if self._is_doubted and self.translation.position.source_next == before:
            self.translation.renew_epochs()
            self.has_renewed = True
        self._is_doubted = self._is_opened = self.was_silent_for_long = False
        self.requests.clear()

    def send(self) -> None:
        """Plan and send the next batch. The first one of all goes alone."""
        if self.requests and not self._is_opened:
            return
        if self.was_silent_for_long:
            self.resume()
        batches = self.source.after(self.translation.planned_next)
        if not batches:
            self.translation.confirm()
            return
        header = read_header(batches[0])
        (plan,) = self.translation.plan(
            [header],
            expected=self.translation.planned_next,
            skipped=self.source.skipped,
            producer_of=lambda _: OURS,
        )
        assert plan is not None
        if plan.stamp is not None:
            renumbered = renumber(batches[0], 0, header, plan.stamp)
            plan.pieces = renumbered.pieces
            self.requests.append((plan, renumbered.batch))
        self.translation.confirm()

    def deliver(self, *, is_answer_lost: bool = False) -> None:
        """The broker gets the oldest request; its answer comes back or does not."""
        if not self.requests:
            return
        plan, batch = self.requests.popleft()
        offset = self.broker.produce(batch)
        if is_answer_lost:
            self.resume()
        elif offset is None:
            self._is_doubted = self.translation.is_next(plan)
            self.resume()
        else:
            self._is_opened = True
            self.translation.confirm(plan, offset)


class Scene:
    """One partition's history: each step is one of the methods that do not begin with an
    underscore.
    """

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.source, self.broker = Source(self.chance), Broker()
        self.stored: Position | None = None
        self.mirror = MirrorOfOne(self.source, self.broker, None)
        self.late: deque[bytes] = deque()
        self.foreign_values: set[bytes | None] = set()
        self.surplus_of_killed = 0

    def grow(self) -> None:
        self.source.grow()

    def send(self) -> None:
        self.mirror.send()

    def deliver(self) -> None:
        self.mirror.deliver()

    def lose_answer(self) -> None:
        self.mirror.deliver(is_answer_lost=True)

    def store(self) -> None:
        self.stored = _copy(self.mirror.translation.position)

    def kill(self) -> None:
        self.late += [batch for _, batch in self.mirror.requests]
        self.surplus_of_killed += self.mirror.translation.surplus.between
        self.mirror = MirrorOfOne(self.source, self.broker, self.stored and _copy(self.stored))

    def arrive_late(self) -> None:
        if self.late:
            self.broker.produce(self.late.popleft())

    def write_from_elsewhere(self) -> None:
        value = f"foreign {self.broker.end}".encode()
        self.foreign_values.add(value)
        self.broker.produce(encode_batch([Record(None, value)]))

    def forget(self) -> None:
        """Sequences expire, long after the last request arrived: a mirror looks at the log again by
        then.
        """
        if not self.late and not self.mirror.requests:
            self.broker.producers.clear()
            self.mirror.was_silent_for_long = True

    def forget_early(self) -> None:
        """Sequences expire while requests are still under way, as those of producers that write
        what is old.
        """
        self.broker.producers.clear()

    def finish(self) -> list[bytes | None]:
        """Let everything arrive, and the mirror be done; the values that are the target's in the
        end.
        """
        while self.late:
            self.arrive_late()
        mirror = self.mirror
        mirror.resume()
        while self.source.after(mirror.translation.planned_next) or mirror.requests:
            mirror.send()
            mirror.deliver()
        mirror.translation.confirm()
        return [record.value for batch in self.broker.batches for record in decode_records(batch)]


STEPS = ("grow", "send", "send", "deliver", "deliver", "lose_answer", "kill", "arrive_late", "store", "forget")


@settings(max_examples=examples(150))
@given(st.integers(0, 2**32), st.integers(20, 150))
def test_each_record_is_mirrored_once_and_in_order(seed: int, steps: int) -> None:
    scene = Scene(seed)
    _play(scene, steps, (*STEPS, "write_from_elsewhere"))
    found = scene.finish()
    assert [value for value in found if value not in scene.foreign_values] == scene.source.wanted()
    assert scene.mirror.translation.surplus.between <= len(scene.foreign_values)
    _check_map(scene.source, scene.broker, scene.mirror.translation)


@settings(max_examples=examples(150))
@given(st.integers(0, 2**32), st.integers(20, 150))
@example(43866, 91)  # a late request is refused, and after the broker has forgotten again the next one is not
def test_nothing_is_lost_and_each_repetition_counted_where_brokers_forget_too_early(seed: int, steps: int) -> None:
    scene = Scene(seed)
    _play(scene, steps, (*STEPS, "forget_early"))
    found = scene.finish()
    # In order, repetitions aside: a late request may come before the batches in front of it are
    # written again, and then it is written again too.
    remaining = iter(found)
    assert all(value in remaining for value in scene.source.wanted())
    assert set(found) == set(scene.source.wanted())
    repeated = len(found) - len(set(found))
    assert repeated <= scene.mirror.translation.surplus.between + scene.surplus_of_killed
    _check_map(scene.source, scene.broker, scene.mirror.translation)


def _play(scene: Scene, steps: int, kinds: Sequence[str]) -> None:
    for _ in range(steps):
        getattr(scene, scene.chance.choice(kinds))()
        if scene.mirror.has_renewed:
            # New epochs are noted before anything is sent under them.
            scene.store()
            scene.mirror.has_renewed = False


def _copy(position: Position) -> Position:
    return Position(position.source_next, position.source_epoch, position.target_next, dict(position.sequences))


def _check_map(source: Source, broker: Broker, translation: Translation) -> None:
    """The entries of the map are true; a mirror that started at a stored position does not know the
    earlier ones.
    """
    theirs = {record.offset: record.value for batch in source.batches for record in decode_records(batch)}
    ours = {record.offset: record.value for batch in broker.batches for record in decode_records(batch)}
    for run in translation.map:
        for index in range(run.record_count):
            assert theirs[run.source_offset + index] == ours[run.target_offset + index]


def header(offset: int, count: int) -> BatchHeader:
    return read_header(encode_batch([Record(None, b"v")] * count, base_offset=offset, leader_epoch=3))


def plan(translation: Translation, offset: int, count: int = 2) -> Planned:
    (planned,) = translation.plan([header(offset, count)], expected=offset, skipped=(), producer_of=lambda _: OURS)
    assert planned is not None
    planned.pieces = (Piece(offset, 0, count),)
    return planned


def test_a_batch_that_is_sent_again_has_the_same_stamp() -> None:
    translation = Translation()
    first, second = plan(translation, 0), plan(translation, 2)
    translation.break_off()
    with pytest.raises(BrokenOff):
        plan(translation, 4)
    assert plan(translation, 0).stamp == first.stamp
    assert plan(translation, 2).stamp == second.stamp


def test_confirmation_in_another_order_moves_nothing_past_a_gap() -> None:
    translation = Translation()
    first, second = plan(translation, 0), plan(translation, 2)
    translation.confirm(second, 12)
    assert translation.position.source_next == 0
    translation.confirm(first, 10)
    assert translation.position.source_next == 4
    assert translation.downstream(3) == 13


def test_batches_that_skip_something_are_refused() -> None:
    translation = Translation()
    plan(translation, 0)
    with pytest.raises(NotTheNextBatch):
        plan(translation, 4)


def test_records_that_expired_at_the_source_are_passed_when_the_flow_goes_on_after_them() -> None:
    translation = Translation()
    translation.confirm(plan(translation, 0), 0)
    (planned,) = translation.plan(
        [header(9, 2)], expected=9, skipped=(), producer_of=lambda _: OURS, log_start_offset=9
    )
    assert planned is not None
    assert planned.stamp is not None
    assert planned.stamp.sequence == 2
    with pytest.raises(NotTheNextBatch):
        Translation().plan([header(9, 2)], expected=9, skipped=(), producer_of=lambda _: OURS, log_start_offset=8)


def test_a_target_that_lost_its_end_gets_it_again() -> None:
    translation = Translation()
    for offset in (0, 2, 4):
        translation.confirm(plan(translation, offset), 10 + offset)
    assert translation.lose_target(13) == 3
    assert translation.position.source_next == 3
    assert translation.position.sequences == {OURS: (1, 0)}


def at_target(offset: int, sequence: int, *, epoch: int = 0, count: int = 2) -> BatchHeader:
    stamped = encode_batch(
        [Record(None, b"v")] * count, producer_id=OURS, producer_epoch=epoch, base_sequence=sequence, base_offset=offset
    )
    return read_header(stamped)


def test_a_log_that_begins_anew_with_what_came_next_is_no_copy_from_there_on() -> None:
    """This also holds for a process that died after that and knows only the notes from before."""
    noted = Position(source_next=10, target_next=10, sequences={OURS: (3, 10)})
    kept = [at_target(0, 0, epoch=2), at_target(2, 0, epoch=3), at_target(4, 2, epoch=3)]
    assert end_of_copy(noted, kept) is None
    assert end_of_copy(noted, [*kept, at_target(6, 10, epoch=3), at_target(8, 12, epoch=3)]) == 6
    assert end_of_copy(noted, [at_target(0, 20, epoch=3)]) == 0
    assert end_of_copy(noted, [at_target(0, 0, epoch=4)]) == 0
    assert end_of_copy(noted, [*kept, at_target(10, 10, epoch=3)]) is None


def test_a_batch_that_the_target_has_twice_counts_where_it_came_first_and_its_repetition_is_counted() -> None:
    broker = Broker()
    batches = [encode_batch([Record(None, b"v")] * 2, base_offset=offset, leader_epoch=1) for offset in (0, 2)]
    stamps = [Stamp(OURS, 0, sequence) for sequence in (0, 2)]
    written = [
        renumber(batch, 0, read_header(batch), stamp).batch for batch, stamp in zip(batches, stamps, strict=True)
    ]
    for batch in (*written, written[0]):
        broker.produce(batch)
        broker.producers.clear()
    translation = Translation()
    match = TailMatch(translation, producer_ids={OURS})
    match.see_target(b"".join(broker.batches))
    match.see_source(b"".join(batches), skipped=(), producer_of=lambda _: OURS)
    match.finish()
    assert [translation.downstream(offset) for offset in (0, 2)] == [0, 2]
    assert (translation.position.source_next, translation.position.target_next) == (4, 6)
    assert translation.surplus.between == 2


@pytest.mark.parametrize("is_compacted", [True, False])
def test_a_batch_that_the_target_lacks_is_skipped_where_its_offsets_are_absent_and_else_written(
    is_compacted: bool,
) -> None:
    broker = Broker()
    batches = [encode_batch([Record(None, b"v")] * 2, base_offset=offset, leader_epoch=1) for offset in (0, 2, 4)]
    for index, batch in enumerate(batches):
        broker.producers.clear()
        if is_compacted or index != 1:
            broker.produce(renumber(batch, 0, read_header(batch), Stamp(OURS, 0, 2 * index)).batch)
    if is_compacted:
        del broker.batches[1]
    translation = Translation()
    match = TailMatch(translation, producer_ids={OURS})
    match.see_target(b"".join(broker.batches))
    match.see_source(b"".join(batches), skipped=(), producer_of=lambda _: OURS)
    match.finish()
    assert match.never_written == (None if is_compacted else 2)
    assert translation.position.source_next == (6 if is_compacted else 2)
    assert translation.position.target_next == broker.end
    assert translation.surplus.between == (0 if is_compacted else 2)


def test_records_between_our_batches_are_counted_and_those_before_the_target_s_log_start_are_not() -> None:
    translation = Translation()
    translation.target_start = 7
    translation.confirm(plan(translation, 0), 7)
    assert translation.surplus.between == 0
    translation.confirm(plan(translation, 2), 12)
    assert translation.surplus.between == 3


def test_records_of_a_transaction_that_was_broken_off_are_counted_once() -> None:
    translation = Translation()
    plan(translation, 0)
    plan(translation, 2)
    translation.give_up()
    translation.give_up()
    assert translation.surplus.broken_off == 4
