"""With `antipode.reinstatement.policy=automatic` a mirror truncates by itself what a promotion left
behind, and nothing else.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirror.admin.reinstatement import PAUSE_MS, Reinstatement
from mirror.assembly import Mirror
from mirror.flow.core.flow_state import FlowState
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.support.memory.memory_mirror import mirroring, states
from tests.unit.mirror.test_reset_quarantine import FIRST, diverged, faulted, kept
from wire.control.cluster_pb2 import LinkRecord

ABOVE_THE_TAIL = 5
"""A floor between the epoch of the copy's own records (3) and that of the promoted site's (7)."""


def reinstatement(mirror: Mirror, clock: ManualClock, *, floor: int) -> Reinstatement:
    def link() -> object:
        view = mirror.link()
        record = LinkRecord.FromString(view.record.SerializeToString())
        record.leader_epoch_floor = floor
        return replace(view, record=record)

    return Reinstatement(mirror.board, mirror.parts.resets, link=link, clock=clock)  # type: ignore[arg-type]


async def test_a_former_active_site_is_taken_back() -> None:
    world = diverged()
    async with mirroring(world) as mirror:
        await faulted(mirror)
        await reinstatement(mirror, ManualClock(), floor=ABOVE_THE_TAIL).look()
        await eventually(world.is_equal)
        await eventually(lambda: states(mirror) == {FlowState.MIRRORING})
    assert list(kept(world.target)) == [12, 15, 18]


@pytest.mark.parametrize("floor", [0, 3])
async def test_records_of_the_present_epoch_are_left_to_a_person(floor: int) -> None:
    world = diverged()
    before = world.target.logs[FIRST].data
    async with mirroring(world) as mirror:
        await faulted(mirror)
        await reinstatement(mirror, ManualClock(), floor=floor).look()
        assert world.target.logs[FIRST].data == before
        assert not world.target.quarantined


async def test_a_refused_topic_is_tried_again_after_a_pause() -> None:
    world, clock = diverged(), ManualClock()
    asked: list[None] = []
    world.target.before_keep = lambda: asked.append(None)
    world.target.quarantine_refusal = "policy_violation: no room"
    async with mirroring(world) as mirror:
        await faulted(mirror)
        policy = reinstatement(mirror, clock, floor=ABOVE_THE_TAIL)
        await policy.look()
        await policy.look()
        assert len(asked) == 1
        world.target.quarantine_refusal = ""
        clock.advance(PAUSE_MS)
        await policy.look()
        await eventually(world.is_equal)
    assert len(asked) == 2
