"""The whole mirror over sites in memory: copies with another history than the source."""

from __future__ import annotations

import asyncio

import pytest
from structlog.testing import capture_logs

from mirror.flow import producers
from mirror.flow.core.flow_events import Start
from mirror.flow.core.flow_state import FlowState, Step
from tests.support.disks.log_batches import batch
from tests.support.eventually import eventually
from tests.support.memory.memory_mirror import mirroring, states, world_with
from tests.support.memory.memory_ports import MemoryFetch
from wire.protocol.ids import TopicPartition

FIRST = TopicPartition("orders", 0)


async def test_a_history_that_differs_is_a_fault_and_nothing_is_written() -> None:
    world = world_with(partitions=1)
    world.target.add("orders", 1)
    world.target.produce("orders", 0, 3, epoch=0)
    world.target.produce("orders", 0, 1, epoch=4)
    before = world.target.logs[FIRST].data
    async with mirroring(world) as mirror:
        await eventually(lambda: states(mirror) == {FlowState.FAULTED})
        assert "histories diverge" in mirror.board.row(FIRST).facts.reason
    assert world.target.logs[FIRST].data == before


async def test_a_history_that_differs_under_one_leader_epoch_is_a_fault_and_nothing_is_written() -> None:
    world = world_with(partitions=1, batches=4)
    world.target.add("orders", 1)
    target = world.target.logs[FIRST]
    target.batches = [batch([b"other"] * 3, base_offset=offset) for offset in (0, 3)]
    before = target.data
    async with mirroring(world) as mirror:
        await eventually(lambda: states(mirror) == {FlowState.FAULTED})
        assert "histories diverge" in mirror.board.row(FIRST).facts.reason
        with capture_logs() as logged:
            generation = mirror.board.row(FIRST).facts.generation
            mirror.board.submit(FIRST, Start("the operator looks again"))
            await eventually(lambda: mirror.board.row(FIRST).facts.generation > generation + 1)
        assert {line["state"] for line in logged if "state" in line} == {"FAULTED"}, (
            "the partition is not shown as mirrored before the target has compared its last batch"
        )
        assert target.data == before
        target.batches = world.source.logs[FIRST].batches[:2]
        mirror.board.submit(FIRST, Start("the copy is restored"))
        await eventually(world.is_equal)
        await eventually(lambda: states(mirror) == {FlowState.MIRRORING})


async def test_a_report_does_not_end_a_fault_before_the_histories_are_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = world_with(partitions=1, batches=4)
    world.target.add("orders", 1)
    world.target.logs[FIRST].batches = [batch([b"other"] * 3, base_offset=0)]
    fetch, may_fetch = MemoryFetch.fetch, asyncio.Event()

    async def held(*args: object, **kwargs: object) -> object:
        await may_fetch.wait()
        return await fetch(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(producers, "REPORT_INTERVAL_MS", 0)
    async with mirroring(world) as mirror:
        await eventually(lambda: states(mirror) == {FlowState.FAULTED})
        monkeypatch.setattr(MemoryFetch, "fetch", held)
        mirror.board.submit(FIRST, Start("the operator looks again"))
        await eventually(lambda: mirror.board.row(FIRST).facts.step is Step.STREAMING)
        mirror.producers.report()
        await asyncio.gather(*(request for producer in mirror.producers for request in producer._requests))
        assert states(mirror) == {FlowState.FAULTED}
        may_fetch.set()


async def test_a_source_that_was_restored_while_the_mirror_ran_is_a_fault() -> None:
    """The source comes back with other records at the same offsets under the same leader epoch."""
    world = world_with(partitions=1, batches=4)
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        before = world.target.logs[FIRST].data
        world.source.is_up = False
        await eventually(lambda: states(mirror) == {FlowState.SOURCE_UNAVAILABLE})
        source = world.source.logs[FIRST]
        source.batches = source.batches[:3] + [batch([b"other"] * 3, base_offset=offset) for offset in (9, 12)]
        world.source.is_up = True
        await eventually(lambda: states(mirror) == {FlowState.FAULTED})
    assert world.target.logs[FIRST].data == before


async def test_a_batch_that_is_compared_again_is_not_counted_again() -> None:
    world = world_with(partitions=1, batches=4)
    async with mirroring(world) as mirror:
        await eventually(world.is_equal)
        mirror.board.submit(FIRST, Start("again"))
        world.source.produce("orders", 0, 1)
        await eventually(world.is_equal)
        await eventually(lambda: mirror.board.row(FIRST).facts.progress.mirrored_records >= 15)
        progress = mirror.board.row(FIRST).facts.progress
        assert (progress.mirrored_records, progress.mirrored_bytes) == (15, len(world.source.logs[FIRST].data))
