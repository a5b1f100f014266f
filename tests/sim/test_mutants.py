"""The simulation has teeth: every deliberate defect breaks an invariant within a bounded number of
seeds.
"""

from __future__ import annotations

import pytest

from tests.sim.mutants import MUTANTS, Mutant
from tests.sim.simulation import play
from tests.sim.transaction_mutants import TRANSACTION_MUTANTS

pytestmark = pytest.mark.timeout(900)  # of a machine that others use too

ALL = (*MUTANTS, *TRANSACTION_MUTANTS)
SEARCHED_MAX = 150
"""Seeds that are played when the known one does not catch the defect any more."""


def seed_that_catches(mutant: Mutant) -> int:
    """A seed under which the defect breaks something, 0 when none does."""
    with mutant.in_force():
        for seed in (mutant.known_seed, *range(1, SEARCHED_MAX + 1)):
            if not play(seed, mutant.kind).is_sound:
                return int(seed)
    return 0


@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.title)
def test_a_broken_decision_breaks_an_invariant(mutant: Mutant) -> None:
    assert seed_that_catches(mutant), "no seed noticed it"


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("mutant", ALL, ids=lambda mutant: mutant.title)
def test_a_broken_decision_is_found_without_knowing_the_seed(mutant: Mutant) -> None:
    with mutant.in_force():
        assert any(not play(seed, mutant.kind).is_sound for seed in range(1, mutant.seeds_max + 1))
