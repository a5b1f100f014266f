"""Gives each partition its rank when capacity is scarce, as `core/priorities.py` decides."""

from __future__ import annotations

from mirror.flow.board import FlowBoard
from mirror.flow.core.priorities import Classes, is_backfill_rank, is_backfilling, rank_of
from mirror.flow.rows import Row
from wire.protocol.ids import TopicPartition


class Ranks:
    """The ranks of one mirror's partitions."""

    def __init__(self, board: FlowBoard, classes: Classes, *, backfill_bytes: int) -> None:
        """`backfill_bytes` is the lag from which a partition counts as backfill."""
        self._board = board
        self._classes = classes
        self._backfill_bytes = backfill_bytes
        self._restless: dict[TopicPartition, Row] = {}

    def update(self) -> bool:
        """Rank the partitions about which something may have changed; True if a rank has
        changed.
        """
        restless = dict(self._board.restless_rows())
        has_changed = False
        # Those of the last time too: a partition that has caught up since then may have another
        # rank.
        for key, row in {**self._restless, **restless}.items():
            is_far_behind = is_backfilling(
                self._board.lag(key),
                was_backfilling=is_backfill_rank(row.rank),
                threshold_bytes=self._backfill_bytes,
            )
            rank = rank_of(self._classes.of(key.topic), is_backfill=is_far_behind)
            has_changed |= rank != row.rank
            row.rank = rank
        self._restless = restless
        return has_changed
