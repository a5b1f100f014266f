"""How often a site's agent compares its links."""

from __future__ import annotations

import pytest

from dr.agent.equality_watch import INTERVAL_MS, INTERVAL_MS_MAX, INTERVAL_WHILE_DIFFERENT_MS, pause_ms


@pytest.mark.parametrize(
    ("took_ms", "is_different", "expected_ms"),
    [
        (5, False, INTERVAL_MS),
        (5, True, INTERVAL_WHILE_DIFFERENT_MS),
        (5_000, True, 100_000),
        (100_000, False, INTERVAL_MS_MAX),
    ],
    ids=["a small link", "sites that differ", "a large link", "a huge link"],
)
def test_a_comparison_that_takes_long_is_repeated_less_often(
    took_ms: float, is_different: bool, expected_ms: float
) -> None:
    assert pause_ms(took_ms, is_different=is_different) == expected_ms
