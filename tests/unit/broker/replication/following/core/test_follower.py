"""The offset at which a follower truncates its log, and its continuation after an error."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from broker.log.core.leader_epochs import UNDEFINED_END, EpochEnd
from broker.replication.following.core.follower import (
    OutOfRange,
    Position,
    Reaction,
    fetcher_number,
    reaction_to,
    resume_out_of_range,
    truncation_offset,
)


def cut(leader: tuple[int, int], own: tuple[int, int], *, end: int = 100, high_watermark: int = 40) -> int:
    return truncation_offset(
        leader_end=EpochEnd(*leader), own_end=EpochEnd(*own), log_end_offset=end, high_watermark=high_watermark
    )


def test_a_tail_that_the_leader_does_not_have_is_cut_where_its_epoch_ends_there() -> None:
    assert cut((5, 80), (5, 100)) == 80


def test_an_epoch_that_ended_earlier_here_is_cut_here() -> None:
    assert cut((5, 80), (5, 70)) == 70


def test_an_epoch_that_is_unknown_here_is_a_first_step_to_an_older_one() -> None:
    assert cut((5, 80), (3, 60)) == 60


def test_a_leader_that_begins_above_all_own_epochs_is_met_at_its_end() -> None:
    assert cut((5, 80), UNDEFINED_END) == 80


def test_a_leader_without_epochs_leaves_what_is_replicated() -> None:
    assert cut((-1, -1), (5, 100)) == 40


def test_the_log_is_never_made_longer() -> None:
    assert cut((5, 200), (5, 100)) == 100


def test_a_follower_ahead_of_its_leader_cuts_and_one_behind_it_starts_anew() -> None:
    assert resume_out_of_range(leader_start=0, leader_end=50, log_end_offset=70) == OutOfRange(50, must_restart=False)
    assert resume_out_of_range(leader_start=90, leader_end=99, log_end_offset=70) == OutOfRange(90, must_restart=True)


def test_a_follower_back_in_range_goes_on_where_it_is() -> None:
    assert resume_out_of_range(leader_start=10, leader_end=99, log_end_offset=70) == OutOfRange(70, must_restart=False)


@pytest.mark.parametrize(
    ("code", "reaction"),
    [
        (ErrorCode.offset_out_of_range, Reaction.FIND_RANGE),
        (ErrorCode.fenced_leader_epoch, Reaction.AWAIT_IMAGE),
        (ErrorCode.unknown_leader_epoch, Reaction.TRY_LATER),
        (ErrorCode.not_leader_or_follower, Reaction.TRY_LATER),
        (ErrorCode.kafka_storage_error, Reaction.TRY_LATER),
    ],
)
def test_errors_ask_for_what_can_help(code: ErrorCode, reaction: Reaction) -> None:
    assert reaction_to(code) is reaction


def test_a_topics_partitions_are_spread_over_the_fetchers_of_a_source() -> None:
    assert {fetcher_number("t", index, count=4) for index in range(4)} == set(range(4))
    assert {fetcher_number("t", index, count=1) for index in range(9)} == {0}


def test_an_answer_counts_as_long_as_the_log_stands_where_it_was_asked_for() -> None:
    asked = Position(5, 1, 1, 0)
    assert asked.place == asked._replace(high_watermark=4).place
    assert asked.place != asked._replace(fetch_offset=6).place
