"""Questions to the sites whose leaders change while the answer is on its way."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from mirror.flow.core.flow_events import SourceChecked
from mirror.flow.prober import Prober
from mirror.link.ports import Leader, LogEnds
from tests.support.eventually import eventually
from wire.batches.log_histories import EpochEnd
from wire.protocol.ids import TopicPartition

KEYS = [TopicPartition("orders", index) for index in range(3)]
OLD, NEW = Leader(1, 5), Leader(1, 1 << 20)


class Board:
    """Rows whose flows have generation 1."""

    def __init__(self) -> None:
        self.rows = {key: SimpleNamespace(source=OLD, facts=SimpleNamespace(generation=1)) for key in KEYS}
        self.submitted: dict[TopicPartition, Any] = {}

    def row(self, key: TopicPartition) -> Any:
        return self.rows[key]

    def __contains__(self, key: TopicPartition) -> bool:
        return key in self.rows

    def moment(self) -> int:
        return 0

    def as_of(self, moment: int) -> int:
        return moment

    def submit(self, key: TopicPartition, command: Any) -> None:
        self.submitted[key] = command

    def lines_together(self) -> AbstractContextManager[None]:
        return nullcontext()


class PromotedSource:
    """A source that is promoted while it answers for the first time."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self.asked: list[Mapping[TopicPartition, Leader]] = []

    async def epoch_ends(self, asked: Mapping[TopicPartition, Any]) -> Mapping[TopicPartition, EpochEnd]:
        return dict.fromkeys(asked, EpochEnd(0, 7))

    async def log_ends(self, leaders: Mapping[TopicPartition, Leader]) -> Mapping[TopicPartition, LogEnds]:
        self.asked.append(leaders)
        for row in self._board.rows.values():
            row.source = NEW
        return dict.fromkeys(leaders, LogEnds(log_start_offset=0, end_offset=7, last_epoch=0))


@pytest.mark.parametrize("is_restarted", [False, True], ids=["the same generation", "a newer generation"])
async def test_partitions_whose_leaders_change_meanwhile_are_asked_again_together(is_restarted: bool) -> None:
    board: Any = Board()
    source: Any = PromotedSource(board)
    prober = Prober(board, source=source, target=source)
    for key in KEYS:
        prober.check_source(key, 1, 0)
    board.rows[KEYS[0]].facts.generation += is_restarted
    await eventually(lambda: len(board.submitted) == len(KEYS) - is_restarted)
    assert [set(leaders.values()) for leaders in source.asked] == [{OLD}, {NEW}]
    assert len(source.asked[1]) == len(KEYS) - is_restarted
    assert {type(command) for command in board.submitted.values()} == {SourceChecked}
    await prober.close()
