"""How often a site's agent compares its links."""

from __future__ import annotations

import pytest

from dr.agent.equality_watch import INTERVAL_MS, INTERVAL_MS_MAX, pause_ms


@pytest.mark.parametrize(
    ("took_ms", "expected_ms"),
    [(5, INTERVAL_MS), (1_000, 50_000), (100_000, INTERVAL_MS_MAX)],
    ids=["a small link", "a large link", "a huge link"],
)
def test_a_comparison_that_takes_long_is_repeated_less_often(took_ms: float, expected_ms: float) -> None:
    assert pause_ms(took_ms) == expected_ms
