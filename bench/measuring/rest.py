"""Waits until processes have ended the work of their start, which is no cost of an idle pair."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from bench.measuring.processes import cpu_s
from runtime.process import OperationalFailure

WINDOW_S: Final = 5.0
WINDOWS: Final = 4
CORES_ALIKE: Final = 0.02
"""Windows are alike if their figures differ by no more than this number of cores: regular checks
are not in each of them.
"""


def are_alike(cores: Sequence[float]) -> bool:
    """True if the last windows show no work that ends."""
    last = cores[-WINDOWS:]
    return len(last) == WINDOWS and max(last) - min(last) <= CORES_ALIKE


def wait_at_rest(
    pids: Sequence[int],
    *,
    within_s: float,
    cpu: Callable[[int], float] = cpu_s,
    now: Callable[[], float] = time.monotonic,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Wait until the busiest of the processes takes the same CPU in each of the last windows.
    Raises OperationalFailure if the time is over.
    """
    began, cores = now(), deque[float](maxlen=WINDOWS)
    while not are_alike(list(cores)):
        if now() - began > within_s:
            named = ", ".join(f"{one:.3f}" for one in cores)
            raise OperationalFailure(
                f"the processes are not at rest after {within_s:g} s: the busiest takes {named} cores"
            )
        before, at = {pid: cpu(pid) for pid in pids}, now()
        pause(WINDOW_S)
        cores.append(max(cpu(pid) - before[pid] for pid in pids) / (now() - at))
