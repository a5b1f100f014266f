"""Topics made, grown and configured at the target: many in one request, each with an outcome of its own."""

from __future__ import annotations

import pytest

from mirror.core.flow_state import FlowState
from mirror.core.partitions import PartitionKey
from mirror.core.plan import ACTIONS_AT_ONCE, AlterConfigs, CreateTopic
from mirror.ports import Unreachable
from tests.support.eventually import eventually
from tests.support.memory_mirror import mirroring
from tests.support.memory_sites import MemoryWorld

TOPICS = 2 * ACTIONS_AT_ONCE + 1
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
    assert [len(request) for request in made] == [ACTIONS_AT_ONCE, ACTIONS_AT_ONCE, 1]
    assert world.target.ids == world.source.ids


async def test_of_topics_asked_for_together_a_refused_one_is_shown_and_the_others_are_mirrored(
    world: MemoryWorld,
) -> None:
    world.target.refusals["t7"] = "invalid_config no such config"
    async with mirroring(world) as mirror:
        await eventually(lambda: len(world.target.ids) == TOPICS - 1, WITHIN_MS)
        refused = mirror.board.row(PartitionKey("t7", 0))
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


async def test_configs_of_many_topics_follow_in_one_request(world: MemoryWorld) -> None:
    async with mirroring(world):
        await eventually(world.is_equal, WITHIN_MS)
        for name in ("t1", "t2", "t3"):
            world.source.topic_configs[name] = {"retention.ms": "1000"}
        await eventually(lambda: all(world.target.topic_configs[name] for name in ("t1", "t2", "t3")), WITHIN_MS)
    altered = [request for request in world.target.requests if isinstance(request[0], AlterConfigs)]
    assert [[action.name for action in request] for request in altered] == [["t1", "t2", "t3"]]
