"""Touches free memory just before a load, so that neither product pays for the host's page faults.

A virtual machine's host may reclaim free memory and return it only when it is touched. This costs
two CPU seconds a GB in the process that first writes to a page of the page cache: ten times the
cost of the write itself. Touching more than the load will need gives both products the same start.
On a machine with its own memory this takes a moment and has no effect.
"""

from __future__ import annotations

import mmap
from pathlib import Path

MARGIN = 3
"""Factor by which the touched memory exceeds the load: the host begins to reclaim memory after two
seconds.
"""
AVAILABLE_SHARE = 0.5
"""The largest share of the available memory that is touched."""
BYTES_PER_KIB = 1024


def touch_free_memory(load_bytes: float) -> None:
    """Touch free memory for a load of this size and release it, up to half of the available
    memory.
    """
    size = int(min(load_bytes * MARGIN, available_bytes() * AVAILABLE_SHARE))
    size -= size % mmap.PAGESIZE
    if size <= 0:
        return
    with mmap.mmap(-1, size) as memory:
        memory[:: mmap.PAGESIZE] = b"\1" * (size // mmap.PAGESIZE)


def available_bytes() -> int:
    """The memory that programs could use now."""
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * BYTES_PER_KIB
    return 0
