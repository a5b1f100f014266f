"""The table of leader epochs: the first offset and the end of each."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from broker.log.core.leader_epochs import UNDEFINED_END, EpochEnd, EpochStart, LeaderEpochs

TABLE = [EpochStart(1, 0), EpochStart(3, 100), EpochStart(7, 250)]


def test_an_epoch_ends_where_the_next_begins_and_the_newest_at_the_logs_end():
    epochs = LeaderEpochs(TABLE)
    assert epochs.end_of(1, 300) == EpochEnd(1, 100)
    assert epochs.end_of(3, 300) == EpochEnd(3, 250)
    assert epochs.end_of(7, 300) == EpochEnd(7, 300)


def test_an_epoch_that_wrote_nothing_is_answered_with_the_one_before():
    epochs = LeaderEpochs(TABLE)
    assert epochs.end_of(5, 300) == EpochEnd(3, 250)
    assert epochs.end_of(0, 300) == EpochEnd(0, 0)
    assert epochs.end_of(8, 300) == UNDEFINED_END
    assert LeaderEpochs().end_of(0, 300) == UNDEFINED_END


def test_an_epoch_assigned_at_the_same_offset_replaces_the_one_that_wrote_nothing():
    epochs = LeaderEpochs(TABLE)
    epochs.assign(9, 250)
    assert epochs.entries == [*TABLE[:2], EpochStart(9, 250)]


def test_assigning_the_newest_epoch_again_changes_nothing():
    epochs = LeaderEpochs(TABLE)
    epochs.assign(7, 400)
    assert epochs.entries == TABLE
    assert epochs.version == 0


def test_truncation_from_the_end_forgets_epochs_that_begin_there():
    epochs = LeaderEpochs(TABLE)
    epochs.truncate_from_end(250)
    assert epochs.entries == TABLE[:2]
    assert epochs.latest == 3


def test_truncation_from_the_start_keeps_the_epoch_in_force():
    epochs = LeaderEpochs(TABLE)
    epochs.truncate_from_start(120)
    assert epochs.entries == [EpochStart(3, 120), EpochStart(7, 250)]
    epochs.truncate_from_start(250)
    assert epochs.entries == [EpochStart(7, 250)]


def test_the_epoch_at_an_offset():
    epochs = LeaderEpochs(TABLE)
    assert [epochs.epoch_at(offset) for offset in (0, 99, 100, 1000)] == [1, 1, 3, 7]
    assert LeaderEpochs().epoch_at(0) == -1
    assert epochs.start_at_or_above(4) == 250
    assert epochs.start_at_or_above(8) is None


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30))), st.integers(0, 30))
def test_entries_always_grow_in_both_columns(assignments, cut):
    epochs = LeaderEpochs()
    for epoch, start_offset in assignments:
        epochs.assign(epoch, start_offset)
        entries = epochs.entries
        assert all(a.epoch < b.epoch and a.start_offset < b.start_offset for a, b in pairwise(entries))
    epochs.truncate_from_start(cut)
    assert all(entry.start_offset >= min(cut, epochs.entries[0].start_offset) for entry in epochs.entries)
    epochs.truncate_from_end(cut)
    assert all(entry.start_offset < cut for entry in epochs.entries)
