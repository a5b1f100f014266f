"""Plays many seeds on several cores and sums up the results; shortens the history of a failed
seed.
"""

from __future__ import annotations

import multiprocessing
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial

from tests.sim.mutants import Mutant
from tests.sim.seed_run import Kind, Outcome
from tests.sim.simulation import play

LINES_TOLD_MAX = 120
SEEDS_BETWEEN_LINES = 250


@dataclass(slots=True)
class Summary:
    """The results of many seeds."""

    seeds: int = 0
    steps: int = 0
    faults: int = 0
    acknowledged: int = 0
    transactions: int = 0
    moves: int = 0
    lost: int = 0
    virtual_s: float = 0.0
    failed: list[int] = field(default_factory=list)
    invariants: Counter[str] = field(default_factory=Counter)

    def add(self, seed: int, outcome: Outcome) -> None:
        """Add one result."""
        self.seeds += 1
        self.steps += outcome.steps
        self.faults += outcome.faults
        self.acknowledged += outcome.acknowledged
        self.transactions += outcome.transactions
        self.moves += outcome.moves
        self.lost += outcome.lost
        self.virtual_s += outcome.virtual_s
        if not outcome.is_sound:
            self.failed.append(seed)
            self.invariants[outcome.violations[0].invariant] += 1

    def __str__(self) -> str:
        reported = (
            f"{self.seeds} seeds, {self.virtual_s / 3600:.1f} virtual hours, {self.steps} steps, {self.faults} faults, "
            f"{self.acknowledged} acknowledged batches, {self.transactions} transactions, {self.moves} moves of a link, "
            f"{self.lost} batches lost and accounted"
        )
        return (
            f"{reported}; failed: {sorted(self.failed)} {dict(self.invariants)}"
            if self.failed
            else f"{reported}; all sound"
        )


def _play(seed: int, kind: Kind) -> tuple[int, Outcome]:
    outcome = play(seed, kind)
    outcome.history = []
    return seed, outcome


def play_many(seeds: Iterable[int], kind: Kind, *, jobs: int) -> Summary:
    """Play the seeds; the order of their ends does not matter."""
    summary = Summary()
    if jobs <= 1:
        for seed in seeds:
            summary.add(*_play(seed, kind))
        return summary
    with multiprocessing.get_context("forkserver").Pool(jobs, maxtasksperchild=200) as pool:
        for seed, outcome in pool.imap_unordered(partial(_play, kind=kind), seeds, chunksize=2):
            summary.add(seed, outcome)
            if not outcome.is_sound:
                print(f"seed {seed}: {outcome.violations[0]}", flush=True)
            if summary.seeds % SEEDS_BETWEEN_LINES == 0:
                print(summary, flush=True)
    summary.failed.sort()
    return summary


def story_of(seed: int, kind: Kind) -> str:
    """The end of a failing seed's history under as few of its first faults as still break
    something, and how to replay it.
    """
    outcome = play(seed, kind)
    faults = outcome.faults
    for fewer in range(faults):
        shorter = play(seed, kind, faults_max=fewer)
        if not shorter.is_sound:
            outcome, faults = shorter, fewer
            break
    lines = outcome.history[-LINES_TOLD_MAX:]
    broken = "\n".join(f"BROKEN {violation}" for violation in outcome.violations)
    return (
        f"seed {seed}, {outcome.plan}\n"
        + "\n".join(lines)
        + f"\n{broken}\nreplay: make sim SEED={seed} KIND={kind.value}"
        + (f" FAULTS={faults}" if faults < outcome.faults else "")
    )


def seed_that_catches(mutant: Mutant, seeds: Iterable[int]) -> int:
    """The first of the seeds under which the defect breaks a promise; 0 when none does.

    An exception alone does not count: it may be one of the substitute, which no longer fits what it
    replaces.
    """
    with mutant.in_force():
        return next((seed for seed in seeds if play(seed, mutant.kind).has_broken_promise), 0)


def story_when_broken(seed: int, kind: Kind) -> str:
    """The story of a seed that breaks an invariant; empty for one that does not."""
    return "" if play(seed, kind).is_sound else story_of(seed, kind)


def digest_of(seed: int, kind: Kind) -> int:
    """The digest of a seed's history."""
    return play(seed, kind).digest


def tell_failure(seed: int, kind: Kind) -> None:
    """Print the failure, without the other output of the world."""
    print(story_of(seed, kind), flush=True)
