"""Measurements of processes, read from /proc."""

from __future__ import annotations

import os

from bench.measuring.processes import Memory, cpu_s, descendants, memory, metered, parse_memory, tree_cpu_s


def test_resident_and_peak_memory_are_read_in_bytes() -> None:
    status = "Name:\tbroker\nVmPeak:\t  999 kB\nVmHWM:\t  200 kB\nVmRSS:\t  100 kB\nThreads:\t1\n"
    assert parse_memory(status) == Memory(102_400, 204_800)


def test_descendants_are_found_at_any_depth_and_strangers_are_not() -> None:
    parents = {1: 0, 10: 1, 11: 10, 12: 11, 20: 1, 21: 20}
    assert descendants(10, parents) == {10, 11, 12}


def test_the_own_process_has_memory_and_time() -> None:
    assert memory(os.getpid()).resident_bytes > 1_000_000
    assert 0 < cpu_s(os.getpid()) <= tree_cpu_s()


def test_a_metered_block_knows_the_cpu_that_it_burnt() -> None:
    before = cpu_s(os.getpid())
    with metered(os.getpid()) as usage:
        while cpu_s(os.getpid()) < before + 0.1:
            sum(range(1000))
    assert usage.cpu_s >= 0.05
    assert usage.wall_s > 0
