"""Sets when a daemon collects garbage: rarely, in small portions, and completely only when the
number of objects has doubled.

A full collection goes through every object that there is and holds every thread meanwhile: 30 to
100 ms in a process that has loaded gRPC and the protocol's tables, and 600 ms once a broker has
made 10,000 partitions. So what survives a full collection is left alone from then on: the next one
goes through what is newer only, and comes early enough to stay short. Cycles of objects that were
left alone and died since stay until as many objects were left alone as there were at the last look
through all of them.
"""

from __future__ import annotations

import gc
from typing import Final

YOUNG_OBJECTS_MAX: Final = 5_000
"""Number of new objects after which garbage is looked for. By default 700: a broker that starts
with 10,000 partitions would then go through all its objects eight times, and hold its loop for up
to 0.2 s each time.
"""
MIDDLE_LOOKS: Final = 3
FULL_LOOKS: Final = 2
"""A full collection comes after so many of the second generation, each of them after so many of the
first.
"""
OBJECTS_LEFT_ALONE_MIN: Final = 1_000_000
"""Number of objects below which doubling is no reason to look through all."""
_OLDEST: Final = 2


class SurvivorsLeftAlone:
    """Called by the collector before and after each collection."""

    def __init__(self) -> None:
        self.left_alone = 0
        """Objects that full collections pass over; those that are gone since count too."""
        self._all_at_last_look = 0
        self._is_look_at_all = False

    def __call__(self, phase: str, details: dict[str, int]) -> None:
        """Decide before a full collection what it examines; leave the survivors alone after it."""
        if details["generation"] != _OLDEST:
            return
        if phase == "start":
            self._is_look_at_all = self.left_alone >= max(2 * self._all_at_last_look, OBJECTS_LEFT_ALONE_MIN)
            if self._is_look_at_all:
                gc.unfreeze()
            return
        survivors = len(gc.get_objects(generation=_OLDEST))
        self.left_alone = survivors if self._is_look_at_all else self.left_alone + survivors
        if self._is_look_at_all:
            self._all_at_last_look = survivors
        gc.freeze()

    def begin(self) -> None:
        """Look through all that there is now, and leave it alone."""
        self.left_alone, self._all_at_last_look = OBJECTS_LEFT_ALONE_MIN, 0
        gc.collect()
        # the collector puts off a full collection until there are a quarter as many new objects as
        # survived the last one: this one has next to none
        gc.collect()


IMPORTED_OBJECTS: Final = 500_000
"""Twice as many objects as the imports of any command make."""


def expect_no_garbage() -> None:
    """Postpone collections. Call it before modules are imported: the objects that they make live as
    long as the process, and two hundred collections would look through them.
    """
    gc.set_threshold(IMPORTED_OBJECTS)


_survivors = SurvivorsLeftAlone()


def look_for_garbage_rarely() -> None:
    """Set the thresholds; call this before the daemon creates its objects."""
    gc.set_threshold(YOUNG_OBJECTS_MAX, MIDDLE_LOOKS, FULL_LOOKS)
    if _survivors not in gc.callbacks:
        gc.callbacks.append(_survivors)


def leave_startup_objects_alone() -> None:
    """Collections need not look again at the modules and tables that live as long as the process:
    to be called when it is ready.
    """
    _survivors.begin()
