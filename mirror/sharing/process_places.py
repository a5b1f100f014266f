"""Identifies a process in one line, and decides whether the process of such a line is gone: by
Linux's information on processes of this machine.
"""

from __future__ import annotations

import os
from pathlib import Path

_PROCESSES = Path("/proc")


def own_place() -> str:
    """This process's line; empty where the system does not identify it."""
    machine, started = _machine(), _started(os.getpid())
    return f"{machine}/{os.getpid()}/{started}" if machine and started else ""


def is_gone(place: str) -> bool:
    """True when the process is known to have ended. A process of another machine or container is
    never known to have.
    """
    machine, _, process = place.rpartition("/")[0].rpartition("/")
    started = place.rpartition("/")[2]
    if not machine or machine != _machine() or not process.isdecimal():
        return False
    return _started(int(process)) != started


def _machine() -> str:
    """This boot of this machine and its namespace of processes; empty where the system does not
    identify them.
    """
    try:
        boot = (_PROCESSES / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}/{os.readlink(_PROCESSES / 'self/ns/pid')}"
    except OSError:
        return ""


def _started(process_id: int) -> str:
    """The start time of a process in ticks since the boot; empty when there is no such process or
    it has ended.
    """
    try:
        status = (_PROCESSES / str(process_id) / "stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""
    fields = status.rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]
