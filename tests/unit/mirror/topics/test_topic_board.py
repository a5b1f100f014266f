"""The board does not look at the partitions of a topic that is unchanged since the last round, and
sees each change.
"""

from __future__ import annotations

from uuid import UUID

import pytest

from mirror.assembly import Mirror
from mirror.flow.board import FlowBoard
from mirror.flow.rows import Row
from mirror.link.ports import Leader
from tests.support.eventually import eventually
from tests.support.memory.memory_mirror import mirroring, world_with
from wire.protocol.ids import TopicPartition

FIRST = TopicPartition("orders", 0)
WITHIN_MS = 60_000


async def a_round_later(mirror: Mirror) -> None:
    before_ms = mirror.topics.synced_at_ms
    await eventually(lambda: mirror.topics.synced_at_ms > before_ms, WITHIN_MS)


async def test_a_topic_is_placed_again_only_when_something_about_it_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    world = world_with(partitions=3, batches=2)
    placed: list[TopicPartition] = []
    add = FlowBoard.add

    def noting(board: FlowBoard, key: TopicPartition, topic_id: UUID) -> Row:
        placed.append(key)
        return add(board, key, topic_id)

    async with mirroring(world) as mirror:
        await eventually(world.is_equal, WITHIN_MS)
        for _ in range(3):
            await a_round_later(mirror)
        monkeypatch.setattr(FlowBoard, "add", noting)
        for _ in range(3):
            await a_round_later(mirror)
        assert not placed

        row = mirror.board.row(FIRST)
        world.source.leader = Leader(1002, 0)
        await eventually(lambda: row.source == world.source.leader, WITHIN_MS)
        world.target.leader = Leader(2002, 0)
        await eventually(lambda: row.target == world.target.leader, WITHIN_MS)
        assert set(placed) == {TopicPartition("orders", number) for number in range(3)}
        world.source.add("orders", 4)
        world.source.produce("orders", 3)
        await eventually(world.is_equal, WITHIN_MS)
