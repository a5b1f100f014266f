"""A mirror that is behind by a large part of the source's retention reports it, also while the
source does not answer.
"""

from __future__ import annotations

from mirror.admin.service import describe
from tests.support.eventually import eventually
from tests.support.memory.memory_mirror import mirroring, world_with
from wire.protocol.ids import TopicPartition

FIRST = TopicPartition("orders", 0)


async def test_a_partition_whose_records_may_expire_is_reported_until_it_has_caught_up() -> None:
    world = world_with(partitions=1, batches=2)
    world.source.topic_configs["orders"] = {"retention.ms": "60"}
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        await eventually(lambda: FIRST not in mirror.topics.retention.at_risk)
        world.source.is_up = False
        await eventually(lambda: FIRST in mirror.topics.retention.at_risk)
        (partition,) = describe(mirror).partitions
        assert "of the topic's retention.ms: records may expire before they are mirrored" in partition.reason
        world.source.topic_configs["orders"] = {"retention.ms": "3600000"}
        world.source.is_up = True
        await eventually(lambda: FIRST not in mirror.topics.retention.at_risk)
        (partition,) = describe(mirror).partitions
        assert "retention.ms" not in partition.reason


async def test_a_topic_without_a_retention_of_its_own_is_never_at_risk() -> None:
    world = world_with(partitions=1, batches=2)
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        world.source.is_up = False
        await eventually(lambda: mirror.topics.problem is not None)
        mirror.topics.retention.look()
        assert not mirror.topics.retention.at_risk
