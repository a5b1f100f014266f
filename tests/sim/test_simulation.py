"""A few seeds of the simulation for every run of the tests; `make sim` plays thousands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.campaign import digest_of, story_when_broken
from tests.sim.fixed_order import FIXED, VARIABLE, in_fixed_order
from tests.sim.seed_run import Kind

pytestmark = pytest.mark.timeout(900)  # of a machine that others use too

ROOT = Path(__file__).resolve().parents[2]
SHORT_SEEDS = {Kind.REPLICATION: range(1, 7), Kind.TRANSACTIONS: (2, 6), Kind.LINKS: (1, 2)}
"""Of the first dozen seeds of each kind, those that every run plays: their histories are short."""
FIRST_SEEDS = [
    pytest.param(kind, seed, marks=() if seed in SHORT_SEEDS[kind] else pytest.mark.long)
    for kind in Kind
    for seed in range(1, 13)
]
ONCE_FAILED = [
    (Kind(line.split()[0]), int(line.split()[1]))
    for line in (Path(__file__).parent / "seeds.txt").read_text().splitlines()
    if line
]


@pytest.mark.parametrize(("kind", "seed"), [*FIRST_SEEDS, *ONCE_FAILED])
def test_no_invariant_breaks_and_the_healed_site_becomes_whole(kind: Kind, seed: int) -> None:
    broken = in_fixed_order(story_when_broken, seed, kind)
    if broken:
        pytest.fail(broken)


@pytest.mark.parametrize(
    "kind", [pytest.param(kind, marks=pytest.mark.long) if kind is Kind.TRANSACTIONS else kind for kind in Kind]
)
def test_a_seed_plays_the_same_history_in_any_process(kind: Kind) -> None:
    seed = SHORT_SEEDS[kind][0]
    imports = "from tests.sim.seed_run import Kind; from tests.sim.campaign import digest_of"
    hash_seed = FIXED if kind is Kind.LINKS else "77"
    found = subprocess.run(
        [sys.executable, "-c", f"{imports}; print(digest_of({seed}, Kind('{kind.value}')))"],
        cwd=ROOT,
        env={**os.environ, VARIABLE: hash_seed},
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    assert int(found.stdout) == in_fixed_order(digest_of, seed, kind)
