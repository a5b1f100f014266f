"""Reads from /proc what processes and the machine have used: CPU seconds, resident memory, and the
load of other programs.

Every process that the benchmark starts is its descendant. CPU time outside this process tree is the
load of other programs ("other"), and time that the host withheld is "steal". Read a figure together
with these two.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
BYTES_PER_KIB = 1024
_PARENT, _USER, _SYSTEM, _ENDED_CHILDREN_USER, _ENDED_CHILDREN_SYSTEM = 1, 11, 12, 13, 14
"""Field positions in /proc/PID/stat after the command's closing bracket, proc(5)."""
_IDLE, _IO_WAIT, _STEAL = 3, 4, 7
"""Field positions in the first line of /proc/stat, proc(5)."""
_COUNTED = 8
"""The number of fields that are counted: guest time, which follows, is already part of user
time.
"""


class Memory(NamedTuple):
    """Resident bytes now, and their maximum so far."""

    resident_bytes: int
    peak_bytes: int


@dataclass(slots=True)
class Usage:
    """The CPU used in one period of work; complete when the period is over."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    other_cores: float = 0.0
    steal_cores: float = 0.0


@contextmanager
def metered(pid: int) -> Iterator[Usage]:
    """Measure the block: the CPU of process `pid`, and the load that other programs put on the
    machine.
    """
    usage = Usage()
    began, cpu_before, tree_before, machine_before = time.monotonic(), cpu_s(pid), tree_cpu_s(), _machine()
    yield usage
    usage.wall_s = time.monotonic() - began
    usage.cpu_s = cpu_s(pid) - cpu_before
    machine = _machine()
    others_s = machine.busy_s - machine_before.busy_s - (tree_cpu_s() - tree_before)
    usage.other_cores = max(0.0, others_s / usage.wall_s)
    usage.steal_cores = (machine.steal_s - machine_before.steal_s) / usage.wall_s


def cpu_s(pid: int) -> float:
    """CPU seconds, user and system, of a process since it started. FileNotFoundError when there is
    none.
    """
    fields = _stat_fields(pid)
    return (int(fields[_USER]) + int(fields[_SYSTEM])) / TICKS_PER_S


def memory(pid: int) -> Memory:
    """The memory of a process. FileNotFoundError when there is none."""
    return parse_memory(Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace"))


def parse_memory(status: str) -> Memory:
    """The memory that the text of /proc/PID/status shows."""
    kib = {}
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name in ("VmRSS", "VmHWM"):
            kib[name] = int(value.split()[0])
    return Memory(kib["VmRSS"] * BYTES_PER_KIB, kib["VmHWM"] * BYTES_PER_KIB)


def tree_cpu_s() -> float:
    """CPU seconds of this process and all its descendants, including ended ones that were waited
    for.
    """
    parents: dict[int, int] = {}
    used: dict[int, float] = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            fields = _stat_fields(int(entry))
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended during the loop; its parent has its time
        parents[int(entry)] = int(fields[_PARENT])
        ticks = sum(int(fields[at]) for at in (_USER, _SYSTEM, _ENDED_CHILDREN_USER, _ENDED_CHILDREN_SYSTEM))
        used[int(entry)] = ticks / TICKS_PER_S
    return sum(used[pid] for pid in descendants(os.getpid(), parents) if pid in used)


def descendants(root: int, parents: dict[int, int]) -> set[int]:
    """`root` and its descendants, by the parent of each process."""
    found = {root}
    while True:
        more = {pid for pid, parent in parents.items() if parent in found and pid not in found}
        if not more:
            return found
        found |= more


class _Machine(NamedTuple):
    busy_s: float
    steal_s: float


def _machine() -> _Machine:
    with Path("/proc/stat").open(encoding="ascii") as file:
        ticks = [int(field) for field in file.readline().split()[1 : _COUNTED + 1]]
    busy = sum(ticks) - ticks[_IDLE] - ticks[_IO_WAIT] - ticks[_STEAL]
    return _Machine(busy / TICKS_PER_S, ticks[_STEAL] / TICKS_PER_S)


def _stat_fields(pid: int) -> list[str]:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    return text.rpartition(")")[2].split()
