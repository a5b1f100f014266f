"""Lag in records, bytes and time."""

from __future__ import annotations

import pytest

from mirror.flow.core.lag import Lag, Progress, complete_until_ms, measure, moved
from wire.protocol.ids import UNKNOWN


def test_lag_is_zero_only_after_a_recent_answer_of_the_source() -> None:
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


def test_lag_in_time_counts_from_the_last_moment_at_which_the_copy_was_complete() -> None:
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


@pytest.mark.parametrize(("mirrored_ms", "until_ms"), [(700, 700), (-1, UNKNOWN), (1_200, UNKNOWN)])
def test_before_a_copy_has_caught_up_only_the_times_of_its_records_prove_anything(
    mirrored_ms: int, until_ms: int
) -> None:
    progress = moved(
        Progress(started_at_ms=1_000), source_high_watermark=50, source_asked_at_ms=1_100, target_log_end_offset=10
    )
    progress = moved(progress, mirrored_records=10, mirrored_timestamp_ms=mirrored_ms)
    assert complete_until_ms(progress) == until_ms
    caught_up = moved(progress, target_log_end_offset=50)
    assert complete_until_ms(caught_up) == 1_100
