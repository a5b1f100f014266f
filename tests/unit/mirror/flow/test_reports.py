"""A producer checks its idle partitions only when a report of one of them may be due."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from mirror.flow.core.flow_state import FlowState, Step
from mirror.flow.core.reports import REPORT_INTERVAL_MS
from mirror.flow.producers import Producer
from mirror.flow.queue import ByteQueue
from mirror.flow.rows import NO_LEADER
from mirror.link.ports import AppendAnswer, AppendPart, Leader
from tests.support.clock import ManualClock
from tests.support.eventually import eventually
from wire.protocol.ids import TopicPartition

FIRST, SECOND = TopicPartition("idle", 0), TopicPartition("idle", 1)
TOPIC_ID = UUID(int=1)
END = 5


class Target:
    """The append port; it notes which partitions each request reports."""

    def __init__(self) -> None:
        self.requests: list[list[TopicPartition]] = []

    async def append(self, _: int, *, link: str, link_epoch: int, parts: Sequence[AppendPart]) -> list[AppendAnswer]:
        """Plays AppendPort."""
        assert (link, link_epoch) == ("a-b", 1)
        self.requests.append([part.key for part in parts])
        return [
            AppendAnswer(
                key=part.key,
                error=ErrorCode.none,
                message="",
                log_end_offset=END,
                link_epoch=1,
                divergence_epoch=-1,
                divergence_end_offset=-1,
            )
            for part in parts
        ]


@dataclass
class Row:
    """The part of an idle partition's row that a report uses."""

    target: Leader = field(default_factory=lambda: Leader(node_id=1, epoch=0))
    topic_id: UUID = TOPIC_ID
    quiet: object = "yes"
    facts: Any = field(
        default_factory=lambda: SimpleNamespace(
            state=FlowState.MIRRORING,
            step=Step.STREAMING,
            generation=1,
            restart_offset=0,
            source_log_start_offset=0,
            progress=SimpleNamespace(target_log_end_offset=END, source_high_watermark=END),
        )
    )


class Board(dict[TopicPartition, Row]):
    """The partitions of one producer."""

    def row(self, key: TopicPartition) -> Row:
        """Plays FlowBoard."""
        return self[key]

    def source_answered_at_ms(self, _: TopicPartition) -> int:
        """Plays FlowBoard."""
        return 1


@pytest.fixture
def clock() -> ManualClock:
    clock = ManualClock()
    clock.advance(60_000)
    return clock


def producer_of(board: Any, port: Any, clock: ManualClock) -> Producer:
    return Producer(
        0,
        board=board,
        queue=ByteQueue(capacity_bytes=1 << 20, lanes=1),
        port=port,
        link=lambda: SimpleNamespace(name="a-b", epoch=1),  # type: ignore[arg-type,return-value]
        suspect_link=lambda: None,
        clock=clock,
        request_bytes_max=1 << 20,
        in_flight_max=5,
        on_appended=lambda *_: None,
    )


async def test_idle_partitions_are_checked_again_when_the_first_of_them_is_due(clock: ManualClock) -> None:
    board, port = Board({FIRST: Row(), SECOND: Row()}), Target()
    producer = producer_of(board, port, clock)
    assert producer.has_reports
    producer.report([FIRST])
    clock.advance(400)
    producer.report([FIRST, SECOND])
    await eventually(lambda: port.requests == [[FIRST], [SECOND]])
    clock.advance(REPORT_INTERVAL_MS - 401)
    assert not producer.has_reports
    clock.advance(1)
    assert producer.has_reports
    producer.report([FIRST, SECOND])
    await eventually(lambda: port.requests[2:] == [[FIRST]])
    assert not producer.has_reports


async def test_a_partition_that_cannot_be_reported_stays_due(clock: ManualClock) -> None:
    board, port = Board({FIRST: Row(), SECOND: Row(target=NO_LEADER)}), Target()
    producer = producer_of(board, port, clock)
    producer.report([FIRST, SECOND])
    assert producer.has_reports
    board[SECOND].target = board[FIRST].target
    producer.report([FIRST, SECOND])
    await eventually(lambda: port.requests == [[FIRST], [SECOND]])
    assert not producer.has_reports


async def test_a_producer_without_partitions_has_no_reports(clock: ManualClock) -> None:
    producer = producer_of(Board(), Target(), clock)
    producer.report([])
    assert not producer.has_reports
