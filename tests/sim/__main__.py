"""`python -m tests.sim --seed N` replays one seed with its history; `--count N` plays many on all
cores and tells the first that fails.
"""

from __future__ import annotations

import argparse
import os
import sys
import time

from tests.sim.campaign import play_many, tell_failure
from tests.sim.simulation import Kind, play

FAILURES_TOLD_MAX = 3


def main() -> int:
    """The command line; 1 when an invariant was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.sim", description=__doc__)
    parser.add_argument("--seed", type=int, help="replay this seed and tell its whole history")
    parser.add_argument("--faults", type=int, help="with --seed: only so many of its first faults")
    parser.add_argument("--count", type=int, default=2000, help="how many seeds to play")
    parser.add_argument("--kind", type=Kind, default=Kind.REPLICATION, help="replication or transactions")
    parser.add_argument("--first", type=int, default=1, help="the first seed of many")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes to play them in")
    options = parser.parse_args()
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


if __name__ == "__main__":
    sys.exit(main())
