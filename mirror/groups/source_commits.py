"""Follows the commits that groups write to the source's `__consumer_offsets`.

The tail returns batches; `CommitLog` decides which of their offsets count. A reader must also read
all offsets once at its start, because the tail has only later commits.
"""

from __future__ import annotations

from collections.abc import Iterable

from mirror.groups.core.commit_log import CommitLog
from mirror.groups.core.group_state import Offsets
from mirror.link.core.committed_offsets import GroupOffset
from mirror.link.group_ports import OffsetsTail
from mirror.link.ports import Unreachable
from runtime.logs import get_logger
from wire.batches.record_batch import InvalidBatch
from wire.protocol.ids import TopicPartition

_log = get_logger("mirror.groups")


class SourceCommits:
    """Commits by group, in the order of the source's log."""

    def __init__(self, tail: OffsetsTail) -> None:
        self._tail = tail
        self._logs: dict[int, CommitLog] = {}
        self._problem = ""
        self.is_following = False

    @property
    def complete_at_ms(self) -> float:
        """The monotonic time as of which every commit has been read."""
        return self._tail.complete_at_ms

    async def begin(self) -> bool:
        """Follow the source's commits from now on; False when they cannot be followed."""
        self.stop()
        try:
            await self._tail.begin()
        except Unreachable as error:
            self._note_problem(str(error))
            return False
        self._logs = {}
        self.is_following = True
        return True

    def stop(self) -> None:
        """Stop following."""
        self.is_following = False
        self._tail.stop()

    async def read(self, *, max_wait_ms: float) -> dict[str, Offsets]:
        """The next commits by group; none after `max_wait_ms`, and none when the tail ended, which
        `is_following` shows.
        """
        try:
            return self._changes(await self._tail.read(max_wait_ms=max_wait_ms))
        except (Unreachable, InvalidBatch) as error:
            return self._end(error)

    async def read_to_end(self) -> dict[str, Offsets]:
        """Read all commits up to now."""
        try:
            changes = self._changes(await self._tail.read_to_end())
        except (Unreachable, InvalidBatch) as error:
            return self._end(error)
        if self._problem:
            _log.info("following the source's commits again")
        self._problem = ""
        return changes

    def _changes(self, batches: Iterable[tuple[int, bytes]]) -> dict[str, Offsets]:
        found: dict[str, dict[TopicPartition, GroupOffset]] = {}
        for partition, raw in batches:
            read = self._logs.setdefault(partition, CommitLog()).read(raw)
            for group, offsets in read.changes.items():
                found.setdefault(group, {}).update(offsets)
            for offset in read.unreadable:
                _log.warning("skipped an unreadable offset record", partition=partition, offset=offset)
        return dict(found)

    def _end(self, error: Exception) -> dict[str, Offsets]:
        self.stop()
        self._note_problem(str(error))
        return {}

    def _note_problem(self, problem: str) -> None:
        if problem != self._problem:
            _log.info("cannot follow the source's commits; reading all offsets each round", reason=problem)
        self._problem = problem
