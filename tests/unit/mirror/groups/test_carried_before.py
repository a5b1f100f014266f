"""Offsets that the source has removed while no mirror ran, and those that are the target's own."""

from __future__ import annotations

import pytest

from mirror.groups import carried_before, group_sync
from mirror.groups.core import group_decisions, group_offsets
from mirror.link.core.committed_offsets import GroupOffset
from tests.support.eventually import eventually
from tests.support.memory.carried_groups import FIRST, SECOND, are_carried, rounds_go_by
from tests.support.memory.memory_mirror import mirroring
from tests.support.memory.memory_ports import MemoryOffsetsTail
from tests.support.memory.memory_world import MemoryWorld


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """An offset counts as removed after a moment, which needs two reads of all offsets."""
    monkeypatch.setattr(group_decisions, "FORGOTTEN_AFTER_MS", 50)
    monkeypatch.setattr(carried_before, "ASKED_AGAIN_MS", 20)
    monkeypatch.setattr(group_sync, "FULL_READ_MS", 20)


@pytest.mark.parametrize("is_followed", [False, True])
async def test_a_group_that_was_deleted_while_no_mirror_ran_is_removed_at_the_target(
    world: MemoryWorld, *, is_followed: bool
) -> None:
    async with mirroring(world):
        await are_carried(world)
    del world.source.group_offsets["billing"]
    if is_followed:
        world.offsets_tail = MemoryOffsetsTail(world.source)
    async with mirroring(world):
        await eventually(lambda: not world.target.group_offsets["billing"])
        assert world.target.group_offsets["live"] == world.source.group_offsets["live"]


async def test_also_the_last_group(world: MemoryWorld) -> None:
    async with mirroring(world):
        await are_carried(world)
    world.source.group_offsets.clear()
    async with mirroring(world):
        await eventually(lambda: not any(world.target.group_offsets.values()))


async def test_single_offsets_are_removed_and_a_stop_before_that_changes_nothing(
    world: MemoryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with mirroring(world):
        await are_carried(world)
    del world.source.group_offsets["billing"][SECOND]
    with monkeypatch.context() as patch:
        patch.setattr(group_decisions, "FORGOTTEN_AFTER_MS", 60_000)
        async with mirroring(world):
            await rounds_go_by(world)
        assert SECOND in world.target.group_offsets["billing"]
    async with mirroring(world):
        await are_carried(world)
        assert FIRST in world.target.group_offsets["billing"]


async def test_offsets_that_were_made_at_the_target_stay(world: MemoryWorld) -> None:
    async with mirroring(world):
        await are_carried(world)
    world.target.group_offsets["local"] = {FIRST: GroupOffset(3)}
    world.target.group_offsets["billing"][FIRST] = GroupOffset(8)
    del world.source.group_offsets["billing"]
    async with mirroring(world):
        await eventually(lambda: SECOND not in world.target.group_offsets["billing"])
        await rounds_go_by(world)
        assert world.target.group_offsets["billing"] == {FIRST: GroupOffset(8)}
        assert world.target.group_offsets["local"] == {FIRST: GroupOffset(3)}


async def test_an_offset_that_the_group_commits_at_the_target_before_the_removal_stays(
    world: MemoryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_decisions, "FORGOTTEN_AFTER_MS", 300)
    async with mirroring(world):
        await are_carried(world)
        del world.source.group_offsets["billing"]
        await rounds_go_by(world)
        world.target.group_offsets["billing"][FIRST] = GroupOffset(4)
        await eventually(lambda: SECOND not in world.target.group_offsets["billing"])
        assert world.target.group_offsets["billing"] == {FIRST: GroupOffset(4)}


async def test_what_was_carried_before_the_active_role_moved_stays_until_it_was_found_equal_again(
    world: MemoryWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with mirroring(world):
        await are_carried(world)
    former = {at: (epoch - 1, offset) for at, (epoch, offset) in world.target.carried_offsets.items()}
    world.target.carried_offsets = dict(former)
    billing = world.source.group_offsets.pop("billing")
    async with mirroring(world):
        await rounds_go_by(world)
        assert world.target.group_offsets["billing"] == billing
    world.source.group_offsets["billing"] = billing
    monkeypatch.setattr(group_offsets, "FIRST_WRITTEN_AGAIN_MS", 400)
    async with mirroring(world):
        await eventually(lambda: all(found not in former.values() for found in world.target.carried_offsets.values()))
    del world.source.group_offsets["billing"]
    async with mirroring(world):
        await eventually(lambda: not world.target.group_offsets["billing"])
