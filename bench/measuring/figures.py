"""Samples, figures and their targets. Pure; `section_figures.py` has the figures of each section.

A sample is one measurement of one of the two products. A row is one figure of one case: the best of
the samples (or their median, if a single lucky sample would mislead) for Antipode and for the peer,
the ratio ours/theirs, and the target. The best sample is taken for both: the machine may be shared,
and noise only makes a figure worse.
"""

from __future__ import annotations

import enum
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


class Side(enum.StrEnum):
    """The measured system."""

    ANTIPODE = "antipode"
    PEER = "peer"


class Pick(enum.StrEnum):
    """The way in which several samples become one figure."""

    HIGHEST = "highest"
    LOWEST = "lowest"
    MEDIAN = "median"


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One measurement. `values` by the names of the section's figures; loads in cores, measured
    during the sample.
    """

    section: str
    case: str
    side: Side
    values: Mapping[str, float]
    other_cores: float = 0.0
    steal_cores: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The target of a figure, as a value or as a multiple of the peer's; only the given fields
    apply.
    """

    ratio_min: float | None = None
    ratio_max: float | None = None
    below: float | None = None
    least: float | None = None
    most: float | None = None

    def __str__(self) -> str:
        parts = []
        if self.ratio_min is not None:
            parts.append(f"≥ {self.ratio_min:g}x")
        if self.ratio_max is not None:
            parts.append(f"≤ {self.ratio_max:g}x")
        if self.below is not None:
            parts.append(f"< {self.below:g}")
        if self.least is not None:
            parts.append(f"≥ {self.least:g}")
        if self.most is not None:
            parts.append(f"≤ {self.most:g}")
        return " and ".join(parts)

    def is_reached(self, ours: float, ratio: float | None) -> bool | None:
        """True if the target is reached; None when it needs a peer that was not measured."""
        verdicts: list[bool | None] = []
        if self.ratio_min is not None:
            verdicts.append(None if ratio is None else ratio >= self.ratio_min)
        if self.ratio_max is not None:
            verdicts.append(None if ratio is None else ratio <= self.ratio_max)
        if self.below is not None:
            verdicts.append(ours < self.below)
        if self.least is not None:
            verdicts.append(ours >= self.least)
        if self.most is not None:
            verdicts.append(ours <= self.most)
        if False in verdicts:
            return False
        return None if None in verdicts else True


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A name in `Sample.values`: its title in the table, its unit, how samples become one figure,
    its target; `case_targets` by a part of the name of the cases that have another target.
    """

    title: str
    unit: str
    pick: Pick
    target: Target = field(default_factory=Target)
    case_targets: Mapping[str, Target] = field(default_factory=dict)

    def target_of(self, case: str) -> Target:
        """The target of the figure in this case."""
        return next((target for part, target in self.case_targets.items() if part in case), self.target)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the report."""

    section: str
    case: str
    figure: str
    unit: str
    ours: float | None
    theirs: float | None
    ratio: float | None
    target: str
    is_reached: bool | None


def picked(pick: Pick, values: Sequence[float]) -> float | None:
    """One figure of several samples; None without samples."""
    if not values:
        return None
    match pick:
        case Pick.HIGHEST:
            return max(values)
        case Pick.LOWEST:
            return min(values)
        case Pick.MEDIAN:
            return statistics.median(values)


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of the values do not exceed (nearest rank).
    ValueError of none.
    """
    if not values:
        raise ValueError("no percentile of nothing")
    ordered = sorted(values)
    return ordered[max(0, math.ceil(len(ordered) * percent / 100) - 1)]
