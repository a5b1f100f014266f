"""A partition whose lag grows over a sliding window of looks is reported, until it catches up."""

from __future__ import annotations

from typing import Any
from unittest.mock import AsyncMock

from prometheus_client import CollectorRegistry, generate_latest

from mirror.admin.service import describe
from mirror.flow.board import FlowBoard
from mirror.flow.core.flow_events import Acknowledged
from mirror.flow.core.liveness import LOOKS, LagGrowth
from mirror.flow.stall_watch import StallWatch
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from tests.support.memory.memory_mirror import mirroring, world_with
from tests.unit.mirror.flow.test_board import KEY, fetch, tell
from tests.unit.mirror.flow.test_board import board as board_fixture
from tests.unit.mirror.flow.test_board import clock as clock_fixture

board, clock = board_fixture, clock_fixture
STALL_MS = 30_000


async def test_a_growing_lag_is_found_at_the_looks_and_ends_when_the_target_has_everything(
    board: FlowBoard, clock: ManualClock
) -> None:
    source: Any = AsyncMock()
    watch = StallWatch(
        board, source=source, waited_ms=lambda: 0.0, replace_workers=lambda *_: None, clock=clock, stall_ms=STALL_MS
    )
    for number in range(LOOKS):
        # At each look the source has two records more and the target one.
        fetch(board, 10 + number, high_watermark=20 + 2 * number)
        tell(board, Acknowledged(generation=1, log_end_offset=11 + number))
        assert not watch.falling_behind
        await watch.look()
        clock.advance(5_000)
    assert watch.falling_behind == {KEY: LagGrowth(9, 18, 45_000)}
    end = 10 + LOOKS
    fetch(board, end, high_watermark=end + 1)
    tell(board, Acknowledged(generation=1, log_end_offset=end + 1))
    await watch.look()
    assert not watch.falling_behind


async def test_the_metric_and_the_reason_of_the_partition_say_so() -> None:
    world, registry = world_with(partitions=2), CollectorRegistry()
    async with mirroring(world, registry=registry, **{"antipode.stall.timeout.ms": "3600000"}) as mirror:
        await eventually(world.is_equal)
        mirror._stalls.falling_behind = {KEY: LagGrowth(9, 1_800, 45_000)}
        mirror.look()
        slow, good = describe(mirror).partitions
        page = generate_latest(registry).decode()
    assert slow.reason.endswith("; it falls behind: its lag has grown from 9 to 1,800 records in 45 s")
    assert "falls behind" not in good.reason
    assert 'antipode_mirror_falling_behind_partitions{link="a-b"} 1.0' in page
