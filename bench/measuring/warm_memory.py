"""Free memory that the machine really has: touched just before a load, so that no side pays for the
host's page faults.

A virtual machine's host may take free memory back and give it again only when it is touched, at a
cost of two CPU seconds a GB, which lands on whichever process writes to a new page of the page
cache: ten times what the write itself takes. Touching more than the load will need makes both sides
begin alike. Where memory is the machine's own this takes a moment and changes nothing.
"""

from __future__ import annotations

import mmap
from pathlib import Path

MARGIN = 3
"""Number of times that the load is touched: the host begins to take memory back after two seconds.
"""
AVAILABLE_SHARE = 0.5
"""The largest share of the available memory that is touched."""
BYTES_PER_KIB = 1024


def touch_free_memory(load_bytes: float) -> None:
    """Touch free memory for a load of this size and give it back, as far as half of what is
    available goes.
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
