"""The pace of a fetcher: at once while much arrives, with a pause while little does, and never
later than a sync link allows.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from clients.budget import QueueFull
from mirror.assembly import Mirror
from mirror.flow.board import FlowBoard
from mirror.flow.core.flow_decisions import Decision
from mirror.flow.core.flow_events import Command, Start
from mirror.flow.core.flow_state import FlowFacts, FlowState
from mirror.flow.core.window import QueuedBatches
from mirror.flow.effect_acts import StateLines
from mirror.flow.fetchers import Fetcher
from mirror.flow.queue import ByteQueue
from mirror.link.ports import FetchAnswer, FetchPart, FetchParts
from runtime.clock import SystemClock
from tests.support.eventually import eventually
from tests.support.memory.memory_mirror import mirroring, world_with
from tests.support.memory.memory_ports import MemoryFetch
from tests.support.memory.memory_world import MemoryWorld
from wire.protocol.ids import TopicPartition
from wire.rules.links import SyncPolicy

FIRST, OTHER = TopicPartition("orders", 0), TopicPartition("other", 0)
SETTINGS = {"num.streams": "1", "antipode.fetch.interval.ms": "1000"}


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all answers with records."""
    sizes: list[int] = []
    fetch = MemoryFetch.fetch

    async def noted(port: MemoryFetch, node_id: int, parts: FetchParts, **options: Any) -> Sequence[FetchAnswer]:
        answers = await fetch(port, node_id, parts, **options)
        if answers:
            sizes.append(sum(len(answer.records) for answer in answers))
        return answers

    monkeypatch.setattr(MemoryFetch, "fetch", noted)
    return sizes


async def test_records_that_arrive_during_a_fetchers_pause_come_in_one_answer(
    monkeypatch: pytest.MonkeyPatch, answered: list[int]
) -> None:
    rests_ms: list[float] = []
    are_over = asyncio.Event()

    async def rest(fetcher: Fetcher) -> None:
        if fetcher._throttle_time_ms() > 0:
            rests_ms.append(fetcher._throttle_time_ms())
            await are_over.wait()

    monkeypatch.setattr(Fetcher, "_rest", rest)
    world = world_with(partitions=1, batches=1)
    async with mirroring(world, **SETTINGS):
        await eventually(lambda: rests_ms)
        await eventually(world.is_equal)
        world.source.produce("orders", 0, 3)
        assert len(answered) == 1
        are_over.set()
        await eventually(world.is_equal)
        assert len(answered) == 2
    assert all(0 < throttle_time_ms <= 1000 for throttle_time_ms in rests_ms)


@pytest.mark.parametrize("is_sync", [False, True])
async def test_only_a_link_that_is_not_sync_pauses_between_fetches(
    monkeypatch: pytest.MonkeyPatch, is_sync: bool
) -> None:
    rests: list[bool] = []
    throttle_time_ms = Fetcher._throttle_time_ms

    def noted(fetcher: Fetcher) -> float:
        rests.append(throttle_time_ms(fetcher) > 0)
        return throttle_time_ms(fetcher)

    monkeypatch.setattr(Fetcher, "_throttle_time_ms", noted)
    world = world_with(partitions=1, batches=1)
    if is_sync:
        world.record.sync_policy = SyncPolicy.BLOCK.value
    async with mirroring(world, **SETTINGS):
        for _ in range(2):
            before = len(rests)
            world.source.produce("orders", 0, 1)
            await eventually(world.is_equal)
            await eventually(lambda before=before: len(rests) > before)
    assert any(rests) is not is_sync


async def test_idle_partitions_need_no_command_for_a_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mirror judges their silence by the rounds instead."""
    world = world_with(partitions=3, batches=1)
    commands: list[object] = []
    submit = FlowBoard.submit

    def noted(board: FlowBoard, key: TopicPartition, command: Command) -> Decision:
        commands.append(command)
        return submit(board, key, command)

    async with mirroring(world, **SETTINGS) as mirror:
        await eventually(world.is_equal)
        await eventually(lambda: all(row.quiet is not None for _, row in mirror.board.rows()))
        monkeypatch.setattr(FlowBoard, "submit", noted)
        rows = dict(mirror.board.rows())
        (rounds,) = {row.quiet for row in rows.values()}
        assert rounds is not None
        before = rounds.answered
        await eventually(lambda: rounds.answered.monotonic_ms > before.monotonic_ms)
        assert commands == []
        assert all(mirror.board.silence_ms(key) < 60_000 for key in rows)
        world.source.produce("orders", 0, 1)
        await eventually(world.is_equal)
        assert commands


async def waiting_at_source(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> Fetcher:
    """The fetcher, once only records of its own partitions end its request, which is not brief."""
    (fetcher,) = mirror.fetchers
    before_ms = SystemClock().monotonic_ms()
    monkeypatch.setattr(MemoryFetch, "wait_max_s", None)
    await eventually(lambda: fetcher._waits_at_source and fetcher._sent_at_ms > before_ms)
    return fetcher


async def test_records_of_a_new_partition_do_not_wait_for_the_fetch_that_waits_at_the_source(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = world_with(partitions=1, batches=1)
    async with mirroring(world, **SETTINGS) as mirror:
        await eventually(world.is_equal)
        fetcher = await waiting_at_source(mirror, monkeypatch)
        world.source.add("payments", 2)
        for batches in (1, 2):
            world.source.produce("payments", 1, batches)
            await eventually(world.is_equal)
        assert fetcher._waits_at_source
        # The next fetch names them.
        world.source.produce("orders", 0, 1)
        await eventually(lambda: {key.topic for key in fetcher._sent_parts} == {"orders", "payments"})
        await eventually(lambda: not fetcher._late.is_under_way)
        world.source.produce("payments", 0, 1)
        await eventually(world.is_equal)


async def test_too_many_new_partitions_wait_for_the_next_fetch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Brief fetches of thousands of partitions would take the CPU that their checks need."""
    world = world_with(partitions=1, batches=1)
    monkeypatch.setattr("mirror.flow.fetchers.LATE_PARTITIONS_MAX", 0)
    async with mirroring(world, **SETTINGS) as mirror:
        await eventually(world.is_equal)
        fetcher = await waiting_at_source(mirror, monkeypatch)
        world.source.add("payments", 2)
        world.source.produce("payments", 1, 1)
        await eventually(lambda: len(fetcher._parts()) == 3)
        assert not fetcher._late.is_under_way
        assert not world.is_equal()
        world.source.produce("orders", 0, 1)
        await eventually(world.is_equal)


async def test_only_partitions_about_which_something_has_changed_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[TopicPartition] = []
    look = Fetcher._part

    def noted(fetcher: Fetcher, key: TopicPartition) -> FetchPart | None:
        looked.append(key)
        return look(fetcher, key)

    world = world_with(partitions=3, batches=1)
    async with mirroring(world, **{**SETTINGS, "antipode.fetch.interval.ms": "0"}) as mirror:
        await eventually(world.is_equal)
        await eventually(lambda: all(row.quiet is not None for _, row in mirror.board.rows()))
        await eventually(lambda: all(fetcher._changed == set() for fetcher in mirror.fetchers))
        monkeypatch.setattr(Fetcher, "_part", noted)
        world.source.produce("orders", 1, 1)
        await eventually(world.is_equal)
        await eventually(lambda: looked)
    assert set(looked) == {TopicPartition("orders", 1)}


async def test_a_mirror_whose_site_has_become_active_fetches_nothing_before_its_flows_know(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mirror.flow.followed_link.SLICE_PAUSE_S", 0.5)
    monkeypatch.setattr("mirror.flow.followed_link.ROWS_A_SLICE", 1)
    fetched: list[int] = []
    fetch = MemoryFetch.fetch

    async def noted(port: MemoryFetch, node_id: int, parts: FetchParts, **options: Any) -> Sequence[FetchAnswer]:
        fetched.append(node_id)
        return await fetch(port, node_id, parts, **options)

    monkeypatch.setattr(MemoryFetch, "fetch", noted)
    world = world_with(partitions=3, batches=1)
    async with mirroring(world, **SETTINGS) as mirror:
        await eventually(world.is_equal)
        world.record.epoch, world.record.active_site = 2, "b"
        await eventually(lambda: len(mirror.board.promoted_rows()) == 1)
        fetched.clear()
        world.source.produce("orders", 1, 1)
        for _ in range(20):
            await asyncio.sleep(0)
        assert fetched == []
        # back again: each flow compares the histories first, also those that had not learned of it
        world.record.epoch, world.record.active_site = 3, "a"
        await eventually(world.is_equal)
        assert all(row.facts.generation > 1 for _, row in mirror.board.rows())


@pytest.mark.parametrize("is_together", [False, True])
async def test_an_answer_that_finds_no_room_is_fetched_again(
    monkeypatch: pytest.MonkeyPatch, *, is_together: bool
) -> None:
    put: list[set[TopicPartition]] = []
    put_all = ByteQueue.put

    async def full_at_first(queue: ByteQueue, placed: Sequence[tuple[int, QueuedBatches]], rank: int) -> None:
        put.append({entry.key for _, entry in placed})
        if len(put) <= 2:
            raise QueueFull("full")
        await put_all(queue, placed, rank)

    monkeypatch.setattr(ByteQueue, "put", full_at_first)
    monkeypatch.setattr(ByteQueue, "takes_together", lambda *_: is_together)
    world = world_with(partitions=3, batches=1)
    async with mirroring(world, **SETTINGS):
        await eventually(world.is_equal)
        put.clear()
        for partition in range(3):
            world.source.produce("orders", partition, 2)
        await eventually(world.is_equal)
    assert len(put) > 2
    assert max(len(keys) for keys in put) == (3 if is_together else 1)


async def test_an_answer_full_of_other_records_does_not_end_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last batch of the copy, which is to be compared, has had no room in it."""
    world = MemoryWorld()
    for site in (world.source, world.target):
        site.add("orders", 1)
    world.source.add("other", 1, number=2)
    world.source.produce("orders", 0, 3, epoch=7)
    world.target.produce("orders", 0, 2, epoch=7)
    world.target.produce("orders", 0, 1, epoch=7)
    log = world.target.logs[FIRST]
    log.batches[-1] = log.batches[-1][:-1] + bytes([log.batches[-1][-1] ^ 1])
    fetch = MemoryFetch.fetch
    is_full = False

    async def filled(port: MemoryFetch, node_id: int, parts: FetchParts, **options: Any) -> Sequence[FetchAnswer]:
        answers = await fetch(port, node_id, parts, **options)
        if not is_full or FIRST not in parts:
            return answers
        if OTHER not in parts:
            return []
        world.source.produce("other", 0, 1)
        others = await fetch(port, node_id, parts, **options | {"changed": ()})
        return [replace(one, records=memoryview(b"")) if one.key == FIRST else one for one in others]

    reached: defaultdict[TopicPartition, set[FlowState]] = defaultdict(set)
    write = StateLines.write

    def noted(lines: StateLines, key: TopicPartition, before: FlowState, after: FlowFacts) -> None:
        reached[key].add(after.state)
        write(lines, key, before, after)

    monkeypatch.setattr(StateLines, "write", noted)
    monkeypatch.setattr(MemoryFetch, "fetch", filled)
    async with mirroring(world, **SETTINGS) as mirror:
        await eventually(lambda: FIRST in mirror.board and mirror.board.row(FIRST).facts.state is FlowState.FAULTED)
        is_full = True
        reached.clear()
        read = len(world.source.logs[OTHER].batches)
        mirror.board.submit(FIRST, Start())
        await eventually(lambda: len(world.source.logs[OTHER].batches) > read + 2)
    assert FlowState.MIRRORING not in reached[FIRST]
