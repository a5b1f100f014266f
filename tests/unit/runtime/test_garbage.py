"""Full collections of garbage are short however many objects a daemon has, and no garbage stays for
ever.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from runtime import garbage
from runtime.garbage import SurvivorsLeftAlone

CYCLES = 1_000


class Cycle:
    """An object that only a collection frees."""

    def __init__(self) -> None:
        self.itself = self


@pytest.fixture
def survivors() -> Iterator[SurvivorsLeftAlone]:
    """The only active one during the test: another test may have started one, as a daemon does. The
    objects of other tests, a million or more, are frozen, so that collections take no seconds.
    """
    gc.freeze()
    found, before = SurvivorsLeftAlone(), list(gc.callbacks)
    gc.callbacks[:] = [*(callback for callback in before if not isinstance(callback, SurvivorsLeftAlone)), found]
    try:
        yield found
    finally:
        gc.callbacks[:] = before
        gc.unfreeze()


def is_looked_at(one: object) -> bool:
    """Whether a full collection would go through the object."""
    return any(found is one for found in gc.get_objects())


def test_a_full_collection_passes_over_what_survived_an_earlier_one(survivors: SurvivorsLeftAlone) -> None:
    survivors.begin()
    old = Cycle()
    gc.collect()
    assert not is_looked_at(old)
    young = Cycle()
    assert is_looked_at(young)


def test_objects_that_are_frozen_before_the_beginning_are_not_examined(survivors: SurvivorsLeftAlone) -> None:
    seen = weakref.ref(Cycle())
    gc.freeze()
    survivors.begin()
    assert seen() is not None
    assert survivors.left_alone == gc.get_freeze_count()


def test_garbage_that_survived_no_collection_goes_with_the_next(survivors: SurvivorsLeftAlone) -> None:
    survivors.begin()
    seen = weakref.ref(Cycle())
    gc.collect()
    assert seen() is None


def test_garbage_among_what_was_left_alone_goes_once_the_objects_have_doubled(
    survivors: SurvivorsLeftAlone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "OBJECTS_LEFT_ALONE_MIN", 0)
    survivors.begin()
    old = Cycle()
    gc.collect()
    seen = weakref.ref(old)
    del old
    gc.collect()
    assert seen() is not None
    # as if the last look had been at few enough objects that these double the number
    survivors._all_at_last_look = (gc.get_freeze_count() + CYCLES) // 2
    alive = [Cycle() for _ in range(CYCLES)]
    gc.collect()
    assert seen() is not None
    gc.collect()
    assert seen() is None
    assert len(alive) > 0


def test_objects_that_were_freed_since_they_were_frozen_do_not_count(
    survivors: SurvivorsLeftAlone, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(garbage, "OBJECTS_LEFT_ALONE_MIN", 0)
    survivors.begin()
    old = Cycle()
    gc.collect()
    seen = weakref.ref(old)
    del old
    survivors._all_at_last_look = (gc.get_freeze_count() + CYCLES) // 2
    for _ in range(3):
        short_lived = [[number] for number in range(CYCLES)]
        gc.collect()
        del short_lived
    gc.collect()
    assert seen() is not None
