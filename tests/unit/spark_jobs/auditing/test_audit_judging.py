"""The judge of an audit: windows that are settled, gaps that close again and gaps that last, late
records, delays by the hour, messages that are there twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from spark_jobs.auditing.core.counts import HOUR_MS, Count, PublishedCount, Tally, published_count
from spark_jobs.auditing.core.judging import AuditRules, judge

WINDOW_MS = 60_000
RULES = AuditRules(reference="a", window_ms=WINDOW_MS, alarm_windows=3)
EVER = {"t": 10**15}


def count(window: int, records: int, *, partition: int = 0, delay_ms: int = 3_000) -> Count:
    return Count(
        "t", partition, window * WINDOW_MS, delay_ms.bit_length(), records, 10 * records, delay_ms * records, delay_ms
    )


def tally(**tiers: Mapping[int, int]) -> Tally:
    found = Tally()
    for tier, windows in tiers.items():
        found.add_batches(tier, [[count(window, records) for window, records in windows.items()]], lateness_ms=0)
    return found


def gaps(found: Tally, rules: AuditRules = RULES, settled: Mapping[str, int] = EVER) -> list[tuple[int, int, bool]]:
    return [(gap.first_window_ms // WINDOW_MS, gap.missing, gap.is_alarm) for gap in judge(found, rules, settled).gaps]


def windows(*records: int) -> dict[int, int]:
    return {window: number for window, number in enumerate(records) if number}


@pytest.mark.parametrize(
    ("at_b", "expected"),
    [
        ((10, 10, 10, 10, 10), []),
        ((10, 7, 10, 10, 10), [(1, 3, False)]),
        ((10, 9, 8, 10, 10), [(1, 3, False)]),
        ((10, 9, 8, 7, 10), [(1, 6, True)]),
        ((10, 10, 9, 8, 7), [(2, 6, True)]),
        ((9, 10, 9, 10, 9), [(0, 1, False), (2, 1, False), (4, 1, False)]),
        ((0, 0, 0, 0, 0), [(0, 50, True)]),
        ((10, 12, 10, 10, 10), [(1, -2, False)]),
    ],
)
def test_a_gap_that_closes_again_is_no_alarm_and_one_that_lasts_is(
    at_b: Sequence[int], expected: list[tuple[int, int, bool]]
) -> None:
    found = tally(a=windows(10, 10, 10, 10, 10), b=windows(*at_b))
    if not any(at_b):
        found.add_batches("b", [[Count("other", 0, 0, 1, 1, 1, 1, 1)]], lateness_ms=0)
    assert [one for one in gaps(found) if one[1] != -1] == expected


def test_windows_that_are_not_settled_are_not_judged_and_a_late_record_closes_its_gap() -> None:
    found = tally(a=windows(10, 10, 10, 10), b=windows(10, 9, 9, 9))
    assert gaps(found, settled={"t": 2 * WINDOW_MS}) == [(1, 1, False)]
    assert gaps(found, settled={"t": 2 * WINDOW_MS - 1}) == []
    assert gaps(found, settled={}) == []
    assert gaps(found) == [(1, 3, True)]
    found.add_batches("b", [[count(2, 1)]], lateness_ms=0)
    assert gaps(found) == [(1, 1, False), (3, 1, False)]


def test_produced_is_stored_and_rejected() -> None:
    found = tally(a=windows(10, 10, 10))
    messages = [PublishedCount(f"m{window}", "store", "t", window * WINDOW_MS, 7, 3) for window in range(3)]
    found.add_published(messages)
    found.add_published(messages[:1])
    assert gaps(found) == []
    found.add_published([PublishedCount("m9", "store", "t", WINDOW_MS, 0, 1)])
    (balance,) = [one for one in judge(found, RULES, EVER).balances if one.gap]
    assert (balance.produced, balance.stored, balance.rejected, balance.gap) == (10, 7, 4, -1)


def test_a_program_is_not_judged_by_topics_that_it_does_not_count() -> None:
    found = tally(a=windows(10, 10, 10))
    found.add_published([PublishedCount("m", "store", "other", 0, 1, 0)])
    assert gaps(found, settled={"t": 10**15}) == []


def test_late_records_are_those_whose_window_came_after_a_later_one_of_their_partition() -> None:
    found = Tally()
    batches = [[count(5, 10)], [count(4, 1), count(3, 2), count(6, 1)], [count(1, 4, partition=1)]]
    found.add_batches("a", batches, lateness_ms=WINDOW_MS)
    late = {start // WINDOW_MS: one.late for start, one in found.of("a", "t").items()}
    assert late == {5: 0, 4: 0, 3: 2, 6: 0, 1: 0}


def test_delays_are_by_hour_with_an_alarm_above_the_bound() -> None:
    found = Tally()
    hour = HOUR_MS // WINDOW_MS
    found.add_batches(
        "a", [[count(0, 99, delay_ms=3_000), count(1, 1, delay_ms=50_000), count(hour, 5)]], lateness_ms=0
    )
    first, second = judge(found, AuditRules(reference="a", window_ms=WINDOW_MS, delay_alarm_ms=4_096), EVER).delays
    assert (first.records, first.mean_ms, first.p99_ms, first.max_ms) == (100, 3_470.0, 4_096, 50_000)
    assert (second.hour_ms, second.p99_ms) == (HOUR_MS, 3_000)
    assert not first.is_alarm
    strict = AuditRules(reference="a", window_ms=WINDOW_MS, delay_alarm_ms=4_000)
    assert [one.is_alarm for one in judge(found, strict, EVER).delays] == [True, False]
    assert judge(found, strict, EVER).is_alarm
    later = replace(strict, since_ms=HOUR_MS)
    assert [one.hour_ms for one in judge(found, later, EVER).delays] == [HOUR_MS]
    assert not judge(found, later, EVER).is_alarm, "the breach is over and was handled"


def test_a_day_has_24_points_and_a_delay_of_3_seconds_is_3_seconds() -> None:
    found = Tally()
    hour = HOUR_MS // WINDOW_MS
    found.add_batches("a", [[count(number * hour + 7, 5) for number in range(24)]], lateness_ms=0)
    points = judge(found, RULES, EVER).delays
    assert [one.hour_ms for one in points] == [number * HOUR_MS for number in range(24)]
    assert {(one.records, one.mean_ms, one.p99_ms, one.max_ms) for one in points} == {(5, 3_000.0, 3_000, 3_000)}


def test_gaps_that_begin_before_a_time_are_not_judged_since_it() -> None:
    found = tally(a=windows(10, 10, 10, 10, 10), b=windows(9, 9, 9, 10, 9))
    assert gaps(found, replace(RULES, since_ms=3 * WINDOW_MS)) == [(4, 1, False)]
    assert gaps(found)[0] == (0, 3, True)


@pytest.mark.parametrize(
    "value",
    [None, b"", b"[]", b'{"id": 1}', b"\xff", b'{"id":"x","tier":"s","topic":"t","window_start_ms":"x","stored":1}'],
)
def test_records_that_are_no_counts_are_not_counted(value: bytes | None) -> None:
    assert published_count(value) is None


@pytest.mark.parametrize(
    ("field", "value"),
    [("stored", "Infinity"), ("window_start_ms", str(10**30)), ("rejected", "1e300"), ("id", r'"\ud800"')],
)
def test_counts_that_no_table_can_hold_are_not_counted(field: str, value: str) -> None:
    fields = {"id": '"x"', "tier": '"s"', "topic": '"t"', "window_start_ms": "0", "stored": "1"}
    assert published_count(_object(fields)) is not None
    assert published_count(_object({**fields, field: value})) is None


def test_a_value_of_too_many_brackets_is_no_count() -> None:
    assert published_count(b"[" * 100_000) is None


def _object(fields: Mapping[str, str]) -> bytes:
    return ("{" + ",".join(f'"{name}":{value}' for name, value in fields.items()) + "}").encode()


def test_a_published_count_is_read() -> None:
    value = json.dumps({"id": "x-1", "tier": "store", "topic": "t", "window_start_ms": 60_000, "stored": 7}).encode()
    assert published_count(value) == PublishedCount("x-1", "store", "t", 60_000, 7, 0)
