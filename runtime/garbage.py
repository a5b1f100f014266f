"""When a daemon looks for garbage: rarely, and never again through what it was started with.

A full collection goes through every object that there is and holds the event loop meanwhile: 30 to 100 ms in a process that has loaded
gRPC, the protocol's tables and a few thousand partitions, which is longer than anything else such a loop ever does at once.
"""

from __future__ import annotations

import gc

YOUNG_OBJECTS_MAX = 10_000
"""After how many new objects garbage is looked for. By default 700: a broker that starts with 10,000 partitions would then go through all
its objects eight times, and hold its loop for up to 0.2 s each time."""


def look_for_garbage_rarely() -> None:
    """To be called before a daemon makes its objects."""
    gc.set_threshold(YOUNG_OBJECTS_MAX)


def leave_startup_objects_alone() -> None:
    """Collections need not look again at the modules and tables that live as long as the process: to be called when it is ready."""
    gc.collect()
    gc.freeze()
