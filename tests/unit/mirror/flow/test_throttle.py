"""A mirror under a byte rate: at the configured rate, high priorities first, and a backlog that
does not delay the live tail.
"""

from __future__ import annotations

import pytest

from runtime.clock import SystemClock
from tests.support.eventually import eventually
from tests.support.memory.memory_mirror import mirroring
from tests.support.memory.memory_world import MemoryWorld
from wire.protocol.ids import TopicPartition

SOME_BATCHES = 40


def size_bytes(world: MemoryWorld, topic: str) -> int:
    key = TopicPartition(topic, 0)
    return len(world.target.logs[key].data) if key in world.target.logs else 0


def is_complete(world: MemoryWorld, topic: str) -> bool:
    return size_bytes(world, topic) == len(world.source.logs[TopicPartition(topic, 0)].data)


def world_of(**batches: int) -> MemoryWorld:
    world = MemoryWorld()
    for number, (topic, count) in enumerate(batches.items(), 1):
        world.source.add(topic, 1, number=number)
        world.source.produce(topic, 0, count)
    return world


async def test_no_more_passes_in_a_second_than_the_rate_allows() -> None:
    world, clock = world_of(orders=SOME_BATCHES), SystemClock()
    rate = len(world.source.logs[TopicPartition("orders", 0)].data) // 2
    began_ms = clock.monotonic_ms()
    async with mirroring(world, **{"antipode.throttle.bytes.per.second": str(rate)}):
        await eventually(lambda: is_complete(world, "orders"))
    # The tokens of one second exist from the start, the other half has to wait (except for the
    # overdraft of one answer).
    assert clock.monotonic_ms() - began_ms > 600


@pytest.mark.parametrize(
    "classes",
    [{"antipode.priority.high": "pay"}, {"antipode.priority.low": "alpha,zeta"}],
    ids=["first", "before the last"],
)
async def test_topics_of_a_tight_recovery_point_go_first(classes: dict[str, str]) -> None:
    world = world_of(alpha=SOME_BATCHES, pay=SOME_BATCHES, zeta=SOME_BATCHES)
    rate = len(world.source.logs[TopicPartition("pay", 0)].data) // 2
    settings = {"antipode.throttle.bytes.per.second": str(rate), **classes}
    others_bytes: list[int] = []

    def look() -> None:
        if is_complete(world, "pay"):
            others_bytes.append(max(size_bytes(world, other) for other in ("alpha", "zeta")))

    world.before_append = look
    async with mirroring(world, **settings):
        await eventually(lambda: others_bytes)  # as it was when the first batch came after all of `pay`
    assert others_bytes[0] < size_bytes(world, "pay") / 2


async def test_a_backlog_does_not_hold_up_the_live_tail() -> None:
    world = world_of(backlog=4000, live=1)
    rate = (
        len(world.source.logs[TopicPartition("backlog", 0)].data) // 100
    )  # it takes longer than any machine needs for the rest
    settings = {"antipode.throttle.bytes.per.second": str(rate), "antipode.backfill.bytes": "5000"}
    async with mirroring(world, **settings):
        await eventually(lambda: is_complete(world, "live"))
        for _ in range(5):
            world.source.produce("live", 0, 1)
            await eventually(lambda: is_complete(world, "live"))
        assert not is_complete(world, "backlog")
        assert size_bytes(world, "backlog") > 0, "and the backlog is not starved"
