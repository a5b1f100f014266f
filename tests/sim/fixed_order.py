"""Seeds played in a process whose sets have one order.

The agents and the mirror iterate over sets of names, whose order depends on `PYTHONHASHSEED`, and
so does the history of a seed of two sites. `python -m tests.sim` therefore starts itself again with
a fixed one, and tests play such seeds in a worker process that has it.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections.abc import Callable
from functools import lru_cache
from multiprocessing.pool import Pool
from typing import Any, Final, TypeVar

Result = TypeVar("Result")

VARIABLE: Final = "PYTHONHASHSEED"
FIXED: Final = "0"


def ensure_fixed_order() -> None:
    """Start this program again unless its sets have the fixed order."""
    if os.environ.get(VARIABLE) != FIXED:
        arguments = [sys.executable, "-m", "tests.sim", *sys.argv[1:]]
        os.execve(sys.executable, arguments, {**os.environ, VARIABLE: FIXED})


def in_fixed_order(work: Callable[..., Result], *arguments: Any) -> Result:
    """The result of a function of a module, called in the worker."""
    return _worker().apply(work, arguments)


@lru_cache(maxsize=1)
def _worker() -> Pool:
    former = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = FIXED
    try:
        return multiprocessing.get_context("spawn").Pool(1)
    finally:
        if former is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = former
