"""The time between a mirror's reports, as a broker measures it."""

from __future__ import annotations

from broker.groups.core.sync_reports import ReceivedReports
from wire.rules.sync_reports import SyncReport


def received(*at_ms: float) -> ReceivedReports:
    reports = ReceivedReports()
    for now_ms in at_ms:
        reports.take(SyncReport(daemon="m1", synced_ms_ago=0, synced_at_ms=1), now_ms, unix_ms=0)
    return reports


def test_the_round_of_a_mirror_is_the_time_between_its_reports() -> None:
    assert received(0).round_ms == 0
    assert received(0, 500).round_ms == 500
    assert received(0, 4_000, 8_500).round_ms == 4_000


def test_one_long_pause_is_no_slow_round() -> None:
    assert received(0, 500, 60_500).round_ms == 500
    assert received(0, 500, 60_500, 61_000).round_ms == 500


def test_the_slowest_daemon_counts_and_a_turned_link_is_measured_anew() -> None:
    reports = received(0, 500)
    for now_ms in (0, 3_000):
        reports.take(SyncReport(daemon="m2", slots=frozenset({1}), synced_ms_ago=0, synced_at_ms=1), now_ms, unix_ms=0)
    assert reports.round_ms == 3_000
    reports.forget_reports()
    assert reports.round_ms == 0
