"""Which offsets tasks of the data source read: bounds, loss, splits, limits of triggers,
filters.
"""

from __future__ import annotations

import datetime as dt
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.connector.core.filters import EVERYTHING, Condition, narrowing
from spark_jobs.connector.core.offsets import (
    Bound,
    BoundKind,
    InvalidOffsets,
    LogRange,
    decode_position,
    encode_position,
    parse_offsets,
    resolve_end,
    resolve_start,
)
from spark_jobs.connector.core.planning import DataLost, OffsetRange, largest_first, limited, packed, ranges, splits
from spark_jobs.connector.core.trigger_delay import TriggerDelay

LOGS = {("t", 0): LogRange(10, 100), ("t", 1): LogRange(0, 50)}


def test_offsets_name_every_partition_or_are_refused() -> None:
    bound = Bound(kind=BoundKind.OFFSETS, values={("t", 0): 20, ("t", 1): -2}, option="startingOffsets")
    assert resolve_start(bound, LOGS, {}) == {("t", 0): 20, ("t", 1): 0}
    short = Bound(kind=BoundKind.OFFSETS, values={("t", 0): 20, ("u", 0): 1}, option="startingOffsets")
    with pytest.raises(InvalidOffsets, match="without t-1 and with u-0"):
        resolve_start(short, LOGS, {})


def test_a_time_without_a_record_is_an_error_at_the_start_and_the_end_at_the_end() -> None:
    bound = Bound(kind=BoundKind.TIMESTAMPS, timestamp_ms=5, option="startingTimestamp")
    found = {("t", 0): 30, ("t", 1): -1}
    assert bound.times(LOGS) == {("t", 0): 5, ("t", 1): 5}
    with pytest.raises(InvalidOffsets, match="t-1 has no record at 5 or later"):
        resolve_start(bound, LOGS, found)
    assert resolve_start(bound, LOGS, found, is_latest_without_match=True) == {("t", 0): 30, ("t", 1): 50}
    assert resolve_end(bound, LOGS, found) == {("t", 0): 30, ("t", 1): 50}


def test_a_start_before_the_log_is_loss_or_moves_up() -> None:
    starts, ends = {("t", 0): 5}, {("t", 0): 20}
    with pytest.raises(DataLost, match="t-0 must be read from offset 5, but its log starts at 10"):
        ranges(starts, ends, LOGS, is_failing_on_loss=True)
    (found,) = ranges(starts, ends, LOGS, is_failing_on_loss=False)
    assert (found.first_offset, found.until_offset) == (10, 20)


@given(
    st.lists(st.tuples(st.integers(1, 1000), st.integers(0, 5000)), min_size=1, max_size=5),
    st.integers(1, 2000),
    st.integers(0, 40),
)
def test_splits_cover_every_offset_once(sizes: list[tuple[int, int]], split_bytes: int, partitions_min: int) -> None:
    whole = [
        OffsetRange(topic="t", partition=number, first_offset=3, until_offset=3 + offsets, size_bytes=size)
        for number, (offsets, size) in enumerate(sizes)
    ]
    parts = splits(whole, split_bytes=split_bytes, partitions_min=partitions_min)
    for one in whole:
        mine = [part for part in parts if part.partition == one.partition]
        assert [part.is_first for part in mine] == [True] + [False] * (len(mine) - 1)
        assert [n for part in mine for n in range(part.first_offset, part.until_offset)] == list(
            range(3, one.until_offset)
        )


@given(
    st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 50), st.integers(0, 99)), min_size=1),
    st.integers(1, 300),
)
def test_a_limited_trigger_gets_on_and_stays_within_its_limit(logs: dict[int, tuple[int, int]], limit: int) -> None:
    starts = {("t", number): first for number, (first, _) in logs.items()}
    ends = {("t", number): first + waiting for number, (first, waiting) in logs.items()}
    found = limited(starts, ends, limit)
    taken = {key: found[key] - starts[key] for key in ends}
    assert all(0 <= taken[key] <= ends[key] - starts[key] for key in ends)
    assert any(taken.values()) or starts == ends
    assert sum(taken.values()) <= limit + len(ends)


def test_a_checkpoint_of_the_kafka_connector_is_read_and_ours_adds_epochs() -> None:
    theirs = json.loads('{"t":{"0":123,"1":4}}')
    assert decode_position(theirs) == ({("t", 0): 123, ("t", 1): 4}, {})
    ours = encode_position({("t", 1): 4, ("t", 0): 123}, {("t", 0): 7})
    assert ours == {"t": {"0": 123, "1": 4}, "t (leader epochs)": {"0": 7}}
    assert decode_position(ours) == ({("t", 0): 123, ("t", 1): 4}, {("t", 0): 7})
    assert parse_offsets(json.dumps(theirs)) == decode_position(theirs)[0]


def test_ranges_share_tasks_up_to_a_number_of_bytes() -> None:
    sizes = (40, 50, 20, 200, 0, 10)
    found = [
        OffsetRange(topic="t", partition=number, first_offset=0, until_offset=1, size_bytes=size)
        for number, size in enumerate(sizes)
    ]
    groups = packed(found, bytes_max=100)
    assert [[one.size_bytes for one in group] for group in groups] == [[40, 50], [20], [200], [0, 10]]
    assert packed([], bytes_max=100) == []


def test_filters_narrow_to_what_all_of_them_leave() -> None:
    at = dt.datetime(2026, 1, 1, microsecond=1500, tzinfo=dt.UTC)
    ms = round(dt.datetime(2026, 1, 1, tzinfo=dt.UTC).timestamp() * 1000)
    found = narrowing(
        [
            Condition("topic", "in", ("a", "b")),
            Condition("topic", "=", "a"),
            Condition("partition", "in", (1, 2)),
            Condition("offset", ">", 4),
            Condition("offset", "<=", 9),
            Condition("timestamp", ">=", at),
            Condition("timestamp", "<", at),
            Condition("value", "=", b"x"),
        ]
    )
    assert found.has("a", 2)
    assert not found.has("b", 2)
    assert not found.has("a", 0)
    assert (found.first_offset, found.until_offset) == (5, 10)
    assert (found.since_ms, found.until_ms) == (ms + 1, ms + 3)


def test_a_filter_that_is_not_understood_narrows_nothing() -> None:
    naive = dt.datetime(2026, 1, 1)
    assert narrowing([Condition("timestamp", ">", naive), Condition("key", "=", b"k")]) == EVERYTHING


def test_no_part_has_more_offsets_than_the_largest_number_of_records() -> None:
    found = [OffsetRange(topic="t", partition=0, first_offset=0, until_offset=25)]
    parts = splits(found, split_bytes=0, offsets_max=10)
    assert [(one.first_offset, one.until_offset) for one in parts] == [(0, 8), (8, 16), (16, 25)]
    assert len(splits(found, split_bytes=0, partitions_min=5, offsets_max=10)) == 5


def test_the_largest_parts_come_first_and_those_of_one_log_in_order() -> None:
    sizes = {0: 50, 1: 300, 2: 120}
    found = [
        OffsetRange(topic="t", partition=partition, first_offset=0, until_offset=size, size_bytes=size)
        for partition, size in sizes.items()
    ]
    parts = largest_first(splits(found, split_bytes=150))
    assert [(one.partition, one.first_offset) for one in parts] == [(1, 0), (1, 150), (2, 0), (0, 0)]


def test_a_batch_waits_for_enough_offsets_or_for_its_time_and_either_alone_begins_it() -> None:
    delay = TriggerDelay(offsets_min=10, delay_ms_max=1_000)
    starts = {("t", 0): 5, ("t", 1): 5}

    def is_waiting(offsets: int, now_ms: float) -> bool:
        return delay.is_waiting(starts, {("t", 0): 5, ("t", 1): 5 + offsets}, now_ms)

    assert not is_waiting(0, 0.0)
    assert not is_waiting(1, 100.0)  # the first batch of a driver
    assert is_waiting(9, 1_099.0)
    assert not is_waiting(10, 1_099.0)  # enough offsets
    assert is_waiting(1, 2_098.0)
    assert not is_waiting(1, 2_099.0)  # the time is over
    assert is_waiting(9, 2_100.0)
    assert not is_waiting(0, 9_000.0)  # without a record no batch begins, and the time stays over
    assert not is_waiting(1, 9_001.0)
