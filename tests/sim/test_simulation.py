"""A few seeds of the simulation for every run of the tests; `make sim` plays thousands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.campaign import story_of
from tests.sim.simulation import Kind, play

pytestmark = pytest.mark.timeout(900)  # of a machine that others use too

ROOT = Path(__file__).resolve().parents[2]
FIRST_SEEDS = [
    *((Kind.REPLICATION, seed) for seed in range(1, 13)),
    *((Kind.TRANSACTIONS, seed) for seed in range(1, 7)),
]
ONCE_FAILED = [
    (Kind(line.split()[0]), int(line.split()[1]))
    for line in (Path(__file__).parent / "seeds.txt").read_text().splitlines()
    if line
]


@pytest.mark.parametrize(("kind", "seed"), [*FIRST_SEEDS, *ONCE_FAILED])
def test_no_invariant_breaks_and_the_healed_site_becomes_whole(kind: Kind, seed: int) -> None:
    if not play(seed, kind).is_sound:
        pytest.fail(story_of(seed, kind))


@pytest.mark.parametrize("kind", Kind)
def test_a_seed_plays_the_same_history_in_any_process(kind: Kind) -> None:
    seed = 4
    digest = play(seed, kind).digest
    program = f"from tests.sim.simulation import Kind, play; print(play({seed}, Kind('{kind.value}')).digest)"
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    found = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    assert int(found.stdout) == digest == play(seed, kind).digest
