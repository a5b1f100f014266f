"""Sites in memory whose groups `billing` and `live` have offsets in both partitions of `orders`."""

from __future__ import annotations

from mirror.link.core.committed_offsets import GroupOffset
from tests.support.eventually import eventually
from tests.support.memory.memory_mirror import world_with
from tests.support.memory.memory_world import MemoryWorld
from wire.protocol.ids import TopicPartition

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


def world_with_groups() -> MemoryWorld:
    """Both groups exist at the source alone."""
    made = world_with(partitions=2, batches=5)
    made.source.group_offsets = {name: {FIRST: GroupOffset(6), SECOND: GroupOffset(9)} for name in ("billing", "live")}
    return made


async def are_carried(world: MemoryWorld) -> None:
    """Wait until the target has the offsets of the source."""
    await eventually(lambda: world.target.group_offsets == world.source.group_offsets)


async def rounds_go_by(world: MemoryWorld) -> None:
    """Wait for some rounds of the mirror."""
    before = world.source.offset_requests
    await eventually(lambda: world.source.offset_requests > before + 3)
