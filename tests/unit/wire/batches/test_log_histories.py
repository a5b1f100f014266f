"""The offset at which two logs part: their leader epochs give the same answer as a comparison
record by record.
"""

from __future__ import annotations

from itertools import takewhile
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wire.batches.log_histories import EpochEnd, LogHistory, common_end, history_of, shared_end


class Written(NamedTuple):
    """A record: the epoch of its leader, and its writer."""

    epoch: int
    writer: int


def history(records: list[Written], *, start: int = 0) -> LogHistory:
    epochs: list[tuple[int, int]] = []
    for offset, record in enumerate(records):
        if not epochs or epochs[-1][0] != record.epoch:
            epochs.append((record.epoch, offset))
    kept = [(epoch, max(first, start)) for index, (epoch, first) in enumerate(epochs) if _end(epochs, index) > start]
    return history_of(start, len(records), kept)


def _end(epochs: list[tuple[int, int]], index: int) -> float:
    return epochs[index + 1][1] if index + 1 < len(epochs) else float("inf")


@st.composite
def two_sites(draw: st.DrawFn) -> tuple[list[Written], list[Written]]:
    """Two logs that lead in turn, each turn in a new epoch; between turns one may take the other
    one's records, from where they agree.
    """
    logs: tuple[list[Written], list[Written]] = ([], [])
    for epoch in range(draw(st.integers(1, 6))):
        leader = draw(st.integers(0, 1))
        logs[leader].extend(Written(epoch, leader) for _ in range(draw(st.integers(0, 4))))
        copy = logs[1 - leader]
        if copy == logs[leader][: len(copy)]:
            copy.extend(logs[leader][len(copy) :][: draw(st.integers(0, 4))])
    return logs


def agreed(one: list[Written], other: list[Written]) -> int:
    return len(list(takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False))))


@given(two_sites())
def test_epochs_tell_what_a_comparison_of_all_records_tells(logs: tuple[list[Written], list[Written]]) -> None:
    one, other = logs
    assert common_end(history(one), history(other)) == agreed(one, other)
    assert common_end(history(other), history(one)) == agreed(one, other)


@given(two_sites(), st.integers(0, 10), st.integers(0, 10))
def test_records_that_expired_at_either_end_make_no_divergence(
    logs: tuple[list[Written], list[Written]], first_start: int, second_start: int
) -> None:
    one, other = logs
    starts = min(first_start, len(one)), min(second_start, len(other))
    found = common_end(history(one, start=starts[0]), history(other, start=starts[1]))
    assert found <= min(len(one), len(other))
    if agreed(one, other) == min(len(one), len(other)):
        assert found == min(len(one), len(other))


@st.composite
def parted(draw: st.DrawFn) -> tuple[list[Written], list[Written]]:
    """Two logs with one beginning, and tails under epochs that the other log does not have."""
    counts = st.lists(st.tuples(st.integers(1, 3), st.integers(1, 4)), max_size=4)
    common: list[Written] = []
    epoch = 0
    for step, count in draw(counts.filter(bool)):
        epoch += step
        common += [Written(epoch, 0)] * count
    tails: list[list[Written]] = [[], []]
    for log, tail in enumerate(tails):
        last = epoch
        for step, count in draw(counts):
            last += 2 * step + (last + log) % 2
            tail += [Written(last, log)] * count
    return [*common, *tails[0]], [*common, *tails[1]]


@given(parted())
def test_logs_whose_tails_share_no_epoch_part_at_the_end_of_their_beginning(
    logs: tuple[list[Written], list[Written]],
) -> None:
    one, other = logs
    assert common_end(history(one), history(other)) == agreed(one, other)


def test_a_source_that_knows_no_epoch_of_the_copy_shares_nothing_with_it() -> None:
    assert common_end(history_of(4, 10, [(3, 4)]), history_of(0, 20, [(5, 0)])) == 4


def test_an_epoch_in_which_nothing_was_written_is_no_part_of_a_history() -> None:
    promoted_and_idle = history_of(0, 100, [(0, 0), (1 << 20, 100)])
    assert promoted_and_idle == history_of(0, 100, [(0, 0)])
    assert common_end(promoted_and_idle, history_of(0, 120, [(0, 0), (2 << 20, 100)])) == 100


def test_a_tail_under_another_epoch_is_found_whichever_log_is_longer() -> None:
    abandoned = history_of(0, 10, [(0, 0)])
    for end in (6, 10, 25):
        assert common_end(abandoned, history_of(0, end, [(0, 0), (1 << 20, 4)])) == 4


def test_logs_without_known_epochs_or_common_offsets_are_held_against_each_other_by_their_ends() -> None:
    assert common_end(history_of(0, 10, []), history_of(0, 7, [(3, 0)])) == 7
    assert common_end(history_of(0, 10, [(0, 0)]), history_of(50, 70, [(9, 50)])) == 10
    assert history_of(5, 5, [(0, 5)]).is_empty


@pytest.mark.parametrize(("other", "wanted"), [(EpochEnd(4, 30), 20), (EpochEnd(4, 15), 15), (EpochEnd(3, 30), None)])
def test_one_answer_tells_the_common_end_only_within_one_epoch(other: EpochEnd, wanted: int | None) -> None:
    assert shared_end(EpochEnd(4, 20), other) == wanted
