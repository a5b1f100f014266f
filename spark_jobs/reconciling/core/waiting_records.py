"""Records of one end of a translate link that wait for an equal record of the other end. Pure.

`MemoryRecords` keeps them in memory; `spark_jobs/reconciling/spilled_records.py` keeps only the
newest of them there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, Protocol


class WaitingRecord(NamedTuple):
    """A record without an equal one so far. `timestamp_ms` is 0 where times are not compared."""

    offset: int
    content: bytes
    timestamp_ms: int
    key: bytes | None
    producer_id: int
    place: int = -1
    """The target offset that the map gives; -1 if it has no entry."""


class WaitingRecords(Protocol):
    """Records of one end, oldest first."""

    def __len__(self) -> int: ...

    def put(self, record: WaitingRecord) -> None:
        """Add a record behind all others."""

    def take(self, content: bytes, timestamp_ms: int) -> WaitingRecord | None:
        """Remove the first record with this content and time; None if there is no such record."""

    def mark(self, content: bytes, key: bytes | None, offset: int) -> None:
        """A record of the other end, or of the same one, has this content and key, and lies at this
        offset: mark the records of this content as known, and those of this key at lower offsets as
        superseded.
        """

    def drain(self) -> Iterator[tuple[WaitingRecord, bool, bool]]:
        """Remove all records, by offset: each with its two marks, known and superseded."""


class MemoryRecords:
    """`WaitingRecords` in memory."""

    def __init__(self) -> None:
        # Most contents are there once: a deque for each would need more memory than its record.
        self._equal: dict[tuple[bytes, int], WaitingRecord | deque[WaitingRecord]] = {}
        self._count = 0
        self._contents: set[bytes] | None = None
        self._keys: set[bytes | None] = set()
        self._known: set[bytes] = set()
        self._newest: dict[bytes, int] = {}

    def __len__(self) -> int:
        return self._count

    def put(self, record: WaitingRecord) -> None:
        """Add a record behind all others."""
        waiting = self._equal.setdefault((record.content, record.timestamp_ms), record)
        if isinstance(waiting, deque):
            waiting.append(record)
        elif waiting is not record:
            self._equal[record.content, record.timestamp_ms] = deque((waiting, record))
        self._count += 1
        self._contents = None

    def take(self, content: bytes, timestamp_ms: int) -> WaitingRecord | None:
        """Remove the first record with this content and time."""
        waiting = self._equal.get((content, timestamp_ms))
        if waiting is None:
            return None
        self._count -= 1
        if isinstance(waiting, deque):
            found = waiting.popleft()
            if waiting:
                return found
        else:
            found = waiting
        del self._equal[content, timestamp_ms]
        return found

    def mark(self, content: bytes, key: bytes | None, offset: int) -> None:
        """Mark records by content, and by key those at lower offsets."""
        if self._contents is None:
            self._contents = {content for content, _ in self._equal}
            self._keys = {one.key for one in self._all()}
        if content in self._contents:
            self._known.add(content)
        if key is not None and key in self._keys:
            self._newest[key] = max(offset, self._newest.get(key, -1))

    def drain(self) -> Iterator[tuple[WaitingRecord, bool, bool]]:
        """Remove all records, by offset."""
        waiting = sorted(self._all(), key=lambda one: one.offset)
        self._equal, self._count = {}, 0
        for one in waiting:
            is_superseded = one.key is not None and self._newest.get(one.key, -1) > one.offset
            yield one, one.content in self._known, is_superseded

    def _all(self) -> Iterator[WaitingRecord]:
        for waiting in self._equal.values():
            yield from waiting if isinstance(waiting, deque) else (waiting,)
