"""The plan of a run: the size of the load, the measured products, the folder for files, and the
receivers of samples and progress.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.measuring.figures import Sample, Side
from bench.measuring.processes import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The options of one run, and its samples so far. `scale` multiplies every amount of data and
    every duration.
    """

    directory: Path
    scale: float = 1.0
    repeats: int = 2
    sides: tuple[Side, ...] = tuple(Side)
    say: Callable[[str], None] = lambda _: None
    samples: list[Sample] = field(default_factory=list)

    def scaled(self, amount: float, *, least: int) -> int:
        """An amount of records or bytes at this run's scale."""
        return max(least, round(amount * self.scale))

    def record(self, section: str, case: str, side: Side, usage: Usage, **values: float) -> None:
        """Keep a sample and print it."""
        sample = Sample(
            section=section,
            case=case,
            side=side,
            values=values,
            other_cores=usage.other_cores,
            steal_cores=usage.steal_cores,
        )
        self.samples.append(sample)
        reported = ", ".join(f"{name} {value:,.4g}" for name, value in values.items())
        self.say(
            f"{section}: {case}, {side}: {reported} (other load {usage.other_cores + usage.steal_cores:.2f} cores)"
        )
