"""Partitions that fall behind, by the looks of a sliding window."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from mirror.flow.core.liveness import LOOKS, LagGrowth, LagWindows
from wire.protocol.ids import UNKNOWN, TopicPartition

KEY = TopicPartition("orders", 0)
LOOK_MS = 5_000.0


def seen(ends: Sequence[tuple[int, int]]) -> LagWindows:
    """The windows after looks at these ends of target and source."""
    windows = LagWindows()
    for number, (target_end, source_end) in enumerate(ends):
        windows.see(KEY, target_end=target_end, source_end=source_end, now_ms=number * LOOK_MS)
    return windows


def lags(*records: int) -> list[tuple[int, int]]:
    """A target that advances by 100 records at each look, with these lags."""
    return [(100 * number, 100 * number + lag) for number, lag in enumerate(records)]


GROWING = tuple(range(10, 10 + LOOKS))


def test_a_lag_that_grows_over_the_whole_window_is_reported_with_its_growth() -> None:
    assert seen(lags(*GROWING)).falling_behind() == {KEY: LagGrowth(10, 19, 45_000)}
    assert seen(lags(*GROWING[:-1])).falling_behind() == {}, "the window is not full"
    assert seen(lags(500, *GROWING)).falling_behind() == {KEY: LagGrowth(10, 19, 45_000)}, "the window slides"
    assert seen(lags(*[5] * (LOOKS - 1), 6)).falling_behind() == {KEY: LagGrowth(5, 6, 45_000)}


@pytest.mark.parametrize(
    "ends",
    [
        pytest.param(lags(*reversed(GROWING)), id="it catches up"),
        pytest.param(lags(*[7] * LOOKS), id="it keeps pace"),
        pytest.param(lags(*GROWING[:5], 0, *GROWING[6:]), id="it had everything"),
        pytest.param(lags(*GROWING[:5], 9, *GROWING[6:]), id="the lag shrinks once"),
        pytest.param([(0, lag) for lag in GROWING], id="the target does not advance, which is a stall"),
        pytest.param([*lags(*GROWING)[:5], (0, 500), *lags(*GROWING)[6:]], id="the target was truncated"),
        pytest.param([*lags(*GROWING)[:5], (500, UNKNOWN), *lags(*GROWING)[6:]], id="the source is unknown"),
    ],
)
def test_any_other_window_is_good(ends: list[tuple[int, int]]) -> None:
    assert seen(ends).falling_behind() == {}


def test_a_partition_that_is_not_mirrored_is_forgotten() -> None:
    windows = seen(lags(*GROWING))
    windows.keep({KEY})
    assert windows.falling_behind()
    windows.keep(frozenset())
    assert windows.falling_behind() == {}
