"""How often a site's agent compares and judges its links."""

from __future__ import annotations

import pytest

from dr.agent.core.pauses import pause_ms


@pytest.mark.parametrize(
    ("took_ms", "expected_ms"),
    [(5, 2_000), (100, 5_000), (8_000, 10_000)],
    ids=["a small link", "a large link", "a silent site"],
)
def test_a_slow_look_is_repeated_less_often_and_soon_all_the_same(took_ms: float, expected_ms: float) -> None:
    assert pause_ms(took_ms, least_ms=2_000, most_ms=10_000) == expected_ms


@pytest.mark.parametrize(
    ("took_ms", "expected_ms"),
    [(5, 2_000), (300, 2_000), (1_000, 5_000), (8_000, 10_000)],
    ids=["a small link", "a busy machine", "a large link", "a silent site"],
)
def test_an_awaited_change_is_looked_for_more_often(took_ms: float, expected_ms: float) -> None:
    found_ms = pause_ms(took_ms, least_ms=2_000, most_ms=10_000, is_change_awaited=True)
    assert found_ms == expected_ms
