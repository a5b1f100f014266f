"""A partition may be paused or halted in each of its phases; the reader skips no record and forgets
no problem.
"""

from __future__ import annotations

import pytest

from clients.reader.core.positions import Position
from clients.reader.core.readings import Phase, Reading, Readings, Start
from wire.protocol.ids import NO_EPOCH

PLACE = ("t", 0)


def prefetched(*, consumed: Position) -> tuple[Readings, Reading]:
    """A partition of which 100 records were fetched and some consumed."""
    readings = Readings()
    readings.begin(PLACE, Start(Position(0)))
    readings.led_by(PLACE, 1, 3)
    reading = readings.get(PLACE)
    assert reading is not None
    readings.advance(reading, Position(100, 3), high_watermark=100, log_start_offset=0)
    reading.consumed = consumed
    return readings, reading


@pytest.mark.parametrize(
    ("epoch", "phase"), [(3, Phase.UNVALIDATED), (NO_EPOCH, Phase.READY)], ids=["validated later", "of no epoch"]
)
def test_a_pause_while_a_new_leader_is_asked_takes_back_what_was_not_consumed(epoch: int, phase: Phase) -> None:
    readings, reading = prefetched(consumed=Position(10, epoch))
    readings.lost_leader(PLACE)
    readings.led_by(PLACE, 2, 4)
    assert reading.phase is Phase.UNVALIDATED
    readings.pause([PLACE])
    assert (reading.phase, reading.fetched) == (phase, Position(10, epoch))
    reading.phase = Phase.READY
    readings.resume([PLACE])
    assert readings.fetchable(2)[PLACE].position == Position(10, epoch)


@pytest.mark.parametrize("phase", [Phase.READY, Phase.UNVALIDATED, Phase.NO_OFFSET])
def test_a_halted_partition_that_is_paused_comes_upon_its_problem_again(phase: Phase) -> None:
    readings, reading = prefetched(consumed=Position(10, 3))
    reading.phase = phase
    readings.halt(reading)
    assert readings.fetchable(1) == {}
    readings.pause([PLACE])
    readings.resume([PLACE])
    assert reading.phase is phase
    assert reading.fetched == (Position(100, 3) if phase is Phase.NO_OFFSET else Position(10, 3))


def test_a_halted_partition_continues_after_its_problem_was_reported() -> None:
    readings, reading = prefetched(consumed=Position(100, 3))
    readings.halt(reading)
    readings.retry(PLACE)
    assert readings.fetchable(1)[PLACE].position == Position(100, 3)
