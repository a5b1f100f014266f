"""Groups whose commits at the source are followed in its offsets topic, instead of being read again
and again.
"""

from __future__ import annotations

import asyncio

import pytest
from kio.schema.errors import ErrorCode

from mirror.groups.core import group_decisions
from mirror.link.core.committed_offsets import GroupOffset
from mirror.link.group_ports import GroupStates
from tests.support.eventually import eventually
from tests.support.memory.carried_groups import FIRST, SECOND, are_carried, rounds_go_by
from tests.support.memory.memory_mirror import mirroring
from tests.support.memory.memory_ports import MemoryOffsetsTail
from tests.support.memory.memory_world import MemoryWorld


@pytest.fixture
def tail(world: MemoryWorld) -> MemoryOffsetsTail:
    """The source's commits can be followed."""
    world.offsets_tail = MemoryOffsetsTail(world.source)
    return world.offsets_tail


async def is_followed(world: MemoryWorld, tail: MemoryOffsetsTail) -> None:
    await are_carried(world)
    reads = tail.reads
    await eventually(lambda: tail.reads > reads + 3)


async def test_commits_that_are_followed_are_carried_without_reading_all_offsets(
    world: MemoryWorld, tail: MemoryOffsetsTail
) -> None:
    async with mirroring(world):
        await is_followed(world, tail)
        before = world.source.offset_requests
        for offset in (7, 11, 3):
            world.source.group_offsets["billing"][FIRST] = GroupOffset(offset, metadata="mine")
            await are_carried(world)
        world.source.group_offsets["new"] = {SECOND: GroupOffset(2)}
        await are_carried(world)
        rounds = world.target.group_rounds
        await eventually(lambda: world.target.group_rounds > rounds + 2)
        assert world.source.offset_requests == before
        assert world.target.synced_at_ms > 0


async def test_a_write_that_takes_long_delays_no_other_group(world: MemoryWorld, tail: MemoryOffsetsTail) -> None:
    settings = {"group.sync.interval.ms": "5000"}  # no round, which waits for all writes, comes between
    async with mirroring(world, **settings):
        await is_followed(world, tail)
        held = world.target.held_commits["billing"] = asyncio.Event()
        for offset in (7, 8):  # the second one waits for the first
            world.source.group_offsets["billing"][FIRST] = GroupOffset(offset)
            world.source.group_offsets["new"] = {SECOND: GroupOffset(offset - 6)}
            await eventually(lambda: world.target.group_offsets.get("new") == world.source.group_offsets["new"])
        assert world.target.group_offsets["billing"][FIRST].offset not in (7, 8)
        held.set()
        await are_carried(world)


async def test_a_round_that_takes_long_delays_no_commit(world: MemoryWorld, tail: MemoryOffsetsTail) -> None:
    async with mirroring(world):
        await is_followed(world, tail)
        held = world.target.held_listing = asyncio.Event()
        rounds, reports = world.target.group_rounds, len(world.target.words)
        for offset in (7, 8, 9):
            world.source.group_offsets["billing"][FIRST] = GroupOffset(offset)
            await are_carried(world)
        assert world.target.group_rounds == rounds
        world.target.held_listing = None
        held.set()
        await eventually(lambda: world.target.group_rounds > rounds and len(world.target.words) > reports)


async def test_offsets_that_vanish_from_the_followed_source_are_forgotten_at_the_target(
    world: MemoryWorld, tail: MemoryOffsetsTail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_decisions, "FORGOTTEN_AFTER_MS", 100)
    async with mirroring(world):
        await is_followed(world, tail)
        del world.source.group_offsets["billing"][SECOND]
        await are_carried(world)


async def test_a_commit_ahead_of_the_copy_follows_as_soon_as_the_copy_has_grown(
    world: MemoryWorld, tail: MemoryOffsetsTail
) -> None:
    async with mirroring(world):
        await is_followed(world, tail)
        world.before_append = lambda: ErrorCode.not_leader_or_follower
        world.source.produce("orders", 0, 5)
        world.source.group_offsets["billing"][FIRST] = GroupOffset(world.source.logs[FIRST].end)
        await eventually(lambda: world.target.group_offsets["billing"][FIRST].offset == world.target.logs[FIRST].end)
        assert not world.is_equal()
        world.before_append = lambda: None
        await are_carried(world)


async def test_where_commits_can_be_followed_no_longer_all_offsets_are_read_until_they_can(
    world: MemoryWorld, tail: MemoryOffsetsTail
) -> None:
    """A full read carries the offsets that were committed in the gap."""
    async with mirroring(world):
        await is_followed(world, tail)
        tail.problem = "not authorized"
        for offset in (7, 11):
            world.source.group_offsets["billing"][FIRST] = GroupOffset(offset)
            await are_carried(world)
        await rounds_go_by(world)
        tail.problem = ""
        await is_followed(world, tail)
        before = world.source.offset_requests
        world.source.group_offsets["billing"][FIRST] = GroupOffset(12)
        await are_carried(world)
        assert world.source.offset_requests <= before + 1


async def test_a_list_of_groups_from_before_a_full_read_is_dropped(
    world: MemoryWorld, tail: MemoryOffsetsTail, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed, is_begun, is_dropped = world.target.groups, asyncio.Event(), asyncio.Event()

    async def held() -> GroupStates:
        monkeypatch.setattr(world.target, "groups", listed)
        is_begun.set()
        try:
            return await asyncio.get_running_loop().create_future()
        finally:
            is_dropped.set()

    async with mirroring(world):
        await is_followed(world, tail)
        monkeypatch.setattr(world.target, "groups", held)
        await eventually(is_begun.is_set)
        tail.problem = "not authorized"  # all offsets are read until the commits can be followed
        await eventually(is_dropped.is_set)
        tail.problem = ""
        await is_followed(world, tail)


async def test_a_mirror_ends_in_order_while_a_report_and_a_write_are_under_way(
    world: MemoryWorld, tail: MemoryOffsetsTail, monkeypatch: pytest.MonkeyPatch
) -> None:
    reporting, is_reporting = world.target.send_report, asyncio.Event()

    async def held(*_: object, **__: object) -> None:
        is_reporting.set()
        await asyncio.Event().wait()

    async with mirroring(world) as mirror:
        await is_followed(world, tail)
        monkeypatch.setattr(world.target, "send_report", held)
        await eventually(is_reporting.is_set)
        world.target.held_commits["billing"] = asyncio.Event()
        world.source.group_offsets["billing"][FIRST] = GroupOffset(7)
        await eventually(lambda: "billing" in mirror._groups._writes.under_way)
        monkeypatch.setattr(world.target, "send_report", reporting)
        del world.target.held_commits["billing"]
        assert (await mirror.stop(drain_timeout_ms=1000)).is_complete
    assert world.target.group_offsets["billing"] == world.source.group_offsets["billing"]
