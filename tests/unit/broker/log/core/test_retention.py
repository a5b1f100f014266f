"""Which segments retention gives up, and when a segment is full."""

from broker.log.core.retention import (
    RELATIVE_OFFSET_MAX,
    ActiveSegment,
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
