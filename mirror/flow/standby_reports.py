"""Reports the target's acknowledged ends to a link's source: the source keeps records that the
target lacks beyond their retention, and on a sync link its producers and consumers wait for the
target.

All partitions are reported at intervals, with one request for each broker at a time, so that a new
leader at the source gets the state of its predecessor. On sync links, reports also follow every
acknowledgement at once, together with all newer ones. A partition is not reported until its history
is proven to be that of the source's current leader: the log of a partition that was FAULTED before
its pause may end elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from functools import partial

from mirror.flow.board import FlowBoard
from mirror.flow.core.flow_state import FlowFacts, FlowState
from mirror.link.link_watch import LinkView
from mirror.link.ports import ProgressPort, Unreachable
from runtime.logs import get_logger
from runtime.supervision import in_background
from wire.protocol.ids import TopicPartition
from wire.rules.links import SyncPolicy, sync_policy

ALL_INTERVAL_S = 0.2
"""Interval (s) within which a new leader at a sync link's source receives all reports."""
HOLD_INTERVAL_S = 5.0
"""The interval on other links, where only retention waits: well below the pause between two of its
passes.
"""

_REPORTED_IN = (FlowState.MIRRORING, FlowState.PAUSED, FlowState.PROMOTING)

_log = get_logger("mirror.sync")


class StandbyReports:
    """The worker that reports a link's progress to the source. Call `acknowledged` after each
    acknowledgement.
    """

    def __init__(self, board: FlowBoard, port: ProgressPort, link: Callable[[], LinkView]) -> None:
        self._board = board
        self._port = port
        self._link = link
        self._changed: set[TopicPartition] = set()
        self._wake = asyncio.Event()
        self._reporting: dict[int, asyncio.Task[None]] = {}
        self._all_due_s = 0.0
        self._hold_due_s = 0.0

    def acknowledged(self, key: TopicPartition) -> None:
        """Note that the target has acknowledged more of a partition."""
        if self._is_sync():
            self._changed.add(key)
            self._wake.set()

    async def run(self) -> None:
        """Report until cancelled."""
        try:
            while True:
                await self._next_turn()
                for node_id, offsets in self._by_leader().items():
                    reporting = in_background("standby reports", self._report(node_id, offsets))
                    self._reporting[node_id] = reporting
                    reporting.add_done_callback(partial(self._reported, node_id))
        finally:
            for reporting in self._reporting.values():
                reporting.cancel()
            await asyncio.gather(*self._reporting.values(), return_exceptions=True)

    async def close(self) -> None:
        """Drop the connections."""
        await self._port.close()

    async def _next_turn(self) -> None:
        """Wait until a report is due. All reports are due after the interval, even if some
        partitions keep this loop busy: an acknowledgement does not repeat a failed report.
        """
        loop = asyncio.get_running_loop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._all_due_s):
                await self._wake.wait()
        self._wake.clear()
        if loop.time() >= self._all_due_s:
            self._all_due_s = loop.time() + ALL_INTERVAL_S
            if not self._is_sync():  # Read in each round, because the policy may change.
                if loop.time() < self._hold_due_s:
                    return
                self._hold_due_s = loop.time() + HOLD_INTERVAL_S
            self._changed.update(key for key, _ in self._board.our_rows())

    def _is_sync(self) -> bool:
        return sync_policy(self._link().record) is not SyncPolicy.NONE

    def _by_leader(self) -> Mapping[int, Mapping[TopicPartition, int]]:
        """The reports to send now; partitions whose leader has a request in flight wait for the
        next one.
        """
        found: dict[int, dict[TopicPartition, int]] = {}
        for key in tuple(self._changed):
            row = self._board.row(key) if key in self._board else None
            if row is None or not row.is_ours or not _is_proven(row.facts) or row.source.node_id < 0:
                self._changed.discard(key)
            elif row.source.node_id not in self._reporting:
                self._changed.discard(key)
                if row.facts.progress.target_log_end_offset >= 0:
                    found.setdefault(row.source.node_id, {})[key] = row.facts.progress.target_log_end_offset
        return found

    async def _report(self, node_id: int, offsets: Mapping[TopicPartition, int]) -> None:
        link = self._link()
        try:
            refusal = await self._port.report(node_id, link=link.name, link_epoch=link.epoch, acknowledged=offsets)
        except Unreachable as error:
            _log.debug("cannot send progress to the source", broker=node_id, reason=str(error))
            return
        if refusal:
            _log.debug("the source refuses progress reports", broker=node_id, reason=refusal)

    def _reported(self, node_id: int, _: asyncio.Task[None]) -> None:
        del self._reporting[node_id]
        if self._changed:
            self._wake.set()


def _is_proven(facts: FlowFacts) -> bool:
    """The source's current leader has confirmed the target's history; an operator may have paused
    the partition since.
    """
    return facts.is_chained and facts.state in _REPORTED_IN
