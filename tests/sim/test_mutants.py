"""The simulation has teeth: every deliberate defect breaks an invariant, with a known seed and
within a bounded number of seeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count, islice

import pytest

from tests.sim.campaign import seed_that_catches
from tests.sim.fixed_order import in_fixed_order
from tests.sim.links.mutants import LINK_MUTANTS
from tests.sim.links.plan import LinkPlan
from tests.sim.mutants import MUTANTS, Mutant
from tests.sim.seed_run import Kind
from tests.sim.transaction_mutants import TRANSACTION_MUTANTS

pytestmark = pytest.mark.timeout(900)  # of a machine that others use too

ALL = (*MUTANTS, *TRANSACTION_MUTANTS, *LINK_MUTANTS)
SEARCHED_MAX = 100
"""Seeds that are played if the known one does not catch the defect."""


def is_caught(number: int) -> bool:
    """True if the mutant's known seed, or one of the first seeds like it, breaks an invariant."""
    mutant = ALL[number]
    return bool(seed_that_catches(mutant, (mutant.known_seed, *islice(seeds_like(mutant), SEARCHED_MAX))))


def seeds_like(mutant: Mutant) -> Iterator[int]:
    """Seeds from the first one on; of two sites those that play the story of the known seed on a
    link of its kind.
    """
    wanted = LinkPlan.of(mutant.known_seed).sort
    return (seed for seed in count(1) if mutant.kind is not Kind.LINKS or LinkPlan.of(seed).sort == wanted)


def seed_found(number: int) -> int:
    """The first seed that catches the mutant."""
    mutant = ALL[number]
    return seed_that_catches(mutant, range(1, mutant.seeds_max + 1))


@pytest.mark.parametrize(
    "mutant", [pytest.param(one, marks=pytest.mark.long if one.is_long else (), id=one.title) for one in ALL]
)
def test_a_broken_decision_breaks_an_invariant(mutant: Mutant) -> None:
    advice = "`python -m tests.sim --mutants` finds another one"
    assert in_fixed_order(is_caught, ALL.index(mutant)), f"no seed notices it: {advice}"


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.title)
def test_a_broken_decision_is_found_without_knowing_the_seed(mutant: Mutant) -> None:
    assert in_fixed_order(seed_found, ALL.index(mutant)), "no seed noticed it"
