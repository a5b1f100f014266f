"""`python -m tests.sim --seed N` replays one seed with its history; `--count N` plays many on all
cores and reports the first that fails; `--mutants` finds seeds that catch deliberate defects.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.sim.campaign import play_many, seed_that_catches, tell_failure
from tests.sim.fixed_order import ensure_fixed_order
from tests.sim.links.mutants import LINK_MUTANTS
from tests.sim.mutants import MUTANTS
from tests.sim.seed_run import Kind
from tests.sim.simulation import play
from tests.sim.transaction_mutants import TRANSACTION_MUTANTS

FAILURES_TOLD_MAX = 3


def main() -> int:
    """Run the command line. Returns 1 if an invariant was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this seed and tell its whole history")
    parser.add_argument("--faults", type=int, help="with --seed: only so many of its first faults")
    parser.add_argument("--count", type=int, default=2000, help="how many seeds to play")
    parser.add_argument("--kind", type=Kind, default=Kind.REPLICATION, help="replication, transactions or links")
    parser.add_argument("--first", type=int, default=1, help="the first seed of many")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes to play them in")
    parser.add_argument(
        "--mutants", action="store_true", help="the kind's mutants, and the first seed that catches each"
    )
    options = parser.parse_args()
    ensure_fixed_order()
    if options.mutants:
        return find_seeds_of_mutants(options.kind, range(options.first, options.first + options.count))
    if options.seed is not None:
        outcome = play(options.seed, options.kind, is_told=True, faults_max=options.faults)
        print(
            f"\n{outcome.plan}\n{outcome.steps} steps, {outcome.virtual_s:.1f} s, {outcome.faults} faults, digest {outcome.digest:08x}"
        )
        for violation in outcome.violations:
            print(f"BROKEN {violation}")
        return int(not outcome.is_sound)
    began_s = time.perf_counter()
    summary = play_many(range(options.first, options.first + options.count), options.kind, jobs=options.jobs)
    print(f"{summary} in {time.perf_counter() - began_s:.0f} s")
    for seed in summary.failed[:FAILURES_TOLD_MAX]:
        tell_failure(seed, options.kind)
    return int(bool(summary.failed))


def find_seeds_of_mutants(kind: Kind, seeds: range) -> int:
    """Print a seed for each mutant; 1 when one is not caught."""
    missed = 0
    for mutant in (*MUTANTS, *TRANSACTION_MUTANTS, *LINK_MUTANTS):
        if mutant.kind is kind:
            seed = seed_that_catches(mutant, seeds)
            missed += not seed
            print(f"{seed or 'no seed'}: {mutant.title}", flush=True)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
