"""Figures of the last half to whole minute, as in Kafka's metrics: values are added as they occur,
and a scrape reads current ones.

Two windows of 30 s, the current and the previous one, like Kafka's two samples. No timer runs: a
new value moves the windows, and a read ignores outdated ones.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric

WINDOW_MS = 30_000

NAMES = ("", "_min", "_max", "_avg")


class Figures(NamedTuple):
    """Last value, minimum, maximum and mean; NaN if there is no current value. In the order of
    NAMES.
    """

    last: float = math.nan
    minimum: float = math.nan
    maximum: float = math.nan
    mean: float = math.nan


@dataclass(slots=True)
class _Window:
    """Minimum, maximum and sum of the values seen in one window."""

    began_ms: float = -math.inf
    count: int = 0
    total: float = 0.0
    minimum: float = math.inf
    maximum: float = -math.inf

    def add(self, value: float) -> None:
        self.count += 1
        self.total += value
        self.minimum = min(self.minimum, value)
        self.maximum = max(self.maximum, value)

    def merged(self, other: _Window) -> _Window:
        return _Window(
            min(self.began_ms, other.began_ms),
            self.count + other.count,
            self.total + other.total,
            min(self.minimum, other.minimum),
            max(self.maximum, other.maximum),
        )


class Rolling:
    """Figures of the current window and of the previous one. Every call gives the time (ms) by the
    same clock; any clock will do.
    """

    __slots__ = ("_last", "_windows")

    def __init__(self) -> None:
        # The earlier one and the present one; replaced together, since metrics are read in a thread
        # of their own.
        self._windows = (_Window(), _Window())
        self._last = math.nan

    def add(self, value: float, now_ms: float) -> None:
        """Add a value at the current time."""
        now = self._windows[1]
        age_ms = now_ms - now.began_ms
        if age_ms > WINDOW_MS:
            before, now = now if age_ms <= 2 * WINDOW_MS else _Window(), _Window(began_ms=now_ms)
            self._windows = (before, now)
        self._last = value
        now.add(value)

    def figures(self, now_ms: float, *, is_stalled: bool = False, waiting_ms: float | None = None) -> Figures:
        """The present figures. For a stopped flow, only waits longer than every recent value."""
        before, now = self._windows
        age_ms = now_ms - now.began_ms
        last, window = self._last, _Window()
        if not is_stalled and age_ms <= 2 * WINDOW_MS:
            window = now.merged(before if age_ms <= WINDOW_MS else _Window())
        if waiting_ms is not None and waiting_ms > window.maximum:
            last = waiting_ms
            window.add(waiting_ms)
        if not window.count:
            return Figures()
        return Figures(last, window.minimum, window.maximum, window.total / window.count)

    def a_second(self, now_ms: float) -> float:
        """The sum of the values by the seconds in which they came; 0 if no value came within the
        last minute.

        As Kafka's Rate: windows that began within the last minute count, and if the first of them
        began less than a window ago, a whole window is added to the time. So a rate rises during
        its first window, and disappears a minute after the last value.
        """
        windows = [window for window in self._windows if now_ms - window.began_ms < 2 * WINDOW_MS]
        if not windows:
            return 0.0
        elapsed_ms = now_ms - windows[0].began_ms
        if elapsed_ms < WINDOW_MS:
            elapsed_ms += WINDOW_MS
        return sum(window.total for window in windows) * 1000 / elapsed_ms


def figure_families(
    name: str, text: str, labels: Sequence[str], figures: Mapping[tuple[str, ...], Figures]
) -> Iterable[Metric]:
    """One gauge family for each figure, with a sample for each entry of `figures`."""
    families = [GaugeMetricFamily(f"{name}{suffix}", text, labels=labels) for suffix in NAMES]
    for place, values in figures.items():
        for family, value in zip(families, values, strict=True):
            family.add_metric(place, value)
    return families
