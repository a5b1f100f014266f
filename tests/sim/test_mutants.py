"""The simulation has teeth: every deliberate defect breaks an invariant, with a known seed and
within a bounded number of seeds.
"""

from __future__ import annotations

import pytest

from tests.sim.campaign import seed_that_catches
from tests.sim.fixed_order import in_fixed_order
from tests.sim.links.mutants import LINK_MUTANTS
from tests.sim.mutants import MUTANTS, Mutant
from tests.sim.transaction_mutants import TRANSACTION_MUTANTS

pytestmark = pytest.mark.timeout(900)  # of a machine that others use too

ALL = (*MUTANTS, *TRANSACTION_MUTANTS, *LINK_MUTANTS)


SEARCHED_MAX = 150
"""Seeds that are played if the known one does not catch the defect."""


def is_caught(number: int) -> bool:
    """True if the mutant's known seed, or one of the first seeds, breaks an invariant."""
    mutant = ALL[number]
    return bool(seed_that_catches(mutant, (mutant.known_seed, *range(1, SEARCHED_MAX + 1))))


def seed_found(number: int) -> int:
    """The first seed that catches the mutant."""
    mutant = ALL[number]
    return seed_that_catches(mutant, range(1, mutant.seeds_max + 1))


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.title)
def test_a_broken_decision_breaks_an_invariant(mutant: Mutant) -> None:
    advice = "`python -m tests.sim --mutants` finds another one"
    assert in_fixed_order(is_caught, ALL.index(mutant)), f"no seed notices it: {advice}"


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.title)
def test_a_broken_decision_is_found_without_knowing_the_seed(mutant: Mutant) -> None:
    assert in_fixed_order(seed_found, ALL.index(mutant)), "no seed noticed it"
