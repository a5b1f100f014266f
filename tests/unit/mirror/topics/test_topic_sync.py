"""Topics made, grown and configured at the target: many in one request, each with an outcome of its
own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest
from prometheus_client import CollectorRegistry

from mirror.admin.service import describe
from mirror.flow import rows
from mirror.flow.core.flow_state import FlowState
from mirror.link.core.topic_plan import AlterConfigs, CreateTopic
from mirror.link.ports import Unreachable
from tests.sim.virtual_loop import VirtualLoop
from tests.support.eventually import eventually
from tests.support.memory.memory_mirror import mirroring, world_with
from tests.support.memory.memory_world import MemoryWorld
from wire.client.requests.topic_requests import TOPICS_AT_ONCE
from wire.control.cluster_pb2 import LinkRecord
from wire.protocol.ids import TopicPartition

TOPICS = 2 * TOPICS_AT_ONCE + 1
WITHIN_MS = 60_000


@pytest.fixture
def world() -> MemoryWorld:
    world = MemoryWorld()
    for number in range(TOPICS):
        world.source.add(f"t{number}", 1, number=number)
        world.source.produce(f"t{number}", 0)
    return world


async def test_many_topics_are_made_in_few_requests(world: MemoryWorld) -> None:
    async with mirroring(world):
        await eventually(world.is_equal, WITHIN_MS)
    made = [request for request in world.target.requests if isinstance(request[0], CreateTopic)]
    assert [len(request) for request in made] == [TOPICS_AT_ONCE, TOPICS_AT_ONCE, 1]
    assert world.target.ids == world.source.ids


async def test_of_topics_asked_for_together_a_refused_one_is_shown_and_the_others_are_mirrored(
    world: MemoryWorld,
) -> None:
    world.target.refusals["t7"] = "invalid_config no such config"
    async with mirroring(world) as mirror:
        await eventually(lambda: len(world.target.ids) == TOPICS - 1, WITHIN_MS)
        refused = mirror.board.row(TopicPartition("t7", 0))
        await eventually(lambda: refused.facts.state is FlowState.REFUSED, WITHIN_MS)
        assert "invalid_config no such config" in refused.facts.reason
        del world.target.refusals["t7"]
        await eventually(world.is_equal, WITHIN_MS)


@pytest.mark.parametrize("answered", range(4))
async def test_a_controller_lost_after_any_request_is_asked_again_for_what_is_missing(
    world: MemoryWorld, answered: int
) -> None:
    calls = iter(range(1_000))

    def lose_one() -> None:
        if next(calls) == answered:
            raise Unreachable("the target's controller: gone")

    world.target.before_act = lose_one
    async with mirroring(world):
        await eventually(world.is_equal, WITHIN_MS)
    made = [action.name for request in world.target.requests for action in request if isinstance(action, CreateTopic)]
    assert sorted(made) == sorted(world.source.ids)


async def test_filters_that_carry_no_topic_are_reported(world: MemoryWorld) -> None:
    world.record.topic_whitelist[:] = ["order"]
    async with mirroring(world) as mirror:
        said = f"nothing is mirrored: the filters carry none of the {TOPICS} topics at the source (whitelist order; blacklist (nothing))"
        await eventually(lambda: describe(mirror).reason == said)
        world.source.add("order", 1, number=TOPICS)
        await eventually(lambda: describe(mirror).reason != said)


async def test_configs_of_many_topics_follow_in_one_request(world: MemoryWorld) -> None:
    async with mirroring(world):
        await eventually(world.is_equal, WITHIN_MS)
        for name in ("t1", "t2", "t3"):
            world.source.topic_configs[name] = {"retention.ms": "1000"}
        await eventually(lambda: all(world.target.topic_configs[name] for name in ("t1", "t2", "t3")), WITHIN_MS)
    altered = [request for request in world.target.requests if isinstance(request[0], AlterConfigs)]
    assert [[action.name for action in request] for request in altered] == [["t1", "t2", "t3"]]


async def test_configs_that_the_target_refuses_are_a_condition_of_the_topic_until_they_are_healed() -> None:
    """M6: between two comparisons, too; the records are mirrored on."""
    world = world_with(partitions=1, batches=2)
    registry = CollectorRegistry()
    labels = {"link": "a-b", "topic": "orders"}

    def is_shown() -> bool:
        return registry.get_sample_value("antipode_mirror_refused_changes", labels) == 1

    # Compared once, at the start, and then not for an hour.
    settings = {"config.sync.interval.ms": "3600000"}
    world.target.add("orders", 1)
    world.target.refusal = "invalid_config Unknown topic config name: flavour"
    world.source.topic_configs["orders"] = {"flavour": "mild"}
    async with mirroring(world, registry=registry, **settings) as mirror:
        await eventually(is_shown, WITHIN_MS)
        rounds_at_ms = mirror.topics.synced_at_ms
        await eventually(lambda: mirror.topics.synced_at_ms > rounds_at_ms, WITHIN_MS)
        assert is_shown()
        (refused,) = describe(mirror).refused_changes
        assert "set configs of topic orders: {'flavour': 'mild'}" in refused.reason
        assert "Unknown topic config name: flavour" in refused.reason
        assert "config.properties.exclude" in refused.way_out
        assert refused.since_ms > 0
        await eventually(world.is_equal, WITHIN_MS)
        assert describe(mirror).state == "MIRRORING"


@pytest.mark.parametrize("is_cured_at_source", [True, False], ids=["cured at the source", "cured at the target"])
async def test_the_condition_is_gone_when_the_configs_agree_again(is_cured_at_source: bool) -> None:
    world = world_with(partitions=1, batches=2)
    async with mirroring(world) as mirror:
        await eventually(world.is_equal, WITHIN_MS)
        world.target.refusals["orders"] = "invalid_config no such flavour"
        world.source.topic_configs["orders"] = {"flavour": "mild"}
        await eventually(lambda: len(mirror.topics.refusals) == 1, WITHIN_MS)
        if is_cured_at_source:
            del world.source.topic_configs["orders"]
        else:
            del world.target.refusals["orders"]
        await eventually(lambda: len(mirror.topics.refusals) == 0, WITHIN_MS)
        assert not describe(mirror).refused_changes


async def test_partitions_that_the_target_does_not_add_are_a_condition_of_the_topic_until_it_does() -> None:
    world = world_with(partitions=1, batches=2)
    async with mirroring(world) as mirror:
        await eventually(world.is_equal, WITHIN_MS)
        world.target.refusals["orders"] = "invalid_partitions too many"
        world.source.add("orders", 3)
        await eventually(lambda: len(mirror.topics.refusals) == 1, WITHIN_MS)
        (refused,) = describe(mirror).refused_changes
        assert "grow topic orders to 3 partitions: invalid_partitions too many" in refused.reason
        assert "the new partitions are not at the target" in refused.way_out
        world.target.refusals.clear()
        await eventually(lambda: len(world.target.logs) == 3 and len(mirror.topics.refusals) == 0, WITHIN_MS)


async def test_a_site_that_became_active_has_no_refused_changes() -> None:
    world = world_with(partitions=1, batches=0)
    async with mirroring(world) as mirror:
        await eventually(world.is_equal, WITHIN_MS)
        world.target.refusals["orders"] = "invalid_config no such flavour"
        world.source.topic_configs["orders"] = {"flavour": "mild"}
        await eventually(lambda: len(mirror.topics.refusals) == 1, WITHIN_MS)
        world.record = LinkRecord(
            name="a-b", source_site="a", target_site="b", epoch=2, active_site="b", topic_whitelist=[".*"]
        )
        await eventually(lambda: len(mirror.topics.refusals) == 0, WITHIN_MS)


def test_a_target_that_does_not_return_configs_is_asked_less_often() -> None:
    """On a loop whose clock jumps: nothing here takes as long as it says."""
    world = world_with(partitions=1)
    world.target.add("orders", 1)
    asked: list[float] = []
    is_telling = False

    async def silent(names: Sequence[str]) -> Mapping[str, Mapping[str, str]]:
        asked.append(loop.now_s)
        return {name: {} for name in names if is_telling}

    world.target.configs = silent  # type: ignore[method-assign]
    loop = VirtualLoop()

    async def mirror() -> None:
        settings = {"topics.refresh.interval.ms": "1000", "config.sync.interval.ms": "3600000"}
        async with mirroring(world, **settings):
            await asyncio.Event().wait()

    loop.create_task(mirror())
    try:
        loop.run(60, lambda: False)
        assert len([at for at in asked if at < 1]) > 3
        assert len([at for at in asked if at >= 10]) < 200
        is_telling = True
        loop.run(62, world.is_equal)
        assert world.is_equal()
    finally:
        loop.end()


async def test_a_topic_whose_configs_the_source_hides_waits_and_the_others_are_mirrored() -> None:
    world = world_with(partitions=1)
    world.source.add("hidden", 1, number=2)
    world.source.produce("hidden", 0)
    world.source.topic_configs["hidden"] = {"cleanup.policy": "compact"}
    world.source.hidden_configs.add("hidden")
    key = TopicPartition("hidden", 0)
    async with mirroring(world) as mirror:
        await eventually(lambda: key in mirror.board and TopicPartition("orders", 0) in mirror.board)
        row = mirror.board.row(key)
        assert row.facts.state is FlowState.SOURCE_UNAVAILABLE
        assert "DESCRIBE_CONFIGS" in row.facts.reason
        assert "hidden" not in world.target.ids
        world.source.hidden_configs.clear()
        await eventually(world.is_equal)
        assert world.target.topic_configs["hidden"]["cleanup.policy"] == "compact"
        await eventually(lambda: row.facts.state is FlowState.MIRRORING)


async def test_a_topic_that_the_link_carries_no_longer_does_not_count_as_deleted() -> None:
    """A link that was made again with other filters, while the mirror runs."""
    world = world_with(partitions=1)
    key = TopicPartition("orders", 0)
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        row = mirror.board.row(key)
        world.record.topic_blacklist[:] = ["orders"]
        await eventually(lambda: row.is_retired)
        assert row.facts.reason == "link a-b does not carry topic orders any longer"
        world.record.topic_blacklist[:] = []
        world.source.produce("orders", 0)
        await eventually(world.is_equal)


async def test_a_partition_that_is_deleted_at_both_sites_is_forgotten_and_comes_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rows, "RETIRED_KEPT_MS", 0)
    world = world_with(partitions=1)
    key = TopicPartition("orders", 0)
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        row = mirror.board.row(key)
        world.source.delete("orders")
        world.target.delete("orders")
        await eventually(lambda: row.is_retired)
        await eventually(lambda: key not in mirror.board)
        assert all(key not in fetcher.partitions for fetcher in mirror.fetchers)
        world.source.add("orders", 1)
        world.source.produce("orders", 0, 3)
        await eventually(world.is_equal)
        assert mirror.board.row(key) is not row
