"""How often a site's agent judges its links."""

from __future__ import annotations

import pytest

from dr.agent.protection_judge import INTERVAL_MS, INTERVAL_MS_MAX, pause_ms


@pytest.mark.parametrize(
    ("took_ms", "expected_ms"),
    [(5, INTERVAL_MS), (100, 5_000), (8_000, INTERVAL_MS_MAX)],
    ids=["a small link", "a large link", "a silent site"],
)
def test_a_slow_look_is_repeated_less_often_and_soon_all_the_same(took_ms: float, expected_ms: float) -> None:
    assert pause_ms(took_ms) == expected_ms
