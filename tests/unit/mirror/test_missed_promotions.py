"""A mirror that did not see that its target was active for a while, because it was paused or could
not read the link, begins anew: what it knows of the target is from before that time.
"""

from __future__ import annotations

import asyncio

from mirror.flow.followed_link import PromotionMissed
from mirror.link.core.committed_offsets import GroupOffset
from tests.support.eventually import eventually
from tests.support.memory.memory_mirror import mirroring, world_with
from tests.support.memory.memory_world import MemoryWorld
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import TopicPartition

FIRST = TopicPartition("orders", 0)


def read_again(world: MemoryWorld, **changed: int) -> None:
    """The next read of the link finds this record."""
    record = LinkRecord.FromString(world.record.SerializeToString())
    for name, value in changed.items():
        setattr(record, name, value)
    world.record = record


async def test_offsets_that_the_target_has_got_while_it_was_active_are_not_taken_for_the_mirrors_own() -> None:
    world = world_with(partitions=1)
    world.record.is_routed = True
    world.source.group_offsets["billing"] = {FIRST: GroupOffset(6)}
    async with mirroring(world) as mirror:
        await eventually(lambda: world.target.group_offsets == world.source.group_offsets)
        world.target.group_offsets["billing"] = {FIRST: GroupOffset(3)}  # reset there at epoch 2
        read_again(world, epoch=3, leader_epoch_floor=2_000_000)
        failure = await asyncio.wait_for(mirror.failed, 60)
    assert str(failure) == "site b was active between epochs 1 and 3 of link a-b"
    assert isinstance(failure, PromotionMissed)
    async with mirroring(world):
        await eventually(lambda: world.target.group_offsets == world.source.group_offsets)


async def test_a_fence_that_ended_without_a_promotion_is_no_reason_to_begin_anew() -> None:
    world = world_with(partitions=1)
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        read_again(world, epoch=3)
        await eventually(lambda: mirror.link().epoch == 3)
        world.source.produce("orders", 0, 1)
        await eventually(world.is_equal)
        assert not mirror.failed.done()
