"""A random schedule of faults from the seed: which kind comes next, when, and for how long. A
subclass names the kinds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable

from tests.sim.virtual_loop import Process
from tests.sim.world import World

Kind = Callable[[], bool]
"""Strikes; False if there is nothing to strike now."""


class FaultSchedule(ABC):
    """The faults of one run, in the order of their times."""

    short_s: float
    long_s: float
    """Bounds of how long short and long faults last."""
    short_share: float
    """The share of short ones."""

    def __init__(self, world: World, *, calm_s: float, faults_max: int | None) -> None:
        self._world = world
        self._calm_s = calm_s
        self._faults_max = faults_max
        self._process = Process(world.loop, "!", "faults")
        self.counts: Counter[str] = Counter()

    @property
    def count(self) -> int:
        """Faults so far."""
        return sum(self.counts.values())

    def begin(self) -> None:
        """Strike until `heal`."""
        self._process.spawn(self._work(), name="faults")

    @abstractmethod
    def _kinds(self) -> tuple[tuple[int, Kind], ...]:
        """The kinds with their weights."""

    def _chosen(self, kinds: list[Kind]) -> Kind:
        return self._world.chance.choice(kinds)

    async def _settle(self) -> None:  # noqa: B027  (most schedules have no such wait)
        """Wait after a fault, beyond the calm between faults."""

    async def _work(self) -> None:
        chance = self._world.chance
        kinds = [kind for weight, kind in self._kinds() for _ in range(weight)]
        while self._faults_max is None or self.count < self._faults_max:
            await self._world.pause(chance.uniform(0, 2 * self._calm_s))
            kind = self._chosen(kinds)
            if kind():
                self.counts[kind.__name__.strip("_")] += 1
            await self._settle()

    def _later(self, delay_s: float, undo: Callable[[], object]) -> None:
        self._world.loop.call_later(delay_s, undo, context=self._process.context)

    def _how_long_s(self) -> float:
        chance = self._world.chance
        is_short = chance.random() < self.short_share
        return chance.uniform(0.02, self.short_s) if is_short else chance.uniform(self.short_s, self.long_s)
