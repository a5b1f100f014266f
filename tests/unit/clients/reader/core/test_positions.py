"""The effect of answers, errors, new leaders and lost offsets on a position, and the choice of
partitions to ask for (rows NC-10 to NC-13, SC-09).
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode

from clients.reader.core.positions import (
    NoWholeBatch,
    Position,
    ResetPolicy,
    Trouble,
    diverges_at,
    parse_reset_policy,
    resolve,
    take,
    trouble_of,
)
from clients.reader.core.readings import Phase, Readings, Start
from wire.batches.records import Record, encode_batch
from wire.protocol.ids import NO_OFFSET

PLACE = ("t", 0)


def log(*counts: int, epoch: int = 3) -> bytes:
    parts, base = [], 0
    for count in counts:
        parts.append(encode_batch([Record(None, b"v")] * count, base_offset=base, leader_epoch=epoch))
        base += count
    return b"".join(parts)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=6), st.data())
def test_batches_below_the_position_are_skipped_and_the_next_one_is_behind_the_last(
    counts: list[int], data: st.DataObject
) -> None:
    records, end = log(*counts), sum(counts)
    position = Position(data.draw(st.integers(0, end)))
    taken = take(records, position)
    if position.offset == end:
        assert taken is None
        return
    assert taken is not None
    assert taken.next == Position(end, 3)
    assert taken.end == len(records)
    skipped = take(records[: taken.start], Position(0))
    assert (0 if skipped is None else skipped.next.offset) <= position.offset


def test_an_incomplete_last_batch_waits_for_the_next_fetch_but_a_single_one_is_reported() -> None:
    records = log(2, 2)
    taken = take(records[:-5], Position(0))
    assert taken is not None
    assert taken.next.offset == 2
    with pytest.raises(NoWholeBatch, match="at offset 0"):
        take(log(2)[:-5], Position(0))
    assert take(b"", Position(0)) is None


def test_a_log_differs_where_the_epoch_ends_before_the_position() -> None:
    position = Position(10, 3)
    assert diverges_at(position, epoch=3, end_offset=10) is None
    assert diverges_at(position, epoch=3, end_offset=99) is None
    assert diverges_at(position, epoch=2, end_offset=7) == 7
    assert diverges_at(position, epoch=-1, end_offset=-1) == NO_OFFSET


def test_policies_go_by_their_old_names_too() -> None:
    assert parse_reset_policy("smallest") is ResetPolicy.EARLIEST
    assert parse_reset_policy("latest") is ResetPolicy.LATEST
    assert parse_reset_policy("none") is ResetPolicy.FAIL
    with pytest.raises(ValueError, match="accepted are earliest, latest"):
        parse_reset_policy("middle")
    assert resolve(ResetPolicy.NEAREST, None, log_start=5, log_end=9) == 5
    assert resolve(ResetPolicy.FAIL, 3, log_start=5, log_end=9) is None


def test_every_error_code_has_one_meaning() -> None:
    assert trouble_of(ErrorCode.none) is Trouble.NONE
    assert trouble_of(ErrorCode.not_leader_or_follower) is Trouble.MOVED
    assert trouble_of(ErrorCode.offset_out_of_range) is Trouble.OUT_OF_RANGE
    assert trouble_of(ErrorCode.corrupt_message) is Trouble.CORRUPT
    assert trouble_of(ErrorCode.unknown_server_error) is Trouble.PASSING
    assert trouble_of(ErrorCode.topic_authorization_failed) is Trouble.REFUSED
    assert all(trouble_of(code) is not Trouble.NONE for code in ErrorCode if code)


def reading_from(position: Position) -> Readings:
    readings = Readings()
    readings.begin(PLACE, Start(position))
    readings.led_by(PLACE, 1, 5)
    return readings


def test_a_new_leader_is_asked_before_anything_is_fetched_if_the_epoch_is_known() -> None:
    readings = reading_from(Position(10))
    assert readings.fetchable(1)[PLACE].position == Position(10)
    reading = readings.get(PLACE)
    assert reading is not None
    readings.advance(reading, Position(12, 5), high_watermark=20, log_start_offset=0)
    readings.led_by(PLACE, 2, 6)
    assert readings.fetchable(2) == {}
    assert list(readings.asking(Phase.UNVALIDATED)) == [2]
    readings.led_by(PLACE, 1, 5)
    assert reading.leader == 2, "an older epoch is not listened to"


def test_an_answer_asked_for_before_a_seek_or_a_pause_is_not_looked_at() -> None:
    readings = reading_from(Position(10))
    asked = readings.fetchable(1)[PLACE]
    readings.begin(PLACE, Start(Position(3)))
    assert readings.current(PLACE, asked.generation) is None
    asked = readings.fetchable(1)[PLACE]
    reading = readings.current(PLACE, asked.generation)
    assert reading is not None
    readings.advance(reading, Position(7, 5), high_watermark=9, log_start_offset=0)
    readings.pause([PLACE])
    assert readings.current(PLACE, asked.generation) is None
    assert readings.fetchable(1) == {}
    readings.resume([PLACE])
    assert readings.fetchable(1)[PLACE].position == Position(3), "handed over and not consumed: fetched again"


def test_partitions_take_turns() -> None:
    readings = Readings()
    for index in range(3):
        readings.begin(("t", index), Start(Position(0)))
        readings.led_by(("t", index), 1, 5)
    first = readings.get(("t", 0))
    assert first is not None
    readings.advance(first, Position(1, 5), high_watermark=2, log_start_offset=0)
    assert list(readings.fetchable(1)) == [("t", 1), ("t", 2), ("t", 0)]
    assert first.lag == 2
