"""The slots of a shared link that a daemon owns when its reading of the others' notes takes longer
than a session.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mirror.sharing.ownership import Ownership
from tests.support.clock import ManualClock

SESSION_MS = 6_000
SLOTS = frozenset({1, 2})


class Reading:
    """Takes longer than a session, each time."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.count = 0

    async def __call__(self) -> None:
        self.count += 1
        self._clock.advance(SESSION_MS + 1)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def reading(clock: ManualClock) -> Reading:
    return Reading(clock)


@pytest.fixture
def ownership(clock: ManualClock, reading: Reading) -> Ownership:
    return Ownership(session_timeout_ms=SESSION_MS, clock=clock, on_gain=reading)


async def test_slots_that_were_read_are_owned_with_the_next_answer_and_not_read_again(
    clock: ManualClock, ownership: Ownership, reading: Reading
) -> None:
    await ownership.take(SLOTS, asked_at_ms=clock.monotonic_ms())
    assert not ownership.slots
    await ownership.take(SLOTS, asked_at_ms=clock.monotonic_ms())
    assert ownership.slots == SLOTS
    assert reading.count == 1


@pytest.mark.parametrize(
    "lose", [lambda it: it.release(frozenset({1})), Ownership.doubt], ids=["given away", "doubted"]
)
async def test_slots_that_others_may_have_had_are_read_again(
    clock: ManualClock, ownership: Ownership, reading: Reading, lose: Callable[[Ownership], None]
) -> None:
    await ownership.take(SLOTS, asked_at_ms=clock.monotonic_ms())
    lose(ownership)
    await ownership.take(SLOTS, asked_at_ms=clock.monotonic_ms())
    assert reading.count == 2


async def test_an_answer_that_came_meanwhile_counts(clock: ManualClock) -> None:
    async def read() -> None:
        clock.advance(SESSION_MS + 1)
        ownership.confirm(clock.monotonic_ms())

    ownership = Ownership(session_timeout_ms=SESSION_MS, clock=clock, on_gain=read)
    await ownership.take(SLOTS, asked_at_ms=clock.monotonic_ms())
    assert ownership.slots == SLOTS
