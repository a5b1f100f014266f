"""The common part of all kinds of runs: a run plays a seed from its beginning to its end, checks
the invariants after every step, and sums up the outcome.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest.mock import patch

from broker.assembly import replication
from broker.replication.core.partition_effects import Effects
from broker.replication.hosted_partition import HostedPartition
from broker.replication.replicas import Replicas
from runtime.invariants import InvariantBroken
from tests.sim.world import Violation, World

STEPS_MAX = 3_000_000


class Kind(enum.Enum):
    """The simulation of one seed."""

    REPLICATION = "replication"
    """Producers and consumers of one site."""
    TRANSACTIONS = "transactions"
    """Transactional producers and readers of committed records too."""
    LINKS = "links"
    """Two sites with a link between them, an arbiter, mirrors, and playbooks."""


@dataclass(slots=True)
class Outcome:
    """The result of one seed."""

    plan: object
    violations: list[Violation]
    history: list[str]
    digest: int
    steps: int
    acknowledged: int
    read: int
    virtual_s: float
    faults: int
    transactions: int = 0
    moves: int = 0
    """How often the active site of a link changed."""
    lost: int = 0
    """Acknowledged batches that are in the quarantine and in an account."""
    counts: dict[str, int] = field(default_factory=dict)

    @property
    def is_sound(self) -> bool:
        """True if every invariant held."""
        return not self.violations

    @property
    def has_broken_promise(self) -> bool:
        """True if the first invariant that did not hold is another one than `no-defect`."""
        return bool(self.violations) and self.violations[0].invariant != "no-defect"


class SeedRun(ABC):
    """The run of one seed. Each kind plays it in its way."""

    def __init__(self, world: World) -> None:
        self.world = world

    @abstractmethod
    def play(self) -> None:
        """Play the seed from the start of the processes to the last check."""

    @abstractmethod
    def outcome(self) -> Outcome:
        """The result of the run."""

    def run(self) -> Outcome:
        """Play the seed."""
        world = self.world
        with world.doors(), self._checked_partitions():
            try:
                self.play()
            except RecursionError as error:
                world.violate("no-defect", repr(error))
            finally:
                world.loop.end()
        return self.outcome()

    @contextmanager
    def _checked_partitions(self) -> Iterator[None]:
        """Check the invariants of a partition's machine whenever the broker acts on its effects."""
        world = self.world

        class CheckedReplicas(Replicas):
            def act(self, hosted: HostedPartition, effects: Effects, *, appended_bytes: int = 0) -> None:
                try:
                    hosted.state.check_invariants()
                except InvariantBroken as broken:
                    world.violate("partition-is-sound", f"{hosted.topic}-{hosted.index}: {broken}")
                super().act(hosted, effects, appended_bytes=appended_bytes)

        # where the broker makes them: compiled code calls the methods of its own classes directly
        with patch.object(replication, "Replicas", CheckedReplicas):
            yield

    def check(self) -> None:  # noqa: B027  (most kinds check in the step itself)
        """Look at what must hold after every step."""

    def is_broken(self) -> bool:
        """True if an invariant is broken."""
        loop = self.world.loop
        self.check()
        if loop.failures:
            self.world.violate("no-defect", "; ".join(loop.failures))
            loop.failures.clear()
        if loop.steps > STEPS_MAX:
            self.world.violate("progress", f"{loop.steps} steps at {loop.now_s:.1f} s: something turns in circles")
        return bool(self.world.violations)

    def run_for(self, seconds: float, is_over: Callable[[], bool] = lambda: False) -> None:
        """Let virtual time pass, until something is broken or `is_over`."""
        until_s = self.world.loop.now_s + seconds
        self.world.loop.run(until_s, lambda: self.is_broken() or is_over())
