"""Sequences, epochs, duplicates, transactions and the gap that a failover allows."""

import pytest
from kio.schema.errors import ErrorCode

from broker.log.core.batch_checks import BatchRejected
from broker.log.core.producer_state import REFUSALS_REMEMBERED, ProducerStates
from broker.log.core.producer_values import (
    SEQUENCE_MAX,
    CompletedTransaction,
    DuplicateSequence,
    InvalidProducerEpoch,
    Marker,
    OutOfOrderSequence,
    PrecedingBatchPending,
)
from wire.batches.record_batch import BatchHeader

TRANSACTIONAL = 0x10
CONTROL = 0x20


def header(
    sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = 7, attributes: int = 0, time_ms: int = 5
):
    return BatchHeader(0, 100, 0, 2, 0, attributes, count - 1, time_ms, time_ms, producer_id, epoch, sequence, count)


def write(states: ProducerStates, offset: int, sequence: int, count: int = 1, **fields) -> None:
    change = states.prepare_batch(header(sequence, count, **fields), offset, is_checked=True)
    assert not isinstance(change, DuplicateSequence)
    states.apply(change)


def end(states: ProducerStates, offset: int, *, is_commit: bool, producer_id: int = 7) -> CompletedTransaction | None:
    marker = header(-1, producer_id=producer_id, attributes=TRANSACTIONAL | CONTROL)
    change = states.prepare_marker(marker, offset, Marker(is_commit, 3), is_checked=True)
    states.apply(change)
    return change.completed


def test_a_repeated_batch_is_answered_with_its_original_offsets():
    states = ProducerStates()
    for number in range(5):
        write(states, 100 + 2 * number, 2 * number, 2)
    for number in range(5):
        answer = states.prepare_batch(header(2 * number, 2), 999, is_checked=True)
        assert answer == DuplicateSequence(100 + 2 * number, 101 + 2 * number, 5)


def test_a_repetition_older_than_five_batches_is_out_of_order():
    states = ProducerStates()
    for number in range(6):
        write(states, number, number)
    with pytest.raises(OutOfOrderSequence):
        states.prepare_batch(header(0), 9, is_checked=True)


def test_a_gap_is_refused_and_changes_nothing():
    states = ProducerStates()
    write(states, 0, 0)
    with pytest.raises(OutOfOrderSequence):
        states.prepare_batch(header(2), 1, is_checked=True)
    write(states, 1, 1)


def test_sequences_wrap_after_the_largest():
    states = ProducerStates()
    write(states, 0, SEQUENCE_MAX - 1, 4)
    write(states, 4, 2)
    repeated = states.prepare_batch(header(SEQUENCE_MAX - 1, 4), 9, is_checked=True)
    assert repeated == DuplicateSequence(0, 3, 5)


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_at_zero():
    states = ProducerStates()
    write(states, 0, 0, epoch=1)
    with pytest.raises(InvalidProducerEpoch):
        states.prepare_batch(header(1, epoch=0), 1, is_checked=True)
    with pytest.raises(OutOfOrderSequence):
        states.prepare_batch(header(1, epoch=2), 1, is_checked=True)
    write(states, 1, 0, epoch=2)


def test_an_unknown_producer_may_begin_anywhere():
    write(ProducerStates(), 0, 41)


def test_a_producer_carried_over_may_open_one_gap_above_and_none_below():
    states = ProducerStates()
    write(states, 0, 10)
    states.carry_over(before_offset=1)
    with pytest.raises(OutOfOrderSequence):
        states.prepare_batch(header(5), 1, is_checked=True)
    write(states, 1, 20)
    with pytest.raises(OutOfOrderSequence):
        states.prepare_batch(header(30), 2, is_checked=True)
    write(states, 2, 21)


def test_a_carried_over_gap_may_span_the_wrap_and_begin_a_bumped_epoch():
    states = ProducerStates()
    write(states, 0, SEQUENCE_MAX)
    states.carry_over(before_offset=1)
    write(states, 1, 3)
    states.carry_over(before_offset=2)
    write(states, 2, 9, epoch=1)


def test_two_batches_of_one_append_are_checked_one_after_the_other():
    states = ProducerStates()
    first = states.prepare_batch(header(0, 2), 0, is_checked=True)
    second = states.prepare_batch(header(2), 2, is_checked=True, prepared=first)
    states.apply(second)
    write(states, 3, 3)
    assert isinstance(states.prepare_batch(header(0, 2), 9, is_checked=True), DuplicateSequence)


def test_the_first_unstable_offset_waits_for_the_marker_to_be_replicated():
    states = ProducerStates()
    write(states, 10, 0, attributes=TRANSACTIONAL)
    write(states, 11, 0, producer_id=8, attributes=TRANSACTIONAL)
    assert states.first_unstable_offset == 10
    completed = end(states, 12, is_commit=False)
    assert completed == CompletedTransaction(7, 10, 12, is_aborted=True)
    assert states.last_stable_offset_after(completed) == 11
    assert states.first_unstable_offset == 10
    states.advance_high_watermark(13)
    assert states.first_unstable_offset == 11
    end(states, 13, is_commit=True, producer_id=8)
    states.advance_high_watermark(14)
    assert states.first_unstable_offset is None


def test_a_plain_batch_inside_of_a_transaction_is_refused() -> None:
    states = ProducerStates()
    write(states, 0, 0, attributes=TRANSACTIONAL)
    with pytest.raises(BatchRejected) as refusal:
        states.prepare_batch(header(1), 1, is_checked=True)
    assert refusal.value.code is ErrorCode.invalid_txn_state
    end(states, 1, is_commit=True)
    write(states, 2, 1)


def test_a_marker_without_a_transaction_completes_none():
    assert end(ProducerStates(), 0, is_commit=True) is None


def test_a_log_has_markers_once_a_producer_has_ended_a_transaction() -> None:
    states = ProducerStates()
    write(states, 10, 0, attributes=TRANSACTIONAL)
    assert not states.has_markers
    end(states, 11, is_commit=True)
    write(states, 12, 1, time_ms=1)
    assert states.has_markers
    restored = ProducerStates()
    restored.restore(states.snapshot())
    assert restored.has_markers


def test_expiry_spares_open_transactions():
    states = ProducerStates()
    write(states, 0, 0, time_ms=0)
    write(states, 1, 0, producer_id=8, attributes=TRANSACTIONAL, time_ms=0)
    assert states.expire(now_ms=100, expiration_ms=100) == 1
    assert len(states) == 1
    assert states.first_unstable_offset == 1


def test_a_snapshot_restores_sequences_epochs_and_open_transactions():
    states = ProducerStates()
    write(states, 20, 0, 3, epoch=4)
    write(states, 23, 5, producer_id=8, attributes=TRANSACTIONAL)
    restored = ProducerStates()
    restored.restore(states.snapshot())
    assert restored.snapshot() == states.snapshot()
    assert restored.first_unstable_offset == 23
    assert restored.prepare_batch(header(0, 3, epoch=4), 99, is_checked=True) == DuplicateSequence(20, 22, 5)
    write(restored, 24, 3, epoch=4)


def test_a_batch_sent_behind_a_refused_one_is_no_gap():
    states = ProducerStates()
    write(states, 0, 10)
    states.carry_over(before_offset=1)
    states.note_refused(header(11))
    states.note_refused(header(13))
    with pytest.raises(PrecedingBatchPending):
        states.prepare_batch(header(13), 1, is_checked=True)
    write(states, 1, 11)
    write(states, 2, 12)


def test_a_refused_batch_that_is_in_the_log_by_now_holds_nothing_up():
    states = ProducerStates()
    write(states, 0, 10)
    write(states, 1, 11)
    states.note_refused(header(10))  # a repetition that was late
    write(states, 2, 12)
    states.note_refused(header(12))
    states.carry_over(before_offset=3)
    write(states, 3, 20)


def test_a_gap_below_a_refused_batch_is_one():
    states = ProducerStates()
    write(states, 0, 10)
    states.carry_over(before_offset=1)
    states.note_refused(header(20))
    write(states, 1, 20)


def test_a_refusal_of_another_epoch_holds_nothing_up():
    states = ProducerStates()
    states.note_refused(header(11))
    write(states, 0, 41, epoch=1)


def test_refusals_that_are_remembered_are_bounded():
    states = ProducerStates()
    for producer_id in range(REFUSALS_REMEMBERED + 1):
        states.note_refused(header(5)._replace(producer_id=producer_id))
    states.prepare_batch(header(9)._replace(producer_id=0), 0, is_checked=True)
    with pytest.raises(PrecedingBatchPending):
        states.prepare_batch(header(9)._replace(producer_id=REFUSALS_REMEMBERED), 0, is_checked=True)
