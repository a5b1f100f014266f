"""The windowed rate: bursts are evened out over quiet windows, old windows are forgotten."""

from __future__ import annotations

import pytest

from broker.quotas.core.rates import WindowedRate


def test_a_rate_without_records_is_zero() -> None:
    assert WindowedRate(11, 1000).rate_per_second(5_000) == 0.0


def test_the_first_amount_is_spread_over_all_full_windows_but_one() -> None:
    rate = WindowedRate(11, 1000)
    rate.record(1_000, 500)
    assert rate.rate_per_second(1_000) == 50.0


def test_a_steady_flow_is_measured_as_it_is() -> None:
    rate = WindowedRate(11, 1000)
    for now_ms in range(0, 60_000, 100):
        rate.record(now_ms, 10)
    assert rate.rate_per_second(59_900) == pytest.approx(100, rel=0.02)


def test_windows_are_forgotten_when_their_time_is_over() -> None:
    rate = WindowedRate(3, 1000)
    rate.record(0, 100)
    rate.record(1_500, 10)
    assert rate.rate_per_second(2_999) > 30
    assert rate.rate_per_second(3_000) == 4.0
    assert rate.rate_per_second(4_500) == 0.0


def test_an_amount_that_did_not_happen_can_be_taken_back() -> None:
    rate = WindowedRate(11, 1000)
    rate.record(0, 300)
    rate.record(0, 700)
    rate.record(0, -700)
    assert rate.rate_per_second(0) == 30.0


def test_one_sample_is_taken_over_one_window_at_least() -> None:
    rate = WindowedRate(1, 1000)
    rate.record(0, 40)
    assert rate.rate_per_second(0) == 40.0
