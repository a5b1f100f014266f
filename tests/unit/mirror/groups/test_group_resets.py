"""Groups whose offsets differ between the sites: reset at the source, moved at the target, or ahead
of the copy.
"""

from __future__ import annotations

import pytest

from mirror.admin.service import describe
from mirror.groups.core import group_decisions, group_offsets
from mirror.link.core.committed_offsets import GroupOffset
from tests.support.eventually import eventually
from tests.support.memory.carried_groups import FIRST, SECOND, are_carried, rounds_go_by
from tests.support.memory.memory_mirror import mirroring
from tests.support.memory.memory_world import MemoryWorld


@pytest.mark.parametrize("is_routed", [True, False])
async def test_a_group_reset_while_no_mirror_ran_goes_back_if_it_is_idle_at_the_target(
    world: MemoryWorld, monkeypatch: pytest.MonkeyPatch, *, is_routed: bool
) -> None:
    """M4: otherwise a failover would skip the records that the group must read again."""
    monkeypatch.setattr(group_decisions, "BEHIND_BELIEVED_AFTER_MS", 100)
    world.record.is_routed = is_routed
    world.target.group_offsets = {"billing": {FIRST: GroupOffset(12)}, "live": {FIRST: GroupOffset(3)}}
    async with mirroring(world):
        await eventually(lambda: world.target.group_offsets["live"] == world.source.group_offsets["live"])
        if is_routed:
            await are_carried(world)
        else:
            rounds = world.source.offset_requests
            await eventually(lambda: world.source.offset_requests > rounds + 6)
            assert world.target.group_offsets["billing"][FIRST] == GroupOffset(12)


@pytest.fixture
def open_world(world: MemoryWorld) -> MemoryWorld:
    """A world whose groups may work at the target. The target keeps the offsets at which both sites
    agreed.
    """
    world.record.is_routed = False
    world.target.noted_alike = {}
    return world


async def test_a_group_that_was_reset_while_no_mirror_ran_goes_back_when_it_was_not_moved_at_the_target(
    open_world: MemoryWorld,
) -> None:
    """M4: this includes a group that was carried before there were notes, since the mirror saw
    equal offsets.
    """
    world = open_world
    world.target.group_offsets = {"live": dict(world.source.group_offsets["live"])}
    async with mirroring(world):
        await are_carried(world)
    world.source.group_offsets = {name: {FIRST: GroupOffset(2), SECOND: GroupOffset(9)} for name in ("billing", "live")}
    async with mirroring(world) as mirror:
        await are_carried(world)
        assert not describe(mirror).groups_ahead


async def test_a_group_that_stands_still_gets_the_offset_that_its_target_knows_by_now(open_world: MemoryWorld) -> None:
    """M4: the carried offset was too small, because the mirror knew less of the target then."""
    world = open_world
    async with mirroring(world):
        await are_carried(world)
        world.target.group_offsets["billing"][FIRST] = GroupOffset(4)
        await rounds_go_by(world)
        assert world.target.group_offsets["billing"][FIRST] == GroupOffset(4), "read without a reason"
        world.target.outgrown_groups.add("billing")
        await are_carried(world)


async def test_a_group_that_moved_at_the_target_stays_there_when_it_was_reset_at_the_source(
    open_world: MemoryWorld,
) -> None:
    world = open_world
    async with mirroring(world):
        await are_carried(world)
    world.target.group_offsets["billing"][FIRST] = GroupOffset(12)
    world.source.group_offsets["billing"][FIRST] = GroupOffset(2)
    async with mirroring(world) as mirror:
        left = "orders-0: 2 at the source; the group was reset at the source, but has also moved at the target"
        await eventually(lambda: dict(describe(mirror).groups_ahead) == {"billing": left})
        assert world.target.group_offsets["billing"][FIRST] == GroupOffset(12)
        world.source.group_offsets["billing"][FIRST] = GroupOffset(14)
        await are_carried(world)
        await eventually(lambda: not describe(mirror).groups_ahead)


async def test_of_a_group_ahead_at_the_target_it_is_reported_that_the_reason_is_not_known(
    open_world: MemoryWorld,
) -> None:
    world = open_world
    world.target.group_offsets = {"billing": {FIRST: GroupOffset(12), SECOND: GroupOffset(9)}}
    async with mirroring(world) as mirror:
        await eventually(lambda: "the mirror cannot decide" in dict(describe(mirror).groups_ahead).get("billing", ""))
        world.source.group_offsets["billing"][FIRST] = GroupOffset(4)
        await rounds_go_by(world)
        assert world.target.group_offsets["billing"][FIRST] == GroupOffset(12)


async def test_a_group_that_worked_at_the_target_meanwhile_keeps_its_place_there(
    open_world: MemoryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M4: neither a reset at the source nor a repeated write takes it back."""
    world = open_world
    async with mirroring(world):
        await are_carried(world)
        world.target.group_states["billing"] = "Stable"
        await rounds_go_by(world)
        world.target.group_offsets["billing"][FIRST] = GroupOffset(12)
        del world.target.group_states["billing"]
        world.source.group_offsets["billing"][FIRST] = GroupOffset(7)
        await rounds_go_by(world)
        assert world.target.group_offsets["billing"][FIRST] == GroupOffset(12)
        monkeypatch.setattr(group_offsets, "WRITTEN_AGAIN_MS", 0)
        world.target.group_offsets["billing"][FIRST] = GroupOffset(13)
        await rounds_go_by(world)
        assert world.target.group_offsets["billing"][FIRST] == GroupOffset(13)


async def test_a_group_with_members_at_the_target_is_taken_back_by_no_reset(open_world: MemoryWorld) -> None:
    world = open_world
    async with mirroring(world):
        await are_carried(world)
    world.target.group_states["billing"] = "Stable"
    for name in ("billing", "live"):
        world.source.group_offsets[name][FIRST] = GroupOffset(2)
    async with mirroring(world):
        await eventually(lambda: world.target.group_offsets["live"] == world.source.group_offsets["live"])
        assert world.target.group_offsets["billing"][FIRST] == GroupOffset(6)
        del world.target.group_states["billing"]
        await are_carried(world)


async def test_offsets_that_came_from_the_target_are_not_carried_back_to_it(open_world: MemoryWorld) -> None:
    """A group was reset at the target. Offsets that the opposite link brought before do not take it
    forward again.
    """
    world = open_world
    world.target.group_offsets = {"billing": {FIRST: GroupOffset(2), SECOND: GroupOffset(9)}}
    world.source.from_target = {"billing": {FIRST}}
    async with mirroring(world):
        await eventually(lambda: world.target.group_offsets.get("live") == world.source.group_offsets["live"])
        await rounds_go_by(world)
        assert world.target.group_offsets["billing"][FIRST] == GroupOffset(2)
        world.source.from_target = {}
        await are_carried(world)
