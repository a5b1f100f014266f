"""The segments that retention deletes, and the limit at which a segment is full."""

from broker.log.core.retention import (
    RELATIVE_OFFSET_MAX,
    ActiveSegment,
    Held,
    HeldSegments,
    RetentionHold,
    RetentionPolicy,
    RollPolicy,
    SegmentFacts,
    expired_segments,
    roll_reason,
)

SEGMENTS = [SegmentFacts(n * 10, n * 10 + 10, 100, n * 1000) for n in range(10)]
FOREVER = RetentionPolicy(-1, -1, is_deleting=True)


def count(policy=FOREVER, *, now_ms=10_000, high_watermark=100, log_start_offset=0, segments=SEGMENTS):
    return expired_segments(
        segments, policy, now_ms=now_ms, high_watermark=high_watermark, log_start_offset=log_start_offset
    ).segment_count


def test_size_retention_never_falls_below_the_limit():
    assert count(FOREVER._replace(retention_bytes=350)) == 6


def test_size_retention_is_off_when_negative():
    assert count() == 0


def test_time_retention_looks_at_the_largest_timestamp_and_stops_at_the_first_young_segment():
    assert count(FOREVER._replace(retention_ms=6_500)) == 4
    uneven = [SEGMENTS[0]._replace(largest_timestamp_ms=9_999), *SEGMENTS[1:]]
    assert count(FOREVER._replace(retention_ms=6_500), segments=uneven) == 0


def test_nothing_at_or_above_the_high_watermark_goes():
    assert count(FOREVER._replace(retention_ms=0), now_ms=99_999, high_watermark=35) == 3


def test_segments_below_the_log_start_go_even_when_the_topic_is_compacted():
    compacted = RetentionPolicy(0, 0, is_deleting=False)
    assert count(compacted, log_start_offset=30) == 3
    assert count(compacted) == 0


def test_an_empty_active_segment_stays():
    segments = [SegmentFacts(0, 0, 0, 0)]
    assert count(FOREVER._replace(retention_ms=0), segments=segments, now_ms=10**9) == 0


ACTIVE = ActiveSegment(100, 900, first_timestamp_ms=1_000, created_ms=0, is_index_full=False)


def roll(segment=ACTIVE, *, incoming_bytes=100, last_offset=200, timestamp_ms=1_500, now_ms=1_500):
    return roll_reason(
        segment,
        RollPolicy(segment_bytes=1000, segment_ms=600),
        incoming_bytes=incoming_bytes,
        last_offset=last_offset,
        timestamp_ms=timestamp_ms,
        now_ms=now_ms,
    )


def test_a_segment_rolls_by_size_time_index_and_reach():
    assert roll() == ""
    assert "segment.bytes" in roll(incoming_bytes=101)
    assert "segment.ms" in roll(timestamp_ms=1_601)
    assert "index" in roll(ACTIVE._replace(is_index_full=True))
    assert "too far" in roll(last_offset=100 + RELATIVE_OFFSET_MAX + 1)


def test_without_timestamps_age_counts_from_creation():
    assert "segment.ms" in roll(ACTIVE._replace(first_timestamp_ms=-1), timestamp_ms=-1, now_ms=601)
    assert roll(ACTIVE._replace(first_timestamp_ms=-1), timestamp_ms=-1, now_ms=600) == ""


def test_an_empty_segment_rolls_only_for_reach():
    empty = ACTIVE._replace(size_bytes=0)
    assert roll(empty, incoming_bytes=5_000, timestamp_ms=10**9) == ""
    assert "too far" in roll(empty, last_offset=2**33)


AGED = FOREVER._replace(retention_ms=6_500)
"""At 10,000 ms the four oldest segments are expired, by 3,500 ms, 2,500 ms, 1,500 ms and 500 ms."""


def held(policy=AGED, *, from_offset=0, ms_max=10_000, bytes_max=10_000, log_start_offset=0):
    return expired_segments(
        SEGMENTS,
        policy,
        now_ms=10_000,
        high_watermark=100,
        log_start_offset=log_start_offset,
        hold=RetentionHold(from_offset, ms_max, bytes_max),
    )


def test_segments_that_the_standby_lacks_are_held():
    found = held(from_offset=20)
    assert found.segment_count == 2
    assert found.held == HeldSegments(size_bytes=200, share=0.15, given_up_bytes=0)


def test_a_segment_of_which_the_standby_has_only_a_part_is_held():
    assert held(from_offset=19).segment_count == 1


def test_nothing_is_held_of_a_standby_that_has_it():
    found = held(from_offset=40)
    assert (found.segment_count, found.held) == (4, HeldSegments())


def test_segments_held_too_long_are_given_up_and_counted():
    found = held(ms_max=2_000)
    assert (found.segment_count, found.held.given_up_bytes) == (2, 200)
    assert "200 bytes of it a standby lacks" in found.reason
    assert (found.held.size_bytes, found.held.share) == (200, 0.75)


def test_more_bytes_than_may_be_held_go_the_oldest_first():
    found = held(bytes_max=150)
    assert (found.segment_count, found.held.size_bytes, found.held.given_up_bytes) == (3, 100, 300)


def test_segments_that_size_retention_gives_up_are_held_by_their_bytes_alone():
    by_size = FOREVER._replace(retention_bytes=600)
    assert held(by_size, ms_max=1).segment_count == 0
    assert held(by_size, bytes_max=300).segment_count == 1


def test_deleted_records_are_never_held():
    found = held(log_start_offset=30)
    assert (found.segment_count, found.held.size_bytes) == (3, 100)


def test_without_anything_expired_nothing_is_held():
    found = held(FOREVER)
    assert (found.segment_count, found.reason, found.held) == (0, "", HeldSegments())


def test_the_figures_of_a_broker_are_those_of_all_its_logs():
    assert Held.of([HeldSegments()]) == Held()
    found = Held.of([HeldSegments(100, 0.5), HeldSegments(), HeldSegments(50, 0.75)])
    assert found == Held(logs=2, size_bytes=150, share=0.75)
