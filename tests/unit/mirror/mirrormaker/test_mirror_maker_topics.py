"""MirrorMaker 2's checkpoints of a link whose groups come and go."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

from kio.schema.errors import ErrorCode

from mirror.link.core.committed_offsets import GroupOffset
from mirror.link.group_ports import GroupReading, GroupStates
from mirror.mirrormaker.mirror_maker_topics import MirrorMakerTopics
from mirror.settings.config import load_config
from mirror.translate.core.translation import Position, Translation
from tests.support.clock import ManualClock
from wire.batches.records import decode_records
from wire.protocol.ids import TopicPartition

KEY = TopicPartition("orders", 0)


class Groups:
    """The groups of the source; each has read five records."""

    def __init__(self) -> None:
        self.names: list[str] = []

    async def groups(self) -> GroupStates:
        return GroupStates(dict.fromkeys(self.names, "Empty"))

    async def offsets_of(self, groups: Sequence[str]) -> GroupReading:
        return GroupReading({group: {KEY: GroupOffset(5)} for group in groups})


class Target:
    """The target's topic of checkpoints, which is also its client."""

    def __init__(self) -> None:
        self.written = 0

    async def create_topics(self, topics: Sequence[Any]) -> list[SimpleNamespace]:
        return [SimpleNamespace(name=topic.name, error_code=ErrorCode.none) for topic in topics]

    async def produce(self, _topic: str, _partition: int, batch: bytes) -> None:
        self.written += sum(1 for _ in decode_records(batch))


async def test_nothing_is_kept_of_groups_that_the_source_has_no_longer() -> None:
    unused: Any = None
    config = load_config(
        {
            "link.name": "a-b",
            "link.mode": "translate",
            "source.bootstrap.servers": "h:1",
            "target.bootstrap.servers": "h:2",
            "emit.heartbeats.enabled": "false",
            "emit.offset-syncs.enabled": "false",
            "emit.checkpoints.interval.ms": "50",
        }
    )
    groups, target, clock = Groups(), Target(), ManualClock()
    clock.advance(1_000)
    topics = MirrorMakerTopics(
        config,
        source=unused,
        target=target,  # type: ignore[arg-type]
        source_groups=groups,  # type: ignore[arg-type]
        translations=MagicMock(known=lambda: [(KEY, Translation(Position(source_next=9)))]),
        downstream=lambda _, offset: offset,
        metrics=MagicMock(),
        clock=clock,
    )

    async def written() -> int:
        before = target.written
        clock.advance(50)
        await topics.round()
        return target.written - before

    assert topics.status == ""
    for number in range(100):
        groups.names = [f"app-{number}", "stays"]
        assert await written() == (1 if number else 2)
    assert len(topics._reported_checkpoints) == 2
    groups.names = ["app-0"]
    assert await written() == 1, "a group that comes back has its checkpoint again"
    assert await written() == 0
