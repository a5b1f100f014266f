"""Rebalances of the classic high-level consumer on a real ZooKeeper and a real broker (rows HC-,
RB-, FT-).

Promised: in a stable group every partition has one owner, and its node names the owner. A rebalance
that is interrupted after any step is completed by the next attempt. With auto commit, a transfer of
a partition between two live members repeats and loses no record.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Mapping

import pytest

from clients.classic.core.classic_group import UnequalSubscriptions
from clients.classic.zookeeper_consumer import STEPS, RebalanceFailed, ZooKeeperConsumer
from runtime.zookeeper.client import ZooKeeper
from tests.support.clients.classic_consumers import WITHIN_MS, Read, Site, member, owners
from tests.support.eventually import eventually
from wire.client.raw_client import KafkaClient
from wire.znodes.consumer_znodes import (
    WHITE_LIST,
    ConsumerRegistration,
    encode_registration,
    id_path,
    ids_path,
    owner_path,
    owners_path,
)

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("step", STEPS)
async def test_a_rebalance_interrupted_after_any_step_is_completed(site: Site, step: str) -> None:
    topic = await site.new_topic(2)
    await site.produce(topic, 0, 40, 2)
    group = f"g-{topic}"
    interrupted = []

    async def interrupt_once(name: str) -> None:
        if name == step and interrupted == ["armed"]:
            interrupted.append(name)
            raise RuntimeError(f"interrupted after {name}")

    async with member(site.connect, group, interrupt_once) as consumer:
        read = Read(*await consumer.create_streams({topic: 1}))
        await read.has(10)
        interrupted.append("armed")
        attempts = consumer.attempts
        await consumer.rebalance()
        assert consumer.attempts == attempts + 2
        assert set(await owners(site.connect, group, topic)) == {0, 1}
        await site.produce(topic, 40, 60, 2)
        await read.has(60)
        assert sorted(read.values) == list(range(60))


async def test_members_come_and_go_and_every_partition_has_one_owner(site: Site) -> None:
    topic = await site.new_topic(3)
    group = f"g-{topic}"
    consumers: list[ZooKeeperConsumer] = []
    overlaps: list[str] = []

    async def look(name: str) -> None:
        reading = Counter(place for each in consumers for place in each.reading)
        overlaps.extend(f"{place} at {name}" for place, count in reading.items() if count > 1)

    def shares() -> list[int]:
        return sorted((len(each.owned) for each in consumers), reverse=True)

    async with contextlib.AsyncExitStack() as stack:
        for expected in ([3], [2, 1], [1, 1, 1], [1, 1, 1, 0]):
            consumer = await stack.enter_async_context(member(site.connect, group, look))
            consumers.append(consumer)
            await consumer.create_streams({topic: 1})
            await eventually(lambda expected=expected: shares() == expected, WITHIN_MS)

            async def is_named() -> bool:  # each owner is noted after it has taken over
                owned = {index: thread for each in consumers for (_, index), thread in each.owned.items()}
                return await owners(site.connect, group, topic) == owned

            await eventually(is_named, WITHIN_MS)
        async with KafkaClient(site.node.bootstrap) as client:
            await client.grow_topic(topic, 4)
        await eventually(lambda: shares() == [1, 1, 1, 1], WITHIN_MS)
    assert overlaps == []


async def test_a_joining_member_causes_no_duplicate_and_no_loss(site: Site) -> None:
    topic = await site.new_topic(4)
    group = f"g-{topic}"
    await site.produce(topic, 0, 400, 4)
    async with member(site.connect, group, queued_chunks_max=1) as one:
        first = Read(*await one.create_streams({topic: 1}))
        await first.has(50)
        async with member(site.connect, group) as other:
            second = Read(*await other.create_streams({topic: 1}))
            await site.produce(topic, 400, 800, 4)
            await eventually(lambda: len(first.values) + len(second.values) >= 800, WITHIN_MS)
            assert sorted(first.values + second.values) == list(range(800))
            assert second.values


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
async def test_members_with_unusable_subscriptions_are_refused_and_the_others_continue(
    site: Site, strategy: str
) -> None:
    topic, second = await site.new_topic(2), await site.new_topic(1)
    group = f"g-{topic}"
    bad_filter = ConsumerRegistration(subscription={"(": 1}, pattern=WHITE_LIST)
    async with member(site.connect, group, strategy=strategy) as sound, member(site.connect, group) as bad:
        read = Read(*await sound.create_streams({topic: 1}))
        with pytest.raises(ValueError, match="not a regular expression"):
            await bad.create_streams({"(": 1}, pattern=WHITE_LIST)
        rebalances = sound.rebalances
        for name, registration in (("a-regex", encode_registration(bad_filter)), ("a-scribble", b"nonsense")):
            await bad._zookeeper.create(id_path(group, name), registration, is_ephemeral=True)
        await eventually(lambda: sound.rebalances > rebalances, WITHIN_MS)
        if strategy == "roundrobin":
            async with member(site.connect, group, strategy=strategy) as greedy:
                with pytest.raises(UnequalSubscriptions, match="who was first"):
                    await greedy.create_streams({topic: 1, second: 1})
        await site.produce(topic, 0, 10, 2)
        await read.has(10)
        # a member left a moment ago, so the group may be in the middle of a rebalance
        await eventually(lambda: len(sound.reading) == 2, WITHIN_MS)
        assert sound.failure is None


async def test_a_rebalance_fails_and_leaves_no_node_behind_while_another_member_keeps_a_partition(site: Site) -> None:
    topic = await site.new_topic(2)
    group = f"g-{topic}"
    squatter = ZooKeeper(site.connect)
    await squatter.start()
    await squatter.ensure_path(owners_path(group, topic))
    await squatter.create(owner_path(group, topic, 1), b"squatter-0", is_ephemeral=True)
    try:
        async with member(site.connect, group, rebalance_attempts_max=4) as consumer:
            with pytest.raises(RebalanceFailed, match=r"4 attempts: .*-1 is still owned"):
                await consumer.create_streams({topic: 1})
            assert consumer.attempts == 4
            assert await owners(site.connect, group, topic) == {1: "squatter-0"}
    finally:
        await squatter.stop()


class Hooks:
    """Records its calls, and fails once when the test asks for it."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[tuple[str, int]]]] = []
        self.is_failing = False

    async def before_releasing(self, places: Mapping[tuple[str, int], str]) -> None:
        self.calls.append(("before releasing", sorted(places)))
        if self.is_failing:
            self.is_failing = False
            raise RuntimeError("the application is not done")

    async def before_starting(self, consumer: str, owners: Mapping[tuple[str, int], str]) -> None:
        self.calls.append(("before starting", sorted(owners)))


async def test_hooks_come_before_releasing_and_before_starting_and_may_fail_an_attempt(site: Site) -> None:
    topic = await site.new_topic(2)
    await site.produce(topic, 0, 10, 2)
    both = [(topic, 0), (topic, 1)]
    hooks = Hooks()
    async with member(site.connect, f"g-{topic}", listener=hooks) as consumer:
        (stream,) = await consumer.create_streams({topic: 1})
        assert hooks.calls == [("before releasing", []), ("before starting", both)]
        hooks.calls.clear()
        hooks.is_failing = True
        await consumer.rebalance()
        assert hooks.calls == [("before releasing", both)] * 2 + [("before starting", both)]
        found = 0
        async for chunk in stream.chunks():
            found += chunk.record_count
            if found == 10:
                break
        assert sum(consumer.positions().values()) == 10


async def test_twenty_joins_cost_far_fewer_rebalances(site: Site) -> None:
    """All but the first come while the rebalance for that one is under way, however quick it is."""
    topic = await site.new_topic(1)
    group = f"g-{topic}"
    may_go_on, held = asyncio.Event(), []
    may_go_on.set()

    async def hold(name: str) -> None:
        if name == "read group" and not may_go_on.is_set():
            held.append(name)
            await may_go_on.wait()

    async with member(site.connect, group, hold) as consumer:
        await consumer.create_streams({topic: 1})
        before = consumer.rebalances
        may_go_on.clear()
        others = ZooKeeper(site.connect)
        await others.start()
        payload, _ = await others.get(id_path(group, consumer.consumer_id))
        for number in range(20):
            await others.create(f"{ids_path(group)}/zz-{number}", payload, is_ephemeral=True)
            await eventually(lambda: held, WITHIN_MS)
        may_go_on.set()
        await eventually(lambda: consumer.rebalances >= before + 2, WITHIN_MS)
        await others.stop()
        await eventually(lambda: list(consumer.owned) == [(topic, 0)], WITHIN_MS)
        assert consumer.rebalances < 20
