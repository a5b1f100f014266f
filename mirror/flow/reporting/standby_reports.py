"""Reports the target's acknowledged ends to a link's source: the source keeps records that the
target lacks beyond their retention, and on a sync link its producers and consumers wait for the
target.

All partitions are reported every five to ten seconds. A request names at most five hundred of them,
and each broker gets one request at a time. On sync links, a report also follows at once when the
target has acknowledged more of a partition, or when the flow begins again, for instance under a new
leader at the source. In between, each broker of the source is asked whether it needs the reports of
all partitions: only the broker knows that a hold has begun anew, by a new permit or policy. Ten
thousand idle partitions of a sync link therefore cost one empty request for each interval.

A partition is not reported until its history is proven to be that of the source's current leader:
the log of a partition that was FAULTED before its pause may end elsewhere. Two histories of one
leader epoch show their difference only when the target has compared its last batch.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from mirror.flow.board import FlowBoard
from mirror.flow.core.flow_state import FlowFacts, FlowState
from mirror.link.core.link_roles import LinkRole
from mirror.link.link_watch import LinkView
from mirror.link.ports import NEEDS_ALL_REPORTS, ProgressPort, Unreachable
from runtime.logs import get_logger
from runtime.supervision import in_background
from wire.protocol.ids import TopicPartition
from wire.rules.links import SyncPolicy, sync_policy

ASK_INTERVAL_S = 0.2
"""Interval (s) at which a sync link's source is asked whether it needs all reports, and at which
failed reports are repeated.
"""
AGAIN_INTERVAL_S_MAX = 1.6
"""Longest interval (s) at which a broker gets all reports that goes on asking for them: the standby
lags, or some of its partitions cannot be mirrored.
"""
ALL_INTERVAL_S = 5.0
"""Interval (s) at which all partitions are reported: well below the pause between two passes of
retention.
"""
ALL_INTERVAL_EACH_S = 0.001
ALL_INTERVAL_S_MAX = 10.0
"""The interval (s) for each partition of a link without a sync policy, if that is longer, and the
longest: each report of an idle partition costs both processes 5 to 10 microseconds.
"""
REPORTED_AT_ONCE_MAX = 500
"""Partitions in one request: it takes the broker's event loop 5 ms."""

_REPORTED_IN = (FlowState.MIRRORING, FlowState.PAUSED, FlowState.PROMOTING)

_log = get_logger("mirror.sync")


@dataclass(slots=True)
class _Again:
    """When a broker of the source is asked next, and when it may be sent all reports again."""

    ask_due_s: float = 0.0
    all_due_s: float = 0.0
    interval_s: float = ASK_INTERVAL_S


class StandbyReports:
    """The worker that reports a link's progress to the source. Call `acknowledged` after each
    acknowledgement.
    """

    def __init__(self, board: FlowBoard, port: ProgressPort, link: Callable[[], LinkView]) -> None:
        self._board = board
        self._port = port
        self._link = link
        self._changed: set[TopicPartition] = set()
        self._failed: set[TopicPartition] = set()
        self._wake = asyncio.Event()
        self._reporting: dict[int, asyncio.Task[None]] = {}
        self._ask_due_s = 0.0
        self._all_due_s = 0.0
        # The brokers of the source that have been sent reports, with the time at which each may be
        # sent all of them again, and the interval after that.
        self._brokers: dict[int, _Again] = {}

    def acknowledged(self, key: TopicPartition) -> None:
        """Note that the target has acknowledged more of a partition, or that its flow has begun
        again.
        """
        if self._is_sync():
            self._changed.add(key)
            self._wake.set()

    async def run(self) -> None:
        """Report until cancelled."""
        try:
            while True:
                await self._next_turn()
                for node_id, offsets in (self._questions() | self._by_leader()).items():
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
        """Wait until a report or a question is due. Questions are due after the interval, even if
        some partitions keep this loop busy.
        """
        loop = asyncio.get_running_loop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._ask_due_s):
                await self._wake.wait()
        self._wake.clear()
        if loop.time() < self._ask_due_s:
            return
        self._ask_due_s = loop.time() + ASK_INTERVAL_S
        if self._is_sync():  # On other links the regular report of all is soon enough.
            self._changed |= self._failed
        self._failed.clear()
        if loop.time() >= self._all_due_s:
            # a site that has become active is no standby, and its flows learn of it later
            rows = [] if self._link().role is LinkRole.TURNED else self._board.our_rows()
            self._all_due_s = loop.time() + self._all_interval_s(len(rows))
            self._changed.update(key for key, _ in rows)
            leaders = {row.source.node_id for _, row in rows}
            self._brokers = {node_id: again for node_id, again in self._brokers.items() if node_id in leaders}

    def _questions(self) -> dict[int, Mapping[TopicPartition, int]]:
        """The brokers that are asked now, each with no report."""
        now_s = asyncio.get_running_loop().time()
        if not self._is_sync():  # Read in each round, because the policy may change.
            return {}
        due = {node_id: again for node_id, again in self._brokers.items() if now_s >= again.ask_due_s}
        for again in due.values():
            again.ask_due_s = now_s + ASK_INTERVAL_S
        return {node_id: {} for node_id in due if node_id not in self._reporting}

    def _all_interval_s(self, count: int) -> float:
        longest_s = ALL_INTERVAL_S if self._is_sync() else ALL_INTERVAL_S_MAX
        return max(ALL_INTERVAL_S, min(longest_s, count * ALL_INTERVAL_EACH_S))

    def _is_sync(self) -> bool:
        return sync_policy(self._link().record) is not SyncPolicy.NONE

    def _by_leader(self) -> dict[int, Mapping[TopicPartition, int]]:
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
        return {**found}

    async def _report(self, node_id: int, offsets: Mapping[TopicPartition, int]) -> None:
        link = self._link()
        again = self._brokers.setdefault(node_id, _Again())
        refusal, left = "", list(offsets.items())
        while left or not offsets:
            part, left = dict(left[:REPORTED_AT_ONCE_MAX]), left[REPORTED_AT_ONCE_MAX:]
            try:
                refusal = await self._port.report(node_id, link=link.name, link_epoch=link.epoch, acknowledged=part)
            except Unreachable as error:
                _log.debug("cannot send progress to the source", broker=node_id, reason=str(error))
                self._failed.update(offsets)
                return
            # The broker may only lack what the next parts bring.
            if not left or refusal not in ("", NEEDS_ALL_REPORTS):
                break
        if refusal == NEEDS_ALL_REPORTS:
            self._failed.update(self._all_of(node_id, again))
            return
        again.interval_s = ASK_INTERVAL_S
        if refusal:
            _log.debug("the source refuses progress reports", broker=node_id, reason=refusal)
            self._failed.update(offsets)

    def _all_of(self, node_id: int, again: _Again) -> list[TopicPartition]:
        """The partitions that the broker leads, if it may be sent all reports again by now."""
        now_s = asyncio.get_running_loop().time()
        if now_s < again.all_due_s:
            return []
        again.all_due_s = now_s + again.interval_s
        again.interval_s = min(2 * again.interval_s, AGAIN_INTERVAL_S_MAX)
        return [key for key, row in self._board.our_rows() if row.source.node_id == node_id]

    def _reported(self, node_id: int, _: asyncio.Task[None]) -> None:
        del self._reporting[node_id]
        if self._changed:
            self._wake.set()


def _is_proven(facts: FlowFacts) -> bool:
    """The source's current leader has confirmed the target's history, and the target the source's
    last batch of it; an operator may have paused the partition since.
    """
    return facts.is_chained and not facts.awaits_comparison and facts.state in _REPORTED_IN
