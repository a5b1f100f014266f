"""A few seeds of the simulation for every run of the tests; `make sim` plays thousands."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sim.campaign import story_of
from tests.sim.simulation import play

pytestmark = pytest.mark.timeout(900)  # of a machine that others use too

ROOT = Path(__file__).resolve().parents[2]
SEEDS = range(1, 13)
ONCE_FAILED = tuple(
    int(line.split()[0]) for line in (Path(__file__).parent / "seeds.txt").read_text().splitlines() if line
)


@pytest.mark.parametrize("seed", [*SEEDS, *ONCE_FAILED])
def test_no_invariant_breaks_and_the_healed_site_becomes_whole(seed: int) -> None:
    if not play(seed).is_sound:
        pytest.fail(story_of(seed))


def test_a_seed_plays_the_same_history_in_any_process() -> None:
    seed = 4
    digest = play(seed).digest
    program = f"from tests.sim.simulation import play; print(play({seed}).digest)"
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
    assert int(found.stdout) == digest == play(seed).digest
