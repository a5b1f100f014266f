"""The small cores: surveys of bytes, assignment, plans, group offsets, lag, fetch sessions,
verdicts, windows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from clients.core.slots import stable_slot
from mirror.flow.core.answers import Appended, Refusal, SendAgain, judge_append
from mirror.flow.core.assignment import FetcherKey, assign_fetchers
from mirror.flow.core.flow_events import TargetRefusal
from mirror.flow.core.lag import Lag, Progress, measure, moved
from mirror.flow.core.window import ChainBroken, QueuedBatches, SendWindow
from mirror.groups.core.offset_choice import Stay, TargetRange, offset_to_commit
from mirror.link.core.committed_offsets import GroupOffset
from mirror.link.core.partitions import BatchRun, MalformedBatches, survey
from mirror.link.core.topic_plan import (
    Action,
    AlterConfigs,
    CreateTopic,
    Finding,
    GrowTopic,
    TopicView,
    plan,
    requests_of,
)
from tests.support.disks.log_batches import batch
from wire.client.requests.topic_requests import PARTITIONS_AT_ONCE, TOPICS_AT_ONCE
from wire.client.session_state import FetchSession
from wire.protocol.ids import TopicPartition

KEY = TopicPartition("orders", 0)
ID = UUID(int=1)


# Surveys.


def test_a_survey_says_what_the_whole_batches_cover() -> None:
    one = batch([b"a", b"b"], base_offset=10, leader_epoch=1, timestamp_ms=5)
    other = batch([b"c"], base_offset=15, leader_epoch=3, timestamp_ms=9)
    incomplete = batch([b"d"], base_offset=16, leader_epoch=3)[:-1]
    run = survey(memoryview(one + other + incomplete))
    assert run == BatchRun(
        first_offset=10,
        next_offset=16,
        size_bytes=len(one) + len(other),
        record_count=3,
        first_epoch=1,
        last_epoch=3,
        max_timestamp_ms=9,
    )


def test_a_survey_does_not_count_what_is_not_carried() -> None:
    """MirrorMaker's record count is of what the target gets: no aborted records, no markers,
    nothing that came from there.
    """
    skipped, carried = batch([b"a", b"b"], base_offset=10), batch([b"c"], base_offset=12)
    run = survey(skipped + carried, skipped=frozenset({10}))
    assert run is not None
    assert (run.record_count, run.first_offset, run.next_offset) == (1, 10, 13)
    assert (run.carried_bytes, run.skipped_bytes, run.skipped_records) == (len(carried), len(skipped), 2)
    assert run.size_bytes == len(carried) + len(skipped), "all of it takes room in the queue"


def test_a_survey_counts_what_the_copy_has_apart() -> None:
    old, new, newer = (batch([b"a"], base_offset=offset, timestamp_ms=offset) for offset in (10, 13, 14))
    run = survey(old + new + newer, copied_below=13)
    assert run is not None
    assert (run.first_offset, run.first_new_offset, run.next_offset) == (10, 13, 15)
    assert (run.record_count, run.carried_bytes, run.size_bytes) == (2, len(new + newer), len(old + new + newer))
    run = survey(old, copied_below=11)
    assert run is not None
    assert (run.first_new_offset, run.record_count, run.carried_bytes, run.max_timestamp_ms) == (11, 0, 0, -1)


def test_a_survey_of_an_incomplete_batch_is_none() -> None:
    one = batch([b"a"])
    for size in range(len(one)):
        assert survey(one[:size]) is None


@pytest.mark.parametrize(
    ("first", "second"),
    [({"base_offset": 5}, {"base_offset": 5}), ({"leader_epoch": 2}, {"base_offset": 1, "leader_epoch": 1})],
)
def test_offsets_and_epochs_that_go_back_are_malformed(first: Mapping[str, int], second: Mapping[str, int]) -> None:
    with pytest.raises(MalformedBatches, match="at "):
        survey(batch([b"a"], **first) + batch([b"b"], **second))


@given(st.binary(max_size=300))
def test_no_bytes_break_a_survey(rubbish: bytes) -> None:
    try:
        run = survey(batch([b"a"]) + rubbish)
    except MalformedBatches:
        return
    assert run is not None


# Assignment.


def test_each_partition_has_one_fetcher_at_its_leader_and_one_lasting_producer() -> None:
    leaders = {TopicPartition("t", index): (1 if index < 4 else 2 if index < 8 else -1) for index in range(10)}
    assigned = assign_fetchers(leaders, streams_per_broker=2)
    assert {key.node_id for key in assigned} == {1, 2}
    assert sorted(key for keys in assigned.values() for key in keys) == [key for key in leaders if leaders[key] >= 0]
    assert all(len(keys) == 2 for keys in assigned.values())
    assert FetcherKey(1, 0) in assigned
    assert set(Counter(stable_slot(key, 5) for key in leaders).values()) == {2}


# Plans.


def view(partitions: int = 2, configs: Mapping[str, str] | None = None, *, topic_id: UUID = ID) -> TopicView:
    return TopicView(topic_id=topic_id, partition_count=partitions, configs=configs)


def test_a_missing_topic_is_created_with_the_sources_id_and_configs() -> None:
    wanted = plan({"t": view(3, {"a": "1", "secret": "2", "x.y": "3"})}, {}, excluded_configs=["secret", "x[.].*"])
    assert wanted.actions == (CreateTopic(name="t", topic_id=ID, partition_count=3, configs={"a": "1"}),)
    assert not wanted.agreed


def test_growth_and_configs_follow_and_local_changes_are_undone() -> None:
    wanted = plan({"t": view(3, {"a": "1", "b": "2"})}, {"t": view(2, {"b": "9", "c": "3"})})
    assert wanted.actions == (
        GrowTopic(name="t", partition_count=3),
        AlterConfigs(name="t", set={"a": "1", "b": "2"}, remove=("c",)),
    )
    assert wanted.agreed == {"t"}


def test_configs_that_are_not_known_are_left_alone() -> None:
    assert plan({"t": view(configs={"a": "1"})}, {"t": view()}).actions == ()


ACTIONS = st.one_of(
    st.builds(
        CreateTopic, name=st.text(), topic_id=st.uuids(), partition_count=st.integers(1, 3_000), configs=st.just({})
    ),
    st.builds(GrowTopic, name=st.text(), partition_count=st.integers(1, 3_000)),
    st.builds(AlterConfigs, name=st.text(), set=st.just({}), remove=st.just(())),
)


@given(st.lists(ACTIONS, max_size=300))
def test_requests_hold_all_actions_by_kind_in_their_order_within_the_bounds(actions: list[Action]) -> None:
    requests = list(requests_of(actions))
    for kind in (CreateTopic, GrowTopic, AlterConfigs):
        of_kind = [action for request in requests for action in request if isinstance(action, kind)]
        assert of_kind == [action for action in actions if isinstance(action, kind)]
    for request in requests:
        assert len({type(action) for action in request}) == 1
        assert len(request) <= TOPICS_AT_ONCE
        partitions = sum(getattr(action, "partition_count", 0) for action in request)
        assert len(request) == 1 or partitions <= PARTITIONS_AT_ONCE


def test_many_small_topics_make_few_requests_and_none_makes_none() -> None:
    topics = {f"t{number}": view(4) for number in range(1_000)}
    assert [len(request) for request in requests_of(plan(topics, {}).actions)] == [100] * 10
    assert not list(requests_of(()))


def test_the_way_out_of_a_copy_that_the_mirror_never_deletes_names_the_topic_at_the_target() -> None:
    source = {"made": TopicView(topic_id=UUID(int=1), partition_count=1)}
    target = {name: TopicView(topic_id=UUID(int=2), partition_count=1) for name in ("made", "gone")}
    troubles = plan(source, target, name_at_target="a.{}".format).troubles
    assert troubles["made"].reason.endswith("when topic a.made is deleted at the target, it is mirrored anew")
    assert troubles["gone"].reason.endswith("until topic a.gone is deleted there")


def test_what_no_action_cures_is_found_with_both_ids() -> None:
    other = UUID(int=2)
    source = {"replaced": view(topic_id=other), "shrunk": view(1)}
    wanted = plan(source, {"replaced": view(), "shrunk": view(2), "gone": view()})
    assert not wanted.actions
    assert {name: trouble.finding for name, trouble in wanted.troubles.items()} == {
        "replaced": Finding.REPLACED,
        "shrunk": Finding.SHRUNK,
        "gone": Finding.GONE,
    }
    assert str(ID) in wanted.troubles["replaced"].reason
    assert str(other) in wanted.troubles["replaced"].reason


# Group offsets.

offsets = st.integers(min_value=0, max_value=100)


@given(
    source=offsets,
    before=st.none() | offsets,
    at_target=st.none() | offsets,
    start=offsets,
    length=offsets,
    is_active=st.booleans(),
    has_moved=st.booleans(),
    is_from_target=st.booleans(),
)
def test_a_group_is_never_ahead_never_behind_and_goes_back_only_after_a_reset(
    source: int,
    before: int | None,
    at_target: int | None,
    start: int,
    length: int,
    is_active: bool,
    has_moved: bool,
    is_from_target: bool,
) -> None:
    """M3, M4."""
    outcome = offset_to_commit(
        source=GroupOffset(source),
        source_before=None if before is None else GroupOffset(before),
        target_committed=None if at_target is None else GroupOffset(at_target),
        target=TargetRange(log_start_offset=start, log_end_offset=start + length),
        is_active_at_target=is_active,
        has_moved_at_target=has_moved,
        is_from_target=is_from_target,
    )
    if isinstance(outcome, Stay):
        assert is_active == (outcome is Stay.ACTIVE)
        assert is_active or is_from_target or at_target is not None, "a group that the target has not is carried"
        if outcome is Stay.MOVED_ON:
            assert has_moved
        return
    assert not is_active
    assert not is_from_target
    assert start <= outcome.offset <= start + length
    if at_target is not None and outcome.offset < at_target:
        assert before is not None
        assert source < before
        assert not has_moved


@pytest.mark.parametrize(
    ("source", "before", "has_moved", "expected"),
    [
        (50, 100, False, GroupOffset(50)),
        (50, 100, True, Stay.MOVED_ON),
        (50, None, False, Stay.UNKNOWN),
        (100, 100, True, Stay.AHEAD),
        (120, 120, False, Stay.IN_SYNC),
    ],
)
def test_a_group_behind_at_the_source_goes_back_only_when_that_was_a_reset_for_sure(
    source: int, before: int | None, has_moved: bool, expected: GroupOffset | Stay
) -> None:
    """M4."""
    outcome = offset_to_commit(
        source=GroupOffset(source),
        source_before=None if before is None else GroupOffset(before),
        target_committed=GroupOffset(120),
        target=TargetRange(log_start_offset=0, log_end_offset=200),
        is_active_at_target=False,
        has_moved_at_target=has_moved,
    )
    assert outcome == expected


def test_a_group_at_offset_zero_is_carried() -> None:
    """M8."""
    target = TargetRange(log_start_offset=0, log_end_offset=0)
    commit = offset_to_commit(
        source=GroupOffset(0), source_before=None, target_committed=None, target=target, is_active_at_target=False
    )
    assert commit == GroupOffset(0)


def test_a_clamped_offset_loses_its_epoch_and_keeps_its_metadata() -> None:
    target = TargetRange(log_start_offset=0, log_end_offset=5)
    commit = offset_to_commit(
        source=GroupOffset(9, 4, "mine"),
        source_before=None,
        target_committed=None,
        target=target,
        is_active_at_target=False,
    )
    assert commit == GroupOffset(5, -1, "mine")


# Lag.


def test_lag_is_zero_only_when_the_source_was_heard_lately() -> None:
    progress = Progress(
        source_high_watermark=10, source_answered_at_ms=1000, target_log_end_offset=10, caught_up_at_ms=1000
    )
    assert measure(progress, now_ms=1400, stale_after_ms=500) == Lag(records=0, bytes=0, ms=0)
    assert measure(progress, now_ms=1501, stale_after_ms=500) == Lag(records=-1, bytes=-1, ms=501)


def test_lag_in_bytes_comes_from_the_mean_record() -> None:
    progress = Progress(
        source_high_watermark=30,
        target_log_end_offset=10,
        mirrored_bytes=1000,
        mirrored_records=10,
        source_answered_at_ms=1,
    )
    assert measure(progress, now_ms=1, stale_after_ms=500).bytes == 2000


def test_lag_in_time_counts_from_the_last_moment_with_everything() -> None:
    progress = moved(
        Progress(), source_high_watermark=5, source_answered_at_ms=110, source_asked_at_ms=100, target_log_end_offset=5
    )
    progress = moved(progress, source_high_watermark=8, source_answered_at_ms=210, source_asked_at_ms=200)
    progress = moved(progress, source_high_watermark=20, source_answered_at_ms=310, source_asked_at_ms=300)
    assert measure(progress, now_ms=400, stale_after_ms=500).ms == 300
    progress = moved(progress, target_log_end_offset=8)
    assert measure(progress, now_ms=400, stale_after_ms=500).ms == 200
    progress = moved(progress, target_log_end_offset=20)
    assert measure(progress, now_ms=400, stale_after_ms=500) == Lag(records=0, bytes=0, ms=0)


# Fetch sessions.


def test_a_session_names_only_what_changed_and_begins_anew_after_a_loss() -> None:
    session: FetchSession[TopicPartition, tuple[int, int]] = FetchSession()
    other = TopicPartition("orders", 1)
    first = session.next_request({KEY: (0, 0), other: (0, 0)})
    assert (first.session_id, first.session_epoch, set(first.named)) == (0, 0, {KEY, other})
    session.answered(77)
    second = session.next_request({KEY: (5, 0), other: (0, 0)})
    assert (second.session_id, second.session_epoch, set(second.named)) == (77, 1, {KEY})
    session.answered(77)
    third = session.next_request({KEY: (5, 0)})
    assert (third.session_epoch, set(third.named), third.forgotten) == (2, set(), {other})
    session.reset()
    assert session.next_request({KEY: (5, 0)}).named == {KEY: (5, 0)}


# Verdicts.


@pytest.mark.parametrize(
    ("error", "divergence_epoch", "wanted"),
    [
        (ErrorCode.none, -1, Appended),
        (ErrorCode.not_leader_or_follower, -1, SendAgain),
        (ErrorCode.kafka_storage_error, -1, SendAgain),
        (ErrorCode.unknown_leader_epoch, -1, SendAgain),
        (ErrorCode.offset_out_of_range, -1, TargetRefusal.OFFSET_MISMATCH),
        (ErrorCode.offset_out_of_range, 3, TargetRefusal.DIVERGED),
        (ErrorCode.fenced_leader_epoch, -1, TargetRefusal.STALE_LINK),
        (ErrorCode.corrupt_message, -1, TargetRefusal.CORRUPT),
        (ErrorCode.inconsistent_topic_id, -1, TargetRefusal.UNKNOWN_TOPIC),
    ],
)
def test_every_code_of_the_table_has_a_verdict(error: ErrorCode, divergence_epoch: int, wanted: object) -> None:
    verdict = judge_append(
        error,
        message="",
        expected_log_end_offset=5,
        log_end_offset=3,
        link_epoch=1,
        divergence_epoch=divergence_epoch,
        divergence_end_offset=2,
    )
    assert (verdict.refusal if isinstance(verdict, Refusal) else type(verdict)) == wanted


# Windows.


def entry(first: int, after: int, generation: int = 0) -> QueuedBatches:
    run = BatchRun(
        first_offset=first,
        next_offset=after,
        size_bytes=10,
        record_count=1,
        first_epoch=0,
        last_epoch=0,
        max_timestamp_ms=-1,
    )
    return QueuedBatches(
        key=KEY, generation=generation, expected_log_end_offset=first, run=run, records=memoryview(b"")
    )


def window_with(*entries: QueuedBatches) -> SendWindow:
    window = SendWindow()
    for one in entries:
        assert window.push(one)
    return window


def test_after_a_failure_nothing_is_sent_until_everything_in_flight_is_answered() -> None:
    first, second, third = entry(0, 1), entry(1, 2), entry(2, 3)
    window = window_with(first, second, third)
    window.mark_sent()
    window.mark_sent()
    window.fail(first)
    assert window.next_to_send() is None
    window.fail(second)
    assert window.next_to_send() is first


def test_an_acknowledged_end_covers_all_entries_below_it() -> None:
    first, second = entry(0, 1), entry(1, 2)
    window = window_with(first, second)
    window.mark_sent()
    window.mark_sent()
    assert window.acknowledge(first, 2) == [first, second]
    assert window.acknowledge(second, 2) == []
    assert window.is_idle


def test_a_hole_in_the_chain_is_refused() -> None:
    with pytest.raises(ChainBroken):
        window_with(entry(0, 1)).push(entry(2, 3))


def test_a_discarded_generation_is_settled_when_its_last_answer_came() -> None:
    first, second = entry(0, 1), entry(1, 2)
    window = window_with(first, second)
    window.mark_sent()
    assert window.discard(1) == 10
    assert window.settle() is None
    assert window.acknowledge(first, 1) == []
    assert window.settle() == 10
    assert not window.push(entry(1, 2, generation=0))
    assert window.push(entry(1, 2, generation=1))
