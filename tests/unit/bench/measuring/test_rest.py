"""When processes count as idle."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from bench.measuring.rest import WINDOW_S, wait_at_rest
from runtime.process import OperationalFailure


class Machine:
    """Two processes, of which the second one takes these cores in each window."""

    def __init__(self, *cores: float) -> None:
        self.windows = 0
        self.now_s = self.used_s = 0.0
        self._cores: Iterator[float] = iter(cores)

    def cpu(self, pid: int) -> float:
        return self.used_s if pid == 2 else 0.01 * self.now_s

    def now(self) -> float:
        return self.now_s

    def pause(self, seconds: float) -> None:
        self.windows += 1
        self.now_s += seconds
        self.used_s += next(self._cores) * seconds

    def wait(self, within_s: float = 1_000.0) -> int:
        """The number of windows until the processes are at rest."""
        wait_at_rest([1, 2], within_s=within_s, cpu=self.cpu, now=self.now, pause=self.pause)
        return self.windows


def test_the_work_of_the_start_has_to_end_first() -> None:
    assert Machine(0.9, 0.5, 0.2, 0.05, 0.06, 0.05, 0.06, 0.05).wait() == 7


def test_a_peak_counts_until_it_is_outside_the_last_windows() -> None:
    assert Machine(0.05, 0.05, 0.3, 0.05, 0.05, 0.05, 0.05).wait() == 7


def test_steady_work_is_rest_however_much_it_is() -> None:
    assert Machine(0.5, 0.5, 0.5, 0.5).wait() == 4


def test_processes_that_never_rest_are_an_error_with_their_figures() -> None:
    with pytest.raises(OperationalFailure, match=r"not at rest after 30 s: the busiest takes .*0\.500"):
        Machine(*[0.1, 0.5] * 20).wait(within_s=6 * WINDOW_S)
