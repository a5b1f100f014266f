"""The board does not look at the partitions of a topic that is unchanged since the last round, and
sees each change.
"""

from __future__ import annotations

from uuid import UUID

import pytest

from mirror.assembly import Mirror
from mirror.flow.board import FlowBoard
from mirror.flow.core.tombstones import NOT_COMPACTED
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


async def test_a_topic_that_both_sites_delete_leaves_the_board_and_returns() -> None:
    world = world_with(partitions=2, batches=2)
    async with mirroring(world) as mirror:
        await eventually(world.is_equal, WITHIN_MS)
        world.source.delete("orders")
        world.target.delete("orders")
        await eventually(lambda: len(mirror.board) == 0, WITHIN_MS)
        world.source.add("orders", 2, number=7)
        await eventually(lambda: len(mirror.board) == 2, WITHIN_MS)


async def test_flows_learn_how_long_the_source_keeps_tombstones_also_those_that_come_later() -> None:
    world = world_with(partitions=1, batches=1)

    def kept_ms(mirror: Mirror, partition: int) -> int:
        key = TopicPartition("orders", partition)
        return mirror.board.row(key).facts.tombstones_kept_ms if key in mirror.board else 0

    async with mirroring(world) as mirror:
        await eventually(lambda: kept_ms(mirror, 0) == NOT_COMPACTED, WITHIN_MS)
        world.source.topic_configs["orders"] = {"cleanup.policy": "compact", "delete.retention.ms": "7000"}
        await eventually(lambda: kept_ms(mirror, 0) == 7_000, WITHIN_MS)
        await a_round_later(mirror)
        world.source.add("orders", 2)
        await eventually(lambda: kept_ms(mirror, 1) == 7_000, WITHIN_MS)
