"""Reports to the target about partitions without new records, as one session for each of its
brokers and each fetcher: a report names only the partitions that have entered or left the session,
so ten thousand idle partitions cost as much as ten.

A partition enters after its producer has reported it alone and the target's answer had no news. It
leaves with the next command of its flow, and when the target answers that its log or role is not as
reported; its producer reports it alone then, and the flow gets the reason. A session ends when a
report fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from kio.schema.errors import ErrorCode

from mirror.flow.board import FlowBoard
from mirror.flow.core.reports import REPORT_INTERVAL_MS
from mirror.flow.rows import QuietRounds, Row
from mirror.link.link_watch import LinkView
from mirror.link.ports import IdlePartition, ReportPort, Unreachable
from runtime.logs import get_logger
from runtime.supervision import in_background
from wire.protocol.ids import TopicPartition

NEW_SESSION: Final = 0
ENTERING_MAX: Final = 2_000
"""The number of partitions that may enter with one report, so that it occupies neither event loop
for long.
"""

_log = get_logger("mirror.reports")


class _Session:
    """The partitions that one broker of the target knows by number."""

    def __init__(self, node_id: int, rounds: QuietRounds) -> None:
        self.node_id = node_id
        self.rounds = rounds
        self.session_id = NEW_SESSION
        self.numbers: dict[TopicPartition, int] = {}
        self.keys: dict[int, TopicPartition] = {}
        self.left: list[int] = []
        self._next_number = 0

    def enter(self, key: TopicPartition) -> None:
        """Number the partition as the broker will."""
        self.numbers[key], self.keys[self._next_number] = self._next_number, key
        self._next_number += 1

    def leave(self, key: TopicPartition) -> None:
        """The next report removes the partition at the broker."""
        number = self.numbers.pop(key)
        del self.keys[number]
        self.left.append(number)


class IdleReports:
    """The worker that sends the sessions' reports."""

    def __init__(self, board: FlowBoard, port: ReportPort, link: Callable[[], LinkView]) -> None:
        self._board = board
        self._port = port
        self._link = link
        self._entering: dict[TopicPartition, None] = {}
        self._sessions: dict[tuple[int, QuietRounds], _Session] = {}
        self._reporting: dict[_Session, asyncio.Task[None]] = {}

    def acknowledged(self, key: TopicPartition) -> None:
        """The target has acknowledged a report about this partition alone, and had no news."""
        if self._may_enter(key):
            self._entering[key] = None

    async def run(self) -> None:
        """Report until cancelled."""
        try:
            while True:
                await asyncio.sleep(REPORT_INTERVAL_MS / 1000)
                self.report()
        finally:
            for task in self._reporting.values():
                task.cancel()
            await asyncio.gather(*self._reporting.values(), return_exceptions=True)
            for session in tuple(self._sessions.values()):
                self._end(session)

    async def close(self) -> None:
        """Drop the connections."""
        await self._port.close()

    def report(self) -> None:
        """Send the report of each session that has no report under way."""
        entering = self._take_entering()
        for session in tuple(self._sessions.values()):
            if session in self._reporting:
                continue
            keys = entering.get(session, [])
            for key in keys:
                session.enter(key)
                self._board.enter_session(key, partial(self._leave, session))
            if not session.numbers:
                self._end(session)
                continue
            task = in_background("idle reports", self._report(session, keys))
            self._reporting[session] = task
            task.add_done_callback(partial(self._reported, session))

    def _may_enter(self, key: TopicPartition) -> bool:
        if key not in self._board or not self._board.is_settled(key):
            return False
        row = self._board.row(key)
        return row.leave_session is None and row.target.node_id >= 0

    def _take_entering(self) -> dict[_Session, list[TopicPartition]]:
        """The partitions that enter now; those whose session has a report under way, or is full,
        are reported alone again and enter after that.
        """
        found: dict[_Session, list[TopicPartition]] = {}
        for key in self._entering:
            row = self._board.row(key) if self._may_enter(key) else None
            if row is None or row.quiet is None:
                continue
            at = (row.target.node_id, row.quiet)
            session = self._sessions.get(at) or self._sessions.setdefault(at, _Session(*at))
            keys = found.setdefault(session, [])
            if session not in self._reporting and len(keys) < ENTERING_MAX:
                keys.append(key)
        self._entering.clear()
        return found

    async def _report(self, session: _Session, entering: list[TopicPartition]) -> None:
        link = self._link()
        left, session.left = session.left, []
        try:
            answer = await self._port.report(
                session.node_id,
                link=link.name,
                link_epoch=link.epoch,
                session_id=session.session_id,
                source_seen_at_ms=self._board.answered_at_ms(session.rounds),
                removed=left,
                added=[_idle(key, self._board.row(key)) for key in entering],
            )
        except Unreachable as error:
            _log.debug("the target gets no report about idle partitions", broker=session.node_id, reason=str(error))
            self._end(session)
            return
        if answer.error is not ErrorCode.none:
            _log.debug(
                "the target refuses a report about idle partitions", broker=session.node_id, error=answer.error.name
            )
            self._end(session)
            return
        session.session_id = answer.session_id
        for number in answer.ended:
            key = session.keys.get(number)
            if key is not None:
                self._leave(session, key)

    def _reported(self, session: _Session, task: asyncio.Task[None]) -> None:
        self._reporting.pop(session, None)
        if task.cancelled() or task.exception() is not None:
            self._end(session)

    def _leave(self, session: _Session, key: TopicPartition) -> None:
        session.leave(key)
        self._board.leave_session(key)

    def _end(self, session: _Session) -> None:
        for key in tuple(session.numbers):
            self._leave(session, key)
        self._sessions.pop((session.node_id, session.rounds), None)


def _idle(key: TopicPartition, row: Row) -> IdlePartition:
    progress = row.facts.progress
    return IdlePartition(
        key=key,
        topic_id=row.topic_id,
        log_end_offset=progress.target_log_end_offset,
        source_high_watermark=progress.source_high_watermark,
    )
