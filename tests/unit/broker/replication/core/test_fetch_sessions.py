"""Incremental fetch sessions (KIP-227)."""

from __future__ import annotations

from itertools import count

import pytest
from kio.schema.errors import ErrorCode

from broker.replication.core.fetch_sessions import EPOCH_MAX, FetchPartitionState, FetchPlan, FetchSessions


@pytest.fixture
def sessions() -> FetchSessions:
    ids = count(1)
    return FetchSessions(slots=2, eviction_ms=1000, new_id=lambda: next(ids))


def want(partition: int, offset: int = 0) -> FetchPartitionState:
    return FetchPartitionState(topic="t", partition=partition, fetch_offset=offset, partition_max_bytes=100)


def open_session(
    sessions: FetchSessions, session_id: int, epoch: int, *wanted: FetchPartitionState, forgotten: list[int] | None = None,
    now_ms: float = 0, has_topic_ids: bool = False,
) -> FetchPlan:  # fmt: skip
    return sessions.open(
        session_id=session_id,
        session_epoch=epoch,
        has_topic_ids=has_topic_ids,
        wanted=wanted,
        forgotten=[("t", index) for index in forgotten or []],
        now_ms=now_ms,
    )


def test_a_fetch_without_session_reads_what_it_names(sessions: FetchSessions) -> None:
    plan = open_session(sessions, 0, -1, want(0))
    assert (plan.session_id, plan.is_incremental, len(plan.to_read())) == (0, False, 1)


def test_an_incremental_fetch_names_changes_only(sessions: FetchSessions) -> None:
    first = open_session(sessions, 0, 0, want(0), want(1))
    assert first.session_id == 1
    plan = open_session(sessions, 1, 1, want(1, offset=7), want(2), forgotten=[0])
    assert plan.is_incremental
    assert [(state.partition, state.fetch_offset) for state in plan.to_read()] == [(1, 7), (2, 0)]


@pytest.mark.parametrize(
    ("session_id", "epoch", "error"),
    [(9, 1, ErrorCode.fetch_session_id_not_found), (1, 2, ErrorCode.invalid_fetch_session_epoch)],
)
def test_a_wrong_session_or_epoch_is_refused(
    sessions: FetchSessions, session_id: int, epoch: int, error: ErrorCode
) -> None:
    open_session(sessions, 0, 0, want(0))
    assert open_session(sessions, session_id, epoch).error is error


def test_a_session_does_not_change_from_names_to_ids(sessions: FetchSessions) -> None:
    open_session(sessions, 0, 0, want(0))
    assert open_session(sessions, 1, 1, has_topic_ids=True).error is ErrorCode.fetch_session_topic_id_error
    assert len(sessions) == 0


def test_a_full_cache_answers_without_session_until_the_oldest_is_stale(sessions: FetchSessions) -> None:
    open_session(sessions, 0, 0, want(0))
    open_session(sessions, 0, 0, want(0), now_ms=500)
    assert open_session(sessions, 0, 0, want(0), now_ms=900).session_id == 0
    assert open_session(sessions, 0, 0, want(0), now_ms=1100).session_id == 3
    assert open_session(sessions, 1, 1).error is ErrorCode.fetch_session_id_not_found


def test_closing_forgets_the_session(sessions: FetchSessions) -> None:
    open_session(sessions, 0, 0, want(0))
    open_session(sessions, 1, -1, want(0))
    assert len(sessions) == 0


def test_the_epoch_wraps_to_one(sessions: FetchSessions) -> None:
    plan = open_session(sessions, 0, 0, want(0))
    assert plan.session is not None
    plan.session.epoch = EPOCH_MAX
    assert open_session(sessions, 1, EPOCH_MAX).error is ErrorCode.none
    assert plan.session.epoch == 1


def test_partitions_that_were_served_come_last_next_time(sessions: FetchSessions) -> None:
    plan = open_session(sessions, 0, 0, want(0), want(1), want(2))
    assert plan.session is not None
    plan.session.serve_last([("t", 0)])
    assert [state.partition for state in open_session(sessions, 1, 1).to_read()] == [1, 2, 0]


def test_a_partition_is_reported_only_after_a_change() -> None:
    state = want(0)
    assert state.record_answer(high_watermark=5, log_start_offset=0, last_stable_offset=5, is_sent=False)
    assert not state.record_answer(high_watermark=5, log_start_offset=0, last_stable_offset=5, is_sent=False)
    assert state.record_answer(high_watermark=5, log_start_offset=0, last_stable_offset=5, is_sent=True)
    assert state.record_answer(high_watermark=6, log_start_offset=0, last_stable_offset=6, is_sent=False)


def follower_session(sessions: FetchSessions, *wanted: FetchPartitionState) -> FetchPlan:
    return sessions.open(
        session_id=0, session_epoch=0, has_topic_ids=False, wanted=wanted, forgotten=[], now_ms=0, follower=2
    )


def next_look(
    sessions: FetchSessions, epoch: int, *wanted: FetchPartitionState, forgotten: list[int] | None = None
) -> list[int]:
    plan = open_session(sessions, 1, epoch, *wanted, forgotten=forgotten)
    return [state.partition for state in plan.to_read()]


def test_a_followers_settled_partitions_are_looked_at_again_only_when_something_happened(
    sessions: FetchSessions,
) -> None:
    plan = follower_session(sessions, want(0), want(1), want(2))
    assert plan.session is not None
    assert [state.partition for state in plan.to_read()] == [0, 1, 2]
    for partition in range(3):
        plan.session.settle(("t", partition))
    assert next_look(sessions, 1) == []
    assert not plan.is_empty
    assert plan.session.mark_changed(("t", 1))
    assert not plan.session.mark_changed(("t", 1))
    assert not plan.session.mark_changed(("t", 9))
    assert next_look(sessions, 2) == [1]
    assert next_look(sessions, 3, want(2, offset=5), forgotten=[1]) == [2]


def test_a_mirrors_settled_partitions_are_examined_again_after_a_change_or_all_at_once(
    sessions: FetchSessions,
) -> None:
    plan = sessions.open(
        session_id=0,
        session_epoch=0,
        has_topic_ids=False,
        wanted=[want(0), want(1)],
        forgotten=[],
        now_ms=0,
        is_mirrors=True,
    )
    assert plan.session is not None
    assert not plan.session.is_followers
    for partition in range(2):
        plan.session.settle(("t", partition))
    assert next_look(sessions, 1) == []
    assert plan.session.mark_changed(("t", 1))
    assert next_look(sessions, 2) == [1]
    plan.session.settle(("t", 1))
    plan.session.unsettle_all()
    assert next_look(sessions, 3) == [0, 1]


def test_a_followers_partitions_that_were_served_come_last(sessions: FetchSessions) -> None:
    plan = follower_session(sessions, want(0), want(1))
    assert plan.session is not None
    plan.session.serve_last([("t", 0)])
    assert next_look(sessions, 1) == [1, 0]


def test_a_follower_with_readers_gets_high_watermarks_below_its_end() -> None:
    unwatched, watched = want(0, offset=5), want(0, offset=5)
    watched.known_high_watermark = 3
    assert not unwatched.lacks_high_watermark(4)
    assert watched.lacks_high_watermark(4)
    watched.known_high_watermark = 5
    assert not watched.lacks_high_watermark(9)


def test_the_end_of_a_session_is_reported() -> None:
    ended: list[int] = []
    ids = count(1)
    sessions = FetchSessions(
        slots=2,
        eviction_ms=1000,
        new_id=lambda: next(ids),
        on_closed=lambda session: ended.append(session.session_id),
    )
    follower_session(sessions, want(0))
    open_session(sessions, 1, -1)
    assert ended == [1]
    sessions.close(1)
    assert ended == [1]
