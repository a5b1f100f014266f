"""Batches of a translate link: their stamps, their confirmation, and how a mirror finds its copies
in the target's log.
"""

from __future__ import annotations

import pytest

from mirror.translate.core.offset_map import Run
from mirror.translate.core.renumbering import Piece, Stamp, renumber
from mirror.translate.core.resume import HistoryMismatch, TailMatch, end_of_copy
from mirror.translate.core.translation import BrokenOff, NotTheNextBatch, Planned, Position, Translation
from tests.support.histories.forgetful_broker import ForgetfulBroker
from wire.batches.record_batch import BatchHeader, read_header
from wire.batches.records import Record, decode_records, encode_batch

OURS = 4000


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
    broker = ForgetfulBroker()
    batches = [encode_batch([Record(None, b"v")] * 2, base_offset=offset, leader_epoch=1) for offset in (0, 2)]
    stamps = [Stamp(OURS, 0, sequence) for sequence in (0, 2)]
    written = [
        b"".join(renumber(batch, 0, read_header(batch), stamp).batch)
        for batch, stamp in zip(batches, stamps, strict=True)
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
    broker = ForgetfulBroker()
    batches = [encode_batch([Record(None, b"v")] * 2, base_offset=offset, leader_epoch=1) for offset in (0, 2, 4)]
    for index, batch in enumerate(batches):
        broker.producers.clear()
        if is_compacted or index != 1:
            broker.produce(b"".join(renumber(batch, 0, read_header(batch), Stamp(OURS, 0, 2 * index)).batch))
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


def a_source_and_merged_copies(*groups: int) -> tuple[list[bytes], list[bytes]]:
    """Batches of two records with different values, and their copies: each has the records of that
    many of them.
    """
    batches = [
        encode_batch([Record(None, b"%d" % number)] * 2, base_offset=2 * number, leader_epoch=1)
        for number in range(sum(groups))
    ]
    copies, first = [], 0
    for count in groups:
        records = [record for batch in batches[first : first + count] for record in decode_records(batch)]
        copies.append(encode_batch(records, producer_id=OURS, producer_epoch=0, base_sequence=2 * first))
        first += count
    return batches, copies


def matched(source: list[bytes], broker: ForgetfulBroker, *, mirrored_batches: int = 0) -> Translation:
    """The translation of a mirror that starts again, with a note of that many mirrored batches."""
    noted = 2 * mirrored_batches
    translation = Translation(Position(noted, 1, noted, {OURS: (0, noted)} if noted else {}))
    match = TailMatch(translation, producer_ids={OURS})
    match.see_target(b"".join(broker.batches))
    match.see_source(b"".join(source), skipped=(), producer_of=lambda _: OURS)
    match.finish()
    return translation


def test_a_merged_batch_in_the_tail_stands_for_the_batches_that_it_was_made_of() -> None:
    source, copies = a_source_and_merged_copies(1, 3, 2)
    broker = ForgetfulBroker()
    for copy in copies[:2]:
        broker.produce(copy)
    translation = matched(source, broker)
    assert translation.position == Position(8, 1, 8, {OURS: (0, 8)})
    assert list(translation.map) == [Run(0, 0, 8)]
    broker.produce(copies[2])
    assert matched(source, broker, mirrored_batches=4).position == Position(12, 1, 12, {OURS: (0, 12)})


def test_records_that_come_twice_in_differently_merged_batches_count_where_they_came_first() -> None:
    source, copies = a_source_and_merged_copies(1, 1, 1, 1)
    _, (both, _) = a_source_and_merged_copies(2, 2)
    _, (whole,) = a_source_and_merged_copies(4)
    broker = ForgetfulBroker()
    for copy in (copies[0], both, whole):
        broker.produce(copy)
        broker.producers.clear()
    translation = matched(source, broker)
    assert list(translation.map) == [Run(0, 0, 2), Run(2, 4, 2), Run(4, 10, 4)]
    assert translation.position == Position(8, 1, 14, {OURS: (0, 8)})
    assert translation.surplus.between == 6


def test_of_a_merged_batch_that_begins_with_what_was_noted_only_the_rest_is_new() -> None:
    source, (whole,) = a_source_and_merged_copies(4)
    _, copies = a_source_and_merged_copies(1, 1, 1, 1)
    broker = ForgetfulBroker()
    for copy in (copies[0], copies[1], whole):
        broker.produce(copy)
        broker.producers.clear()
    translation = matched(source, broker, mirrored_batches=2)
    assert list(translation.map) == [Run(4, 8, 4)]
    assert translation.position == Position(8, 1, 12, {OURS: (0, 8)})


def test_a_merged_batch_that_the_source_does_not_go_on_with_is_a_contradiction() -> None:
    source, (whole,) = a_source_and_merged_copies(3)
    broker = ForgetfulBroker()
    broker.produce(whole)
    with pytest.raises(HistoryMismatch, match="the source does not have"):
        matched(source[:2], broker)
    other = [*source[:2], encode_batch([Record(None, b"v")] * 3, base_offset=4, leader_epoch=1)]
    with pytest.raises(HistoryMismatch, match="2 records at offset 4 where the source has 3"):
        matched(other, broker)
