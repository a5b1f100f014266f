"""The whole mirror over sites in memory: the offsets of groups."""

from __future__ import annotations

from mirror.link.core.committed_offsets import GroupOffset
from tests.support.eventually import eventually
from tests.support.memory.memory_mirror import mirroring, world_with
from wire.control.cluster_pb2 import LinkPhase
from wire.protocol.ids import TopicPartition

FIRST = TopicPartition("orders", 0)


async def test_groups_are_carried_clamped_and_left_alone_while_active_at_the_target() -> None:
    """M3, M4."""
    world = world_with(partitions=2)
    second = TopicPartition("orders", 1)
    world.source.group_offsets["billing"] = {FIRST: GroupOffset(0), second: GroupOffset(999, 3, "mine")}
    world.source.group_offsets["live"] = {FIRST: GroupOffset(6)}
    world.target.group_offsets["live"] = {FIRST: GroupOffset(3)}
    world.target.group_states["live"] = "Stable"
    async with mirroring(world):
        wanted = {FIRST: GroupOffset(0), second: GroupOffset(60, -1, "mine")}
        await eventually(lambda: world.target.group_offsets.get("billing") == wanted)
        world.target.group_states["live"] = "Empty"
        await eventually(lambda: world.target.group_offsets["live"] == {FIRST: GroupOffset(6)})


async def test_a_round_sends_one_request_for_any_number_of_groups() -> None:
    world = world_with()
    groups = {f"group-{number}": {FIRST: GroupOffset(number % 7)} for number in range(300)}
    world.source.group_offsets.update(groups)
    async with mirroring(world) as mirror:
        await eventually(lambda: world.target.group_offsets == groups)
        await mirror.stop(drain_timeout_ms=1000)
        rounds = world.source.offset_requests
    assert rounds < len(groups)


async def test_a_group_that_the_target_does_not_report_waits_and_does_not_go_back() -> None:
    """M4."""
    world = world_with()
    world.source.group_offsets |= {"billing": {FIRST: GroupOffset(3)}, "other": {FIRST: GroupOffset(1)}}
    world.target.group_offsets["billing"] = {FIRST: GroupOffset(6)}
    world.target.moving_groups.add("billing")
    async with mirroring(world):
        await eventually(lambda: world.target.group_offsets.get("other") == {FIRST: GroupOffset(1)})
        world.target.moving_groups.clear()
        asked = world.target.offset_requests
        await eventually(lambda: world.target.offset_requests > asked)
        world.source.group_offsets["billing"] = {FIRST: GroupOffset(7)}
        await eventually(lambda: world.target.group_offsets["billing"] == {FIRST: GroupOffset(7)})
    assert [offset for group, _, offset in world.target.commits if group == "billing"] == [7]


async def test_under_a_fence_the_target_gets_exactly_the_groups_offsets() -> None:
    """F-f: also an offset that went back while no mirror looked, and one that the target has
    lost.
    """
    world = world_with()
    world.source.group_offsets |= {"rewound": {FIRST: GroupOffset(2)}, "lost": {FIRST: GroupOffset(5)}}
    world.target.group_offsets["rewound"] = {FIRST: GroupOffset(6)}
    async with mirroring(world):
        await eventually(lambda: world.target.group_offsets.get("lost") == {FIRST: GroupOffset(5)})
        assert world.target.group_offsets["rewound"] == {FIRST: GroupOffset(6)}
        del world.target.group_offsets["lost"]
        world.record.is_routed, world.record.phase = True, LinkPhase.FENCED
        await eventually(lambda: world.target.group_offsets == world.source.group_offsets)


async def test_the_target_gets_the_time_up_to_which_all_groups_are_carried() -> None:
    world = world_with()
    world.source.group_offsets["billing"] = {FIRST: GroupOffset(3)}
    world.target.moving_groups.add("billing")
    async with mirroring(world):
        await eventually(lambda: world.target.offset_requests > 2)
        assert world.target.synced_at_ms == -1
        world.target.moving_groups.clear()
        await eventually(lambda: world.target.synced_at_ms > 0)
        assert world.target.group_offsets == world.source.group_offsets


async def test_an_offset_below_the_log_start_is_carried_as_the_start_that_the_log_has_by_then() -> None:
    """M3, long after the flow began: the copy follows the source's log start."""
    world = world_with(partitions=1)
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        assert mirror.board.row(FIRST).facts.target_log_start_offset == 0
        for site in (world.source, world.target):
            log = site.logs[FIRST]
            log.start, log.batches = 30, log.batches[10:]
        world.source.produce("orders", 0, 1)
        await eventually(lambda: mirror.board.row(FIRST).facts.source_log_start_offset == 30)
        world.source.group_offsets["slow"] = {FIRST: GroupOffset(4)}
        await eventually(lambda: "slow" in world.target.group_offsets)
        assert world.target.group_offsets["slow"] == {FIRST: GroupOffset(30)}
