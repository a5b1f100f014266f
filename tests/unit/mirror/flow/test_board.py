"""The board's report of a partition's lag, for any steps of the machine's clock."""

from __future__ import annotations

import random
from typing import Any
from unittest.mock import Mock
from uuid import UUID

import pytest

from mirror.flow.board import FlowBoard
from mirror.flow.core.flow_events import (
    Acknowledged,
    BatchesFetched,
    Command,
    LinkTurned,
    NothingFetched,
    Settled,
    SourceChecked,
    Start,
    TargetFound,
    TombstonesKept,
)
from mirror.flow.core.flow_state import FlowState
from mirror.flow.rows import RETIRED_KEPT_MS, QuietRounds
from mirror.link.core.link_roles import GapPolicy, LinkRole
from mirror.link.core.partitions import BatchRun
from mirror.link.ports import Leader
from runtime.logs import STATE_CHANGE
from tests.support.clock import ManualClock
from wire.protocol.ids import TopicPartition

KEY = TopicPartition("orders", 0)
HOUR_MS = 3_600_000
END = {"high_watermark": 10, "log_start_offset": 0}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def board(clock: ManualClock) -> FlowBoard:
    """One partition that has everything up to offset 10."""
    effects: Any = Mock()
    board = FlowBoard(
        clock=clock,
        effects=effects,
        gap_policy=GapPolicy.HALT,
        stale_after_ms=1_000,
        chance=random.Random(1),
        way_out_of=lambda _: "",
    )
    board.add(KEY, UUID(int=1))
    board.submit(KEY, Start())
    tell(board, Settled(generation=1))
    tell(board, TargetFound(generation=1, log_start_offset=0, log_end_offset=10, last_epoch=0))
    tell(board, SourceChecked(generation=1, epoch=0, epoch_end_offset=10, **END))
    return board


def tell(board: FlowBoard, command: Command) -> None:
    assert board.row(KEY).facts.generation == 1
    board.submit(KEY, command)


def fetch(board: FlowBoard, first: int, *, high_watermark: int) -> None:
    run = BatchRun(
        first_offset=first,
        next_offset=first + 1,
        size_bytes=1,
        record_count=1,
        first_epoch=0,
        last_epoch=0,
        max_timestamp_ms=-1,
    )
    fetch_offset = board.row(KEY).facts.fetch_offset
    fetched = BatchesFetched(
        generation=1, fetch_offset=fetch_offset, run=run, high_watermark=high_watermark, log_start_offset=0
    )
    tell(board, fetched)


def test_a_clock_that_is_put_back_does_not_hide_the_lag(board: FlowBoard, clock: ManualClock) -> None:
    clock.advance(500)
    clock.set_now_ms(clock.now_ms() - HOUR_MS)
    fetch(board, 10, high_watermark=20)
    clock.advance(2_000)
    assert (board.lag(KEY).records, board.lag(KEY).ms) == (10, 2_500)
    tell(board, Acknowledged(generation=1, log_end_offset=20))
    tell(board, NothingFetched(generation=1, high_watermark=20, log_start_offset=0))
    assert board.lag(KEY).ms == 0


def test_a_clock_that_was_set_back_does_not_count_as_an_answer(board: FlowBoard, clock: ManualClock) -> None:
    clock.set_now_ms(clock.now_ms() - HOUR_MS)
    assert board.lag(KEY).records == 0
    assert not board.is_stalled(KEY)
    clock.advance(1_500)
    assert (board.lag(KEY).records, board.lag(KEY).ms) == (-1, 1_500)
    assert board.is_stalled(KEY)


def test_a_copy_is_complete_as_of_the_time_when_the_source_was_asked(board: FlowBoard, clock: ManualClock) -> None:
    """An answer may take long, and has no information about later changes."""
    asked_at_ms = clock.now_ms()
    clock.advance(40_000)
    tell(board, NothingFetched(generation=1, asked_at_ms=asked_at_ms, **END))
    assert (board.lag(KEY).records, board.lag(KEY).ms) == (0, 0)
    assert board.complete_ms_ago(KEY) == 40_000
    tell(board, NothingFetched(generation=1, asked_at_ms=clock.now_ms(), **END))
    clock.advance(300)
    assert board.complete_ms_ago(KEY) == 300
    tell(board, LinkTurned(role=LinkRole.TURNED, reason="promoted"))
    assert board.complete_ms_ago(KEY) is None


@pytest.mark.parametrize("by_ms", [-HOUR_MS, HOUR_MS])
def test_an_answer_that_was_on_its_way_while_the_clock_was_changed_does_not_claim_more_than_it_says(
    board: FlowBoard, clock: ManualClock, by_ms: int
) -> None:
    asked = board.moment()
    clock.advance(300)
    clock.set_now_ms(clock.now_ms() + by_ms)
    tell(board, NothingFetched(generation=1, asked_at_ms=board.as_of(asked), **END))
    clock.advance(2_000)
    # A clock that goes ahead may be that of a machine that stood still: then all that time has
    # passed since the question.
    assert board.complete_ms_ago(KEY) == 2_300 + max(0, by_ms)


def test_a_clock_that_goes_ahead_may_be_that_of_a_machine_that_stood_still(
    board: FlowBoard, clock: ManualClock
) -> None:
    tell(board, TombstonesKept(kept_ms=HOUR_MS))
    clock.set_now_ms(clock.now_ms() + 2 * HOUR_MS)
    assert (board.lag(KEY).records, board.lag(KEY).ms) == (-1, 2 * HOUR_MS)
    fetch(board, 10, high_watermark=11)
    assert board.row(KEY).facts.may_lack_tombstones
    clock.set_now_ms(clock.now_ms() - HOUR_MS)
    tell(board, Acknowledged(generation=1, log_end_offset=11))
    assert board.lag(KEY).ms == 0


def answer_quietly(board: FlowBoard, clock: ManualClock, rounds: QuietRounds, *, after_ms: int = 0) -> None:
    rounds.asked = board.moment()
    clock.advance(after_ms)
    rounds.answered = board.moment()


def test_quiet_rounds_show_that_the_source_answers_without_a_command(board: FlowBoard, clock: ManualClock) -> None:
    tell(board, Acknowledged(generation=1, log_end_offset=10))
    rounds = QuietRounds(board.moment())
    assert board.begin_quiet(KEY, rounds)
    facts = board.row(KEY).facts
    clock.advance(5_000)
    answer_quietly(board, clock, rounds, after_ms=200)
    assert board.row(KEY).facts is facts
    assert (board.lag(KEY).records, board.lag(KEY).ms, board.silence_ms(KEY)) == (0, 0, 0)
    assert board.complete_ms_ago(KEY) == 200
    assert board.source_answered_at_ms(KEY) == clock.now_ms()


def test_a_source_that_stops_to_answer_quiet_rounds_is_silent(board: FlowBoard, clock: ManualClock) -> None:
    tell(board, Acknowledged(generation=1, log_end_offset=10))
    rounds = QuietRounds(board.moment())
    assert board.begin_quiet(KEY, rounds)
    clock.advance(500)
    answer_quietly(board, clock, rounds)
    clock.advance(1_500)
    assert (board.silence_ms(KEY), board.lag(KEY).records, board.lag(KEY).ms) == (1_500, -1, 1_500)
    assert board.is_stalled(KEY)


def test_a_command_ends_the_quiet_with_what_the_rounds_have_shown(board: FlowBoard, clock: ManualClock) -> None:
    tell(board, Acknowledged(generation=1, log_end_offset=10))
    rounds = QuietRounds(board.moment())
    assert board.begin_quiet(KEY, rounds)
    clock.advance(5_000)
    answer_quietly(board, clock, rounds)
    shown_ms = clock.now_ms()
    fetch(board, 10, high_watermark=11)
    assert board.row(KEY).quiet is None
    clock.advance(2_000)
    answer_quietly(board, clock, rounds)
    assert (board.lag(KEY).records, board.lag(KEY).ms) == (1, 2_000)
    assert board.row(KEY).facts.progress.caught_up_at_ms == shown_ms


@pytest.mark.parametrize("by_ms", [-HOUR_MS, HOUR_MS])
def test_quiet_rounds_claim_no_more_when_the_clock_is_changed(board: FlowBoard, clock: ManualClock, by_ms: int) -> None:
    tell(board, Acknowledged(generation=1, log_end_offset=10))
    rounds = QuietRounds(board.moment())
    assert board.begin_quiet(KEY, rounds)
    answer_quietly(board, clock, rounds)
    clock.advance(300)
    clock.set_now_ms(clock.now_ms() + by_ms)
    answer_quietly(board, clock, rounds)
    complete_ms_ago = board.complete_ms_ago(KEY)
    assert complete_ms_ago is not None
    assert complete_ms_ago >= 0
    clock.advance(700)
    assert board.complete_ms_ago(KEY) == complete_ms_ago + 700


def quiet(board: FlowBoard, clock: ManualClock) -> QuietRounds:
    """The source has nothing new of the partition."""
    tell(board, NothingFetched(generation=1, asked_at_ms=clock.now_ms(), **END))
    rounds = QuietRounds(board.moment())
    assert board.begin_quiet(KEY, rounds)
    return rounds


def test_a_partition_that_has_everything_is_settled_until_its_next_command(
    board: FlowBoard, clock: ManualClock
) -> None:
    assert [key for key, _ in board.restless_rows()] == [KEY]
    rounds = quiet(board, clock)
    assert board.restless_rows() == []
    assert board.is_settled(KEY)
    assert board.quiet_of(rounds) == {KEY}
    tell(board, TombstonesKept(kept_ms=1))
    assert [key for key, _ in board.restless_rows()] == [KEY]
    assert board.quiet_of(rounds) == set()


def turn(board: FlowBoard, role: LinkRole) -> None:
    for key, row in board.rows_to_turn(role):
        if row.facts.role is not role:
            board.submit(key, LinkTurned(role=role, reason="turned"))


def test_a_partition_whose_site_became_active_is_looked_at_when_the_role_changes(board: FlowBoard) -> None:
    board.row(KEY).target = Leader(1, 0)
    turn(board, LinkRole.TURNED)
    assert (board.restless_rows(), board.rows_to_turn(LinkRole.TURNED)) == ([], [])
    assert not board.is_settled(KEY)
    assert [row.facts.state for row in board.examples()] == [FlowState.PROMOTED]
    assert [key for key, _ in board.rows_to_turn(LinkRole.GONE)] == [KEY]
    turn(board, LinkRole.MIRRORING)
    assert board.row(KEY).facts.role is LinkRole.MIRRORING
    assert [key for key, _ in board.restless_rows()] == [KEY]
    assert board.promoted_rows() == []


def test_a_promoted_partition_without_a_leader_or_of_another_daemon_stays_restless(board: FlowBoard) -> None:
    turn(board, LinkRole.TURNED)
    assert [key for key, _ in board.restless_rows()] == [KEY]
    board.row(KEY).target = Leader(1, 0)
    turn(board, LinkRole.MIRRORING)
    turn(board, LinkRole.TURNED)
    assert board.restless_rows() == []
    board.give_up(KEY)
    assert [key for key, _ in board.restless_rows()] == [KEY]


def test_a_quiet_partition_whose_target_lacks_records_is_restless(board: FlowBoard, clock: ManualClock) -> None:
    more = {"high_watermark": 12, "log_start_offset": 0}
    tell(board, NothingFetched(generation=1, asked_at_ms=clock.now_ms(), **more))
    assert board.begin_quiet(KEY, QuietRounds(board.moment()))
    assert [key for key, _ in board.restless_rows()] == [KEY]


def test_a_retired_partition_is_neither_restless_nor_settled(board: FlowBoard, clock: ManualClock) -> None:
    quiet(board, clock)
    board.retire(KEY, "gone")
    assert board.restless_rows() == []
    assert not board.is_settled(KEY)
    assert board.examples() == []
    assert board.alone() == []


def test_quiet_partitions_of_a_silent_source_are_found(board: FlowBoard, clock: ManualClock) -> None:
    rounds = quiet(board, clock)
    clock.advance(500)
    assert board.silent(for_ms=501) == []
    assert board.silent(for_ms=500) == [KEY]
    rounds.answered = board.moment()
    assert board.silent(for_ms=500) == []


def test_a_settled_partition_carries_on_under_a_fence_until_it_has_something_to_decide(
    board: FlowBoard, clock: ManualClock
) -> None:
    rounds = quiet(board, clock)
    turn(board, LinkRole.DRAINING)
    assert board.quiet_of(rounds) == {KEY}
    assert board.row(KEY).facts.state is FlowState.MIRRORING
    tell(board, TombstonesKept(kept_ms=1))
    turn(board, LinkRole.DRAINING)
    assert board.row(KEY).facts.state is FlowState.PROMOTING
    turn(board, LinkRole.MIRRORING)
    assert board.row(KEY).facts.state is FlowState.MIRRORING


def test_lines_that_are_written_together_are_those_of_single_changes(
    board: FlowBoard, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", STATE_CHANGE), board.lines_together():
        turn(board, LinkRole.DRAINING)
        assert caplog.messages == []
    (line,) = caplog.messages
    assert f"partition={KEY}" in line
    assert "state=PROMOTING" in line
    assert "event=turned" in line


def test_a_retired_partition_is_forgotten_once_no_worker_can_use_it(board: FlowBoard, clock: ManualClock) -> None:
    other = TopicPartition("orders", 1)
    board.add(other, UUID(int=1))
    quiet(board, clock)
    board.retire(KEY, "deleted at both sites")
    clock.advance(RETIRED_KEPT_MS - 1)
    board.forget_retired(lambda _: True)
    assert KEY in board
    clock.advance(1)
    board.forget_retired(lambda _: False)
    board.row(KEY).queueing = object()
    board.forget_retired(lambda _: True)
    assert KEY in board
    board.row(KEY).queueing = None
    board.forget_retired(lambda _: True)
    assert KEY not in board
    assert [key for key, _ in board.restless_rows()] == [other]
    assert board.alone() == [other]
    assert board.examples() == []


def test_a_partition_whose_topic_is_back_is_not_forgotten(board: FlowBoard, clock: ManualClock) -> None:
    board.retire(KEY, "deleted at both sites")
    clock.advance(RETIRED_KEPT_MS)
    board.row(KEY).is_retired = False
    board.forget_retired(lambda _: True)
    board.retire(KEY, "deleted again")
    board.forget_retired(lambda _: True)
    assert KEY in board
