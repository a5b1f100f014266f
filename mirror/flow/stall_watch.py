"""Watches whether every partition advances, and restarts stalled ones, also if their workers report
no problem. Also finds partitions that advance too slowly.

`core/liveness.py` decides. The source is asked about a suspected partition directly, without its
fetcher. A stall appears in the log, in a metric and in the partition's reason; partitions that
stall because all wait for the byte rate or for memory are reported in the same way, and not
restarted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from mirror.flow.board import FlowBoard
from mirror.flow.core.flow_events import Start
from mirror.flow.core.flow_state import FlowState
from mirror.flow.core.liveness import LagGrowth, LagWindows, Liveness, Remedy
from mirror.flow.rows import Row
from mirror.link.ports import LogEnds, SitePort
from runtime.clock import Clock
from runtime.logs import state_change_logger
from wire.protocol.ids import TopicPartition

LOOKS_A_STALL: Final = 6

_state_change = state_change_logger()


class StallWatch:
    """The task that detects stalled partitions."""

    def __init__(
        self,
        board: FlowBoard,
        *,
        source: SitePort,
        waited_ms: Callable[[], float],
        replace_workers: Callable[[TopicPartition, str], None],
        clock: Clock,
        stall_ms: int,
    ) -> None:
        self._board = board
        self._source = source
        self._waited_ms = waited_ms
        self._replace_workers = replace_workers
        self._clock = clock
        self._stall_ms = stall_ms
        self._liveness = Liveness(stall_ms=stall_ms)
        self._windows = LagWindows()
        # Replaced as a whole: another thread reads metrics.
        self.falling_behind: Mapping[TopicPartition, LagGrowth] = {}
        # When any partition of the link last advanced while fetchers waited for bytes.
        self._congested_at_ms = float("-inf")
        self._before = (0.0, 0)
        self.remedies: dict[str, int] = {remedy.value: 0 for remedy in Remedy if remedy is not Remedy.NONE}

    @property
    def stalled_for_ms(self) -> Mapping[TopicPartition, int]:
        """Partitions that do not move, and for how long."""
        now_ms = self._clock.monotonic_ms()
        stalled = dict(self._liveness.stalled_since_ms)
        return {key: max(0, round(now_ms - since_ms)) for key, since_ms in stalled.items()}

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            await asyncio.sleep(self._stall_ms / LOOKS_A_STALL / 1000)
            await self.look()

    async def look(self) -> None:
        """Look at all partitions once."""
        now_ms = self._clock.monotonic_ms()
        self._look_for_congestion(self._board.moved_bytes, now_ms)
        rows = self._rows_to_judge()
        self._liveness.keep(frozenset(key for key, _ in rows))
        self._look_at_lags(rows, now_ms)
        suspects = [
            key
            for key, row in rows
            if self._liveness.see(key, row.facts, received_ms_ago=self._board.silence_ms(key), now_ms=now_ms)
        ]
        if not suspects:
            return
        found = await self._source.log_ends({key: self._board.row(key).source for key in suspects})
        for key in suspects:
            ends = found.get(key)
            if isinstance(ends, LogEnds):
                self._judge(key, ends)

    def _look_at_lags(self, rows: list[tuple[TopicPartition, Row]], now_ms: float) -> None:
        mirrored = {key: row.facts.progress for key, row in rows if row.facts.state is FlowState.MIRRORING}
        self._windows.keep(mirrored.keys())
        for key, progress in mirrored.items():
            self._windows.see(
                key,
                target_end=progress.target_log_end_offset,
                source_end=progress.source_high_watermark,
                now_ms=now_ms,
            )
        self.falling_behind = self._windows.falling_behind()

    def _rows_to_judge(self) -> list[tuple[TopicPartition, Row]]:
        """All partitions but those that have everything, as their source has just answered."""
        # One look earlier than a stall, so that the stall counts from the last answer.
        silent = self._board.silent(for_ms=self._stall_ms - self._stall_ms / LOOKS_A_STALL)
        rows = dict(self._board.restless_rows()) | {key: self._board.row(key) for key in silent}
        return [(key, row) for key, row in rows.items() if row.is_ours]

    def _judge(self, key: TopicPartition, ends: LogEnds) -> None:
        now_ms = self._clock.monotonic_ms()
        facts = self._board.row(key).facts
        if not self._liveness.see(key, facts, received_ms_ago=self._board.silence_ms(key), now_ms=now_ms):
            return  # it advanced while the source was asked
        is_new = key not in self._liveness.stalled_since_ms
        is_congested = now_ms - self._congested_at_ms < self._stall_ms
        remedy = self._liveness.judge(key, facts, is_congested=is_congested, now_ms=now_ms)
        if is_new or remedy is not Remedy.NONE:
            _state_change.warning(
                "a partition makes no progress",
                partition=str(key),
                state=facts.state.value,
                step=facts.step.value,
                source_end=ends.end_offset,
                target_end=facts.progress.target_log_end_offset,
                stalled_ms=self.stalled_for_ms[key],
                remedy=remedy.value,
                reason=facts.reason,
            )
        if remedy is not Remedy.NONE:
            self.remedies[remedy.value] += 1
        reason = f"it has not moved for {self.stalled_for_ms[key]} ms"
        if remedy is Remedy.RESTART:
            self._board.submit(key, Start(reason))
        elif remedy is Remedy.REPLACE_WORKERS:
            self._replace_workers(key, reason)

    def _look_for_congestion(self, moved_bytes: int, now_ms: float) -> None:
        waited_ms, before = self._waited_ms(), self._before
        if waited_ms > before[0] and moved_bytes > before[1]:
            self._congested_at_ms = now_ms
        self._before = (waited_ms, moved_bytes)
