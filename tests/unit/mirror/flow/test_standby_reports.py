"""The reports to a link's source: only ends of histories that its present leader has confirmed."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec
import pytest

from mirror.assembly import Mirror
from mirror.flow.board import FlowBoard
from mirror.flow.core.flow_events import Acknowledged, BatchesFetched, NothingFetched
from mirror.flow.core.flow_state import FlowState
from mirror.flow.reporting import standby_reports
from mirror.flow.reporting.standby_reports import StandbyReports
from mirror.link.core.link_roles import LinkRole
from mirror.link.core.partitions import BatchRun
from mirror.link.ports import NEEDS_ALL_REPORTS, Leader
from tests.support.eventually import eventually
from tests.support.memory.memory_mirror import mirroring, states, world_with
from tests.support.memory.memory_ports import MemoryProgress
from tests.support.memory.memory_world import MemoryWorld
from tests.unit.mirror.flow.test_board import board as board_fixture
from tests.unit.mirror.flow.test_board import clock as clock_fixture
from tests.unit.mirror.flow.test_board import tell
from wire.protocol.ids import TopicPartition
from wire.rules.links import SyncPolicy

board, clock = board_fixture, clock_fixture
FIRST, OTHER = TopicPartition("orders", 0), TopicPartition("other", 0)


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """All ends are reported again after a moment."""
    monkeypatch.setattr(standby_reports, "ALL_INTERVAL_S", 0.5)


def sync_world() -> MemoryWorld:
    """The source has 15 records of each topic; the target has 27 of another history of `orders`."""
    world = MemoryWorld()
    world.record.sync_policy = SyncPolicy.BLOCK.value
    for number, topic in enumerate(("orders", "other"), start=1):
        world.source.add(topic, 1, number=number)
        world.source.produce(topic, 0, 5, epoch=7)
    world.target.add("orders", 1)
    world.target.produce("orders", 0, 9, epoch=3)
    return world


def reported_of(world: MemoryWorld, key: TopicPartition) -> list[int]:
    return [reported[key] for reported in world.reported if key in reported]


async def test_the_source_of_a_link_that_is_not_sync_gets_reports_too() -> None:
    """It keeps what the standby lacks beyond its retention."""
    world = world_with(partitions=1)
    async with mirroring(world) as mirror:
        reported: list[dict[TopicPartition, int]] = []
        await eventually(lambda: FIRST in mirror.board and states(mirror) == {FlowState.MIRRORING})
        await eventually(lambda: mirror.board.row(FIRST).facts.progress.target_log_end_offset == 60)
        reports = StandbyReports(mirror.board, MemoryProgress(reported), mirror.link)
        running = asyncio.create_task(reports.run())
        await eventually(lambda: {FIRST: 60} in reported)
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


async def test_a_paused_partition_is_reported_only_after_its_history_was_proven() -> None:
    world = sync_world()
    async with mirroring(world) as mirror:
        await eventually(lambda: FIRST in mirror.board and mirror.board.row(FIRST).facts.state is FlowState.FAULTED)
        await eventually(lambda: 15 in reported_of(world, OTHER))
        mirror.pauses.pause([])
        assert states(mirror) == {FlowState.PAUSED}
        world.reported.clear()
        await eventually(lambda: len(reported_of(world, OTHER)) > 2)
        assert not reported_of(world, FIRST)


async def test_a_paused_partition_is_not_reported_to_a_new_leader() -> None:
    world = world_with(partitions=1)
    world.record.sync_policy = SyncPolicy.BLOCK.value
    async with mirroring(world) as mirror:
        await eventually(lambda: 60 in reported_of(world, FIRST))
        mirror.pauses.pause([])
        world.source.leader = Leader(1002, 1)
        await eventually(lambda: mirror.board.row(FIRST).source.epoch == 1)
        world.reported.clear()
        await eventually(lambda: not mirror.board.row(FIRST).facts.is_chained)
        assert not reported_of(world, FIRST)
        mirror.pauses.resume([])
        await eventually(lambda: 60 in reported_of(world, FIRST))


@contextlib.asynccontextmanager
async def reporting(mirror: Mirror, port: MemoryProgress) -> AsyncIterator[StandbyReports]:
    reports = StandbyReports(mirror.board, port, mirror.link)
    running = asyncio.create_task(reports.run())
    try:
        yield reports
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_a_source_that_needs_all_reports_gets_those_of_quiet_partitions_while_others_are_busy() -> None:
    """The partition's leader at the source may be new, and producers and consumers wait for it."""
    world = sync_world()
    reported: list[dict[TopicPartition, int]] = []
    async with mirroring(world) as mirror:
        await eventually(lambda: 15 in reported_of(world, OTHER))
        world.source.add("quiet", 1, number=3)
        world.source.produce("quiet", 0, 5, epoch=7)
        quiet = TopicPartition("quiet", 0)
        await eventually(lambda: 15 in reported_of(world, quiet))
        async with reporting(mirror, MemoryProgress(reported, answer=lambda: NEEDS_ALL_REPORTS)) as reports:

            def has_heard_more_than_once() -> bool:
                reports.acknowledged(OTHER)
                return len([one for one in reported if quiet in one]) > 2

            await eventually(has_heard_more_than_once)


async def test_a_source_that_needs_nothing_is_only_asked() -> None:
    """Of ten thousand quiet partitions, none costs a report in each round."""
    world = sync_world()
    reported: list[dict[TopicPartition, int]] = []
    async with mirroring(world) as mirror:
        await eventually(lambda: 15 in reported_of(world, OTHER))
        async with reporting(mirror, MemoryProgress(reported)):
            await eventually(lambda: {OTHER: 15} in reported)
            await eventually(lambda: reported.count({}) > 3)


async def test_a_report_that_fails_is_repeated() -> None:
    world = sync_world()
    reported: list[dict[TopicPartition, int]] = []
    answers = ["stale", "stale"]
    async with mirroring(world) as mirror:
        await eventually(lambda: 15 in reported_of(world, OTHER))
        async with reporting(mirror, MemoryProgress(reported, answer=lambda: answers.pop() if answers else "")):
            await eventually(lambda: reported.count({OTHER: 15}) > 2)


async def test_a_partition_is_reported_when_its_flow_begins_again() -> None:
    """A new leader at the source has not had a report, and need not wait for the next round."""
    world = world_with(partitions=1)
    world.record.sync_policy = SyncPolicy.BLOCK.value
    async with mirroring(world) as mirror:
        await eventually(lambda: 60 in reported_of(world, FIRST))
        world.reported.clear()
        world.source.leader = Leader(1002, 1)
        await eventually(lambda: mirror.board.row(FIRST).source.epoch == 1)
        await eventually(lambda: 60 in reported_of(world, FIRST))


async def test_an_end_is_not_reported_before_the_target_has_compared_its_last_batch(board: FlowBoard) -> None:
    """Two histories of one leader epoch look equal until then: producers would get acks for records
    that the standby does not have.
    """
    world = MemoryWorld()
    world.record.sync_policy = SyncPolicy.BLOCK.value
    view = await world.read_link()
    reported: list[dict[TopicPartition, int]] = []
    reports = StandbyReports(board, MemoryProgress(reported), lambda: view)
    board.row(FIRST).source = world.source.leader
    reports.acknowledged(FIRST)
    assert not reports._by_leader()
    repeated = BatchRun(
        first_offset=9,
        next_offset=10,
        size_bytes=1,
        record_count=0,
        first_epoch=0,
        last_epoch=0,
        max_timestamp_ms=-1,
        repeated_bytes=1,
    )
    tell(board, BatchesFetched(generation=1, fetch_offset=9, run=repeated, high_watermark=10, log_start_offset=0))
    tell(board, Acknowledged(generation=1, log_end_offset=10))
    reports.acknowledged(FIRST)
    assert not reports._by_leader(), "an answer to a report compares nothing"
    tell(board, Acknowledged(generation=1, log_end_offset=10, has_compared=True))
    reports.acknowledged(FIRST)
    assert reports._by_leader() == {world.source.leader.node_id: {FIRST: 10}}


async def test_an_end_is_reported_whose_last_batch_the_source_has_compacted_away(board: FlowBoard) -> None:
    world = MemoryWorld()
    world.record.sync_policy = SyncPolicy.BLOCK.value
    view = await world.read_link()
    reports = StandbyReports(board, MemoryProgress([]), lambda: view)
    board.row(FIRST).source = world.source.leader
    tell(board, NothingFetched(generation=1, high_watermark=10, log_start_offset=0, may_have_more=True))
    reports.acknowledged(FIRST)
    assert not reports._by_leader(), "other partitions' records filled the answer"
    tell(board, NothingFetched(generation=1, high_watermark=10, log_start_offset=0))
    reports.acknowledged(FIRST)
    assert reports._by_leader() == {world.source.leader.node_id: {FIRST: 10}}


KEYS = [TopicPartition("many", index) for index in range(5)]


@pytest.mark.parametrize(
    ("answers", "sizes", "repeated"),
    [
        ([NEEDS_ALL_REPORTS, NEEDS_ALL_REPORTS, ""], [2, 2, 1], 0),
        (["", "stale", ""], [2, 2], 5),
    ],
    ids=["the broker lacks the next parts", "a part is refused"],
)
async def test_many_reports_are_sent_in_parts(
    board: FlowBoard, monkeypatch: pytest.MonkeyPatch, answers: list[str], sizes: list[int], repeated: int
) -> None:
    """A request with thousands of them would hold up the writers at the source's broker."""
    monkeypatch.setattr(standby_reports, "REPORTED_AT_ONCE_MAX", 2)
    view = await MemoryWorld().read_link()
    reported: list[dict[TopicPartition, int]] = []
    reports = StandbyReports(board, MemoryProgress(reported, answer=lambda: answers.pop(0)), lambda: view)
    await reports._report(1, dict.fromkeys(KEYS, 7))
    assert [len(part) for part in reported] == sizes
    assert len(reports._failed) == repeated


async def test_a_site_that_has_become_active_is_not_reported_as_a_standby(board: FlowBoard) -> None:
    view = await MemoryWorld().read_link()
    reports = StandbyReports(board, MemoryProgress([]), lambda: view)
    view = msgspec.structs.replace(view, role=LinkRole.TURNED)
    await reports._next_turn()
    assert not reports._changed
    view = msgspec.structs.replace(view, role=LinkRole.MIRRORING)
    reports._ask_due_s = reports._all_due_s = 0.0
    await reports._next_turn()
    assert FIRST in reports._changed


async def test_only_idle_partitions_in_great_number_without_a_policy_are_reported_less_often(
    board: FlowBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby_reports, "ALL_INTERVAL_S", 5.0)
    view = await MemoryWorld().read_link()
    reports = StandbyReports(board, MemoryProgress([]), lambda: view)
    assert [reports._all_interval_s(count) for count in (0, 5_000, 8_000, 20_000)] == [5.0, 5.0, 8.0, 10.0]
    view.record.sync_policy = SyncPolicy.BLOCK.value
    assert reports._all_interval_s(20_000) == 5.0
