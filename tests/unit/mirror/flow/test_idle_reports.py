"""Idle partitions are reported in sessions: each enters after a report of its own, and leaves as
soon as anything about it may have changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from kio.schema.errors import ErrorCode

from mirror.assembly import Mirror
from mirror.flow import producers
from mirror.flow.reporting import idle_reports
from mirror.link.ports import IdlePartition, ReportAnswer, Unreachable
from tests.support.eventually import eventually
from tests.support.memory.memory_mirror import mirroring, world_with
from tests.support.memory.memory_world import MemoryWorld
from wire.protocol.ids import TopicPartition

FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


ONE_FETCHER = {"num.streams": "1"}
"""Each fetcher has a session of its own."""


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports follow each other after a moment."""
    monkeypatch.setattr(idle_reports, "REPORT_INTERVAL_MS", 20)
    monkeypatch.setattr(producers, "REPORT_INTERVAL_MS", 20)


class Target:
    """The report port of a broker that keeps sessions; it plays ReportPort."""

    def __init__(self) -> None:
        self.sessions: dict[int, dict[int, TopicPartition]] = {}
        self.problem: ErrorCode | Unreachable = ErrorCode.none
        self.not_as_reported: set[TopicPartition] = set()
        self.entered: list[IdlePartition] = []
        self.seen_at_ms = 0
        self._sizes: dict[int, int] = {}

    @property
    def partitions(self) -> set[TopicPartition]:
        """The partitions of the last session."""
        return set(self.sessions[max(self.sessions)].values()) if self.sessions else set()

    async def report(
        self,
        _: int,
        *,
        link: str,
        link_epoch: int,
        session_id: int,
        source_seen_at_ms: int,
        removed: Sequence[int],
        added: Sequence[IdlePartition],
    ) -> ReportAnswer:
        """Number the partitions as a broker does."""
        assert (link, link_epoch) == ("a-b", 1)
        if isinstance(self.problem, Unreachable):
            raise self.problem
        if self.problem is not ErrorCode.none:
            return ReportAnswer(self.problem, 0, ())
        if not session_id:
            session_id = len(self.sessions) + 1
            self.sessions[session_id], self._sizes[session_id] = {}, 0
        session = self.sessions[session_id]
        for one in added:
            session[self._sizes[session_id]] = one.key
            self._sizes[session_id] += 1
        for number in removed:
            session.pop(number, None)
        ended = [number for number, key in session.items() if key in self.not_as_reported]
        for number in ended:
            del session[number]
        self.entered += added
        self.seen_at_ms = source_seen_at_ms
        return ReportAnswer(ErrorCode.none, session_id, ended)

    async def close(self) -> None:
        """Hold no connection."""


def reporting(world: MemoryWorld, target: Target) -> None:
    ends = replace(world.ends(), open_reports=lambda: target)
    world.ends = lambda: ends  # type: ignore[method-assign]


def entries(target: Target, key: TopicPartition) -> list[IdlePartition]:
    return [one for one in target.entered if one.key == key]


def is_in_session(mirror: Mirror, key: TopicPartition) -> bool:
    return mirror.board.row(key).leave_session is not None


async def test_idle_partitions_share_one_session_whose_time_advances() -> None:
    world, target = world_with(partitions=2), Target()
    reporting(world, target)
    async with mirroring(world, **ONE_FETCHER):
        await eventually(lambda: target.partitions == {FIRST, SECOND})
        before_ms = target.seen_at_ms
        await eventually(lambda: target.seen_at_ms > before_ms)
    ends = {one.key: one for one in target.entered}[FIRST]
    assert ends.log_end_offset == ends.source_high_watermark == world.target.logs[FIRST].end
    assert len(target.sessions) == 1


async def test_a_partition_with_a_new_record_leaves_and_enters_again_with_its_new_end() -> None:
    world, target = world_with(partitions=2), Target()
    reporting(world, target)
    async with mirroring(world, **ONE_FETCHER) as mirror:
        await eventually(lambda: target.partitions == {FIRST, SECOND})
        world.source.produce("orders", 0, 5)
        await eventually(lambda: not is_in_session(mirror, FIRST))
        await eventually(lambda: len(entries(target, FIRST)) == 2)
        assert entries(target, FIRST)[1].log_end_offset == world.source.logs[FIRST].end
        await eventually(lambda: target.partitions == {FIRST, SECOND})
    assert len(entries(target, SECOND)) == 1
    assert len(target.sessions) == 1


async def test_a_partition_that_is_not_as_reported_is_reported_alone_again() -> None:
    world, target = world_with(partitions=2), Target()
    reporting(world, target)
    async with mirroring(world, **ONE_FETCHER) as mirror:
        await eventually(lambda: target.partitions == {FIRST, SECOND})
        target.not_as_reported = {FIRST}
        # The target has lost the end of the log: a report about the partition alone shows it.
        world.target.logs[FIRST].batches.pop()
        await eventually(lambda: target.partitions == {SECOND})
        await eventually(world.is_equal)
        target.not_as_reported = set()
        await eventually(lambda: target.partitions == {FIRST, SECOND} and is_in_session(mirror, FIRST))


@pytest.mark.parametrize("problem", [ErrorCode.fetch_session_id_not_found, Unreachable("down")])
async def test_a_session_that_fails_begins_anew(problem: ErrorCode | Unreachable) -> None:
    world, target = world_with(partitions=2), Target()
    reporting(world, target)
    async with mirroring(world, **ONE_FETCHER) as mirror:
        await eventually(lambda: target.partitions == {FIRST, SECOND})
        target.problem = problem
        await eventually(lambda: not is_in_session(mirror, FIRST) and not is_in_session(mirror, SECOND))
        target.problem = ErrorCode.none
        await eventually(lambda: len(target.sessions) == 2 and target.partitions == {FIRST, SECOND})


async def test_a_paused_partition_leaves_the_session() -> None:
    world, target = world_with(partitions=1), Target()
    reporting(world, target)
    async with mirroring(world, **ONE_FETCHER) as mirror:
        await eventually(lambda: target.partitions == {FIRST})
        mirror.pauses.pause(["orders"])
        assert not is_in_session(mirror, FIRST)
        mirror.pauses.resume([])
        await eventually(lambda: len(entries(target, FIRST)) == 2)
