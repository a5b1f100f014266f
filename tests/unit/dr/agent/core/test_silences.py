"""The lease that outlasts the silences of an active site."""

from __future__ import annotations

import pytest

from dr.agent.core.silences import BOUNDS_MS, Silences
from wire.rules.links import LEASE_MS_MAX, LEASE_MS_MIN


@pytest.mark.parametrize(
    ("silences", "lease_ms"),
    [
        ((), 0),
        ((10,), LEASE_MS_MIN),
        ((700, 100), 1_500),
        ((1_000,), 2_000),
        ((4_001, 300, 300), 8_500),
        ((1_000_000,), LEASE_MS_MAX),
    ],
)
def test_the_recommended_lease_is_twice_the_longest_silence(silences: tuple[float, ...], lease_ms: int) -> None:
    found = Silences()
    for silent_ms in silences:
        found.note(silent_ms)
    assert found.recommended_lease_ms == lease_ms


def test_buckets_count_up_to_all_silences() -> None:
    found = Silences()
    for silent_ms in (*BOUNDS_MS, 10**9):
        found.note(silent_ms)
    counts = [count for _, count in found.buckets()]
    assert counts == list(range(1, len(BOUNDS_MS) + 2))
