"""Sets when a daemon collects garbage: rarely, in small portions, and completely only when the
number of objects has doubled.

A full collection examines every object and blocks every thread: for 30 to 100 ms in a process that
has loaded gRPC and the protocol's tables, and for 600 ms in a broker with 10,000 partitions. So
objects that survive a full collection are frozen (`gc.freeze`), and the next one examines newer
objects only. Unreachable cycles among frozen objects stay in memory until the number of frozen
objects has doubled; then one collection examines all of them.
"""

from __future__ import annotations

import gc
from typing import Final

YOUNG_OBJECTS_MAX: Final = 20_000
"""Number of new objects before a collection. With Python's default of 700, a broker that starts
with 10,000 partitions would examine all its objects eight times, and block its event loop for up to
0.2 s each time. With 5,000, collections took each broker and mirror 60 ms of CPU around a move of
10,000 partitions, because most new objects live until the move has ended; with 50,000 they took 15
ms, but up to 44 ms at a time.
"""
MIDDLE_LOOKS: Final = 3
FULL_LOOKS: Final = 2
"""Number of collections of the second generation before a full one; `MIDDLE_LOOKS` is the number of
the first generation before one of the second.
"""
OBJECTS_LEFT_ALONE_MIN: Final = 1_000_000
"""Below this number of frozen objects, no collection examines all objects."""
_OLDEST: Final = 2


class SurvivorsLeftAlone:
    """Called by the collector before and after each collection."""

    def __init__(self) -> None:
        self.left_alone = 0
        """Number of frozen objects as of the last count, and all that were frozen since."""
        self._all_at_last_look = 0
        self._is_look_at_all = False

    def __call__(self, phase: str, details: dict[str, int]) -> None:
        """Before a full collection, decide whether it examines frozen objects; after it, freeze the
        survivors.
        """
        if details["generation"] != _OLDEST:
            return
        if phase == "start":
            self._is_look_at_all = self._are_too_many()
            if self._is_look_at_all:
                gc.unfreeze()
            return
        survivors = len(gc.get_objects(generation=_OLDEST))
        self.left_alone = survivors if self._is_look_at_all else self.left_alone + survivors
        if self._is_look_at_all:
            self._all_at_last_look = survivors
        gc.freeze()

    def _are_too_many(self) -> bool:
        """True when the frozen objects have doubled. A count takes 10 ms for a million objects, so
        they are counted only when that is possible: most objects that a busy broker freezes do not
        live long, and without a count each move of a link would lead to a look at all objects.
        """
        limit = max(2 * self._all_at_last_look, OBJECTS_LEFT_ALONE_MIN)
        if self.left_alone >= limit:
            self.left_alone = gc.get_freeze_count()
        return self.left_alone >= limit

    def begin(self) -> None:
        """Examine the objects that are not frozen, and freeze the survivors."""
        gc.collect()
        # Python delays a full collection until new objects are a quarter of the survivors of the
        # last one. This second collection has almost no survivors, so the next one is not delayed
        gc.collect()
        self.left_alone = self._all_at_last_look = gc.get_freeze_count()


IMPORTED_OBJECTS: Final = 500_000
"""Twice as many objects as the imports of any command make."""


def expect_no_garbage() -> None:
    """Postpone collections during imports. Imported objects live as long as the process, and
    without this call two hundred collections would examine them.
    """
    gc.set_threshold(IMPORTED_OBJECTS)


_survivors = SurvivorsLeftAlone()


def look_for_garbage_rarely() -> None:
    """Freeze what the imports have made, and set the thresholds; call this before the daemon
    creates its objects.
    """
    # without a collection: almost all imported objects stay, and to examine them delays the start
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS_MAX, MIDDLE_LOOKS, FULL_LOOKS)
    if _survivors not in gc.callbacks:
        gc.callbacks.append(_survivors)


def leave_startup_objects_alone() -> None:
    """Freeze the tables that the start has made, which live as long as the process. Call this when
    the process is ready.
    """
    _survivors.begin()
