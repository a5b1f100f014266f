"""Workers that live and do nothing: the mirror sees that its partitions' ends do not move, reports
it, and replaces the workers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from mirror.admin.service import describe
from mirror.assembly import Mirror
from mirror.flow import fetchers
from mirror.link.ports import AppendAnswer, AppendPart, FetchAnswer, FetchParts
from tests.support.eventually import eventually
from tests.support.memory.memory_mirror import mirroring, world_with
from tests.support.memory.memory_ports import MemoryAppend, MemoryFetch
from tests.support.memory.memory_world import MemoryWorld
from wire.protocol.ids import TopicPartition

KEY = TopicPartition("orders", 0)
QUICK = {"antipode.stall.timeout.ms": "200"}


class DeafFetch(MemoryFetch):
    """Its second request gets no answer, and no timeout ends it."""

    asked = 0

    async def fetch(self, node_id: int, parts: FetchParts, **options: Any) -> Sequence[FetchAnswer]:
        self.asked += 1
        if self.asked == 2:
            await asyncio.Event().wait()
        return await super().fetch(node_id, parts, **options)


class DeafAppend(MemoryAppend):
    """Its second request gets no answer, and no timeout ends it."""

    asked = 0

    async def append(
        self, node_id: int, *, link: str, link_epoch: int, parts: Sequence[AppendPart]
    ) -> Sequence[AppendAnswer]:
        self.asked += 1
        if self.asked == 2:
            await asyncio.Event().wait()
        return await super().append(node_id, link=link, link_epoch=link_epoch, parts=parts)


def deaf_at(world: MemoryWorld, side: str) -> None:
    """The first connection of that side stops answering; those made after it are sound."""
    ends = world.ends()
    fetches = iter([DeafFetch(world.source, lambda: None)])
    appends = iter([DeafAppend(world.target, lambda: None)])
    changed = (
        replace(ends, open_fetch=lambda: next(fetches, None) or ends.open_fetch())
        if side == "source"
        else replace(ends, open_append=lambda: next(appends, None) or ends.open_append())
    )
    world.ends = lambda: changed  # type: ignore[method-assign]


def is_told(mirror: Mirror) -> bool:
    return any("it has not moved for" in one.reason for one in describe(mirror).partitions)


@pytest.mark.parametrize("side", ["source", "target"])
async def test_a_connection_that_swallows_everything_is_reported_and_replaced(
    monkeypatch: pytest.MonkeyPatch, side: str
) -> None:
    # A stall is longer than the time in which partitions are fetched beside a request.
    monkeypatch.setattr(fetchers, "LATE_FETCHES_MS_MAX", 0)
    world = world_with(partitions=1)
    deaf_at(world, side)
    registry = CollectorRegistry()
    async with mirroring(world, registry=registry, **QUICK, **{"num.producers": "1"}) as mirror:
        await eventually(lambda: is_told(mirror))
        await eventually(world.is_equal)
        await eventually(lambda: not is_told(mirror))
        page = generate_latest(registry).decode()
    assert 'antipode_mirror_stalled_seconds{link="a-b",partition="0",topic="orders"} 0.0' in page
    assert 'antipode_mirror_stall_remedies_total{link="a-b",remedy="replace workers"} 0.0' not in page
    assert world.is_prefix()
    assert mirror.restarts["fetcher"] > 0


async def test_a_source_that_is_silent_for_longer_than_a_stall_is_no_stall() -> None:
    world = world_with(partitions=1)
    async with mirroring(world, **QUICK) as mirror:
        await eventually(world.is_equal)
        world.source.is_up = False
        await eventually(lambda: mirror.board.lag(KEY).ms > 1_000)
        assert not mirror.look().stalled_for_ms
        world.source.is_up = True
        world.source.produce("orders", 0, 1)
        await eventually(world.is_equal)
