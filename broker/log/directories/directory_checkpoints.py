"""The offset checkpoints of one log directory: their contents, and writing them without blocking
the event loop.

The content of a file is collected on the loop, in slices, and written in a thread: temporary file,
fdatasync, rename, fsync of the directory. Two writes of one file never overlap, and an earlier
collection never replaces a later one: a truncation first lowers a recovery point on disk, and an
older content that is still being written must not raise it again. A caller during a write shares
the next write with all other callers.

Owner: broker/log/directories/log_directory.py.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import threading
from collections.abc import Callable, Collection, Container, Mapping
from typing import Final

from msgspec import Struct, field

from broker.log.directories import checkpoints
from broker.log.errors import storage_errors
from broker.log.partition_log import PartitionLog
from broker.log.threads import in_thread
from runtime.disk import Disk
from wire.protocol.ids import TopicPartition

LINES_PER_TURN: Final = 200
"""The number of logs that are asked before the event loop turns to others."""

NO_STARTS: Final[Mapping[TopicPartition, int]] = {}

ValueOf = Callable[[PartitionLog], int | None]


def _log_start(log: PartitionLog) -> int | None:
    """Return the log start of a log that does not begin with a segment."""
    # a log that begins with a segment needs no line, as in Kafka: the file name says it
    return log.log_start_offset if log.log_start_offset > log.segments.first.base_offset else None


def _compacted_to(log: PartitionLog) -> int | None:
    return log.compacted_to if log.config.is_compacted and log.compacted_to > log.log_start_offset else None


VALUES: Final[Mapping[str, ValueOf]] = {
    checkpoints.RECOVERY_POINTS: lambda log: log.recovery_point_to_save,
    checkpoints.HIGH_WATERMARKS: lambda log: log.high_watermark,
    checkpoints.LOG_START_OFFSETS: _log_start,
    checkpoints.CLEANER_OFFSETS: _compacted_to,
    checkpoints.SOURCE_HIGH_WATERMARKS: lambda log: log.source.high_watermark if log.source.is_known else None,
    checkpoints.SOURCE_SEEN_AT: lambda log: log.source.seen_at_ms if log.source.is_known else None,
    checkpoints.SOURCE_LOG_EPOCHS: lambda log: log.source.log_epoch if log.source.is_known else None,
}
"""The value of a log in each file; None if the log has no line there."""
_ONLY_WITH_LINES: Final = (
    checkpoints.SOURCE_HIGH_WATERMARKS,
    checkpoints.SOURCE_SEEN_AT,
    checkpoints.SOURCE_LOG_EPOCHS,
)
"""A broker without copies of another site's topics does not have these files."""


class _Draft(Struct, eq=False):
    """The next content of a file; a higher number was collected later."""

    number: int
    offsets: dict[TopicPartition, int] = field(default_factory=dict)


class _OffsetFile:
    """One file. `write` may run in any thread; all other methods run on the event loop, or before
    it exists.
    """

    def __init__(self, disk: Disk, path: str, value: ValueOf) -> None:
        self.path = path
        self.value = value
        self.lines: Mapping[TopicPartition, int] = {}
        """The content of the file on disk."""
        self.turn = asyncio.Lock()
        self._disk = disk
        self._drafts: list[_Draft] = []
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        self._written_number = 0

    def begin(self) -> _Draft:
        """A new draft; `end` must follow."""
        draft = _Draft(next(self._numbers))
        self._drafts.append(draft)
        return draft

    def end(self, draft: _Draft) -> None:
        """The content was written, or dropped."""
        self._drafts.remove(draft)

    def may_name(self, key: TopicPartition) -> bool:
        """True if the file has a line of this partition, or will have one."""
        return key in self.lines or any(key in draft.offsets for draft in self._drafts)

    def is_settled_since(self, number: int) -> bool:
        """True if content that was collected after `number` is on disk."""
        return self._written_number > number

    def latest_number(self) -> int:
        """The number of the newest content so far; each call increments it."""
        return next(self._numbers)

    def write(self, draft: _Draft) -> None:
        """Write the content durably, unless later content was written before."""
        with self._lock:
            # later content is on disk: this one is outdated
            if draft.number < self._written_number:
                return
            # nothing new to write, but the next checkpoint must notice a directory that has
            # vanished
            if draft.offsets == self.lines and self._written_number:
                probe(self._disk, os.path.dirname(self.path))
            else:
                checkpoints.write_offsets(self._disk, self.path, draft.offsets)
            # assigned under the lock and never changed: readers on the loop see one whole mapping
            self.lines = draft.offsets
            self._written_number = draft.number


class DirectoryCheckpoints:
    """All offset checkpoints of one directory, whose open logs are `logs`."""

    def __init__(self, disk: Disk, directory: str, logs: Mapping[TopicPartition, PartitionLog]) -> None:
        self.is_loading = False
        """If True, logs that are not opened yet keep their lines."""
        self.closed: Collection[TopicPartition] = ()
        """Logs that could not be opened; they keep their lines for the start after their repair."""
        self._logs = logs
        self._files = {name: _OffsetFile(disk, f"{directory}/{name}", value) for name, value in VALUES.items()}
        self._files_with_lines = [self._files[name] for name in _ONLY_WITH_LINES]

    def read(self, disk: Disk) -> list[checkpoints.CorruptCheckpoint]:
        """Read the files; return the damaged ones, which count as empty."""
        faults = []
        for file in self._files.values():
            try:
                file.lines = checkpoints.read_offsets(disk, file.path)
            except checkpoints.CorruptCheckpoint as fault:
                faults.append(fault)
        return faults

    def line(self, name: str, key: TopicPartition) -> int | None:
        """The value of a partition in a file on disk; None without a line."""
        return self._files[name].lines.get(key)

    def may_name(self, key: TopicPartition) -> bool:
        """True if any file has a line of this partition, or will have one."""
        return any(file.may_name(key) for file in self._files.values())

    def _wanted(self, names: Container[str]) -> list[_OffsetFile]:
        return [file for name, file in self._files.items() if name in names]

    def _is_wanted(self, file: _OffsetFile, draft: _Draft) -> bool:
        """False for a file that would be made without a line."""
        return file not in self._files_with_lines or bool(draft.offsets or file.lines)

    async def save(self, *names: str) -> None:
        """Update these files (all without names), in a thread. Raises StorageError."""
        for file in self._wanted(names or VALUES):
            # the number is taken before the wait: content collected after it has this caller's
            # values
            asked = file.latest_number()
            async with file.turn:
                if not file.is_settled_since(asked):
                    await self._save(file)

    async def _save(self, file: _OffsetFile) -> None:
        draft = file.begin()
        try:
            # before the first pause: a log that opens meanwhile replaces its line below
            self._keep_unopened(file, draft)
            # only the keys: pairs would be as many new objects for the garbage collector
            for number, key in enumerate(tuple(self._logs), 1):
                if number % LINES_PER_TURN == 0:
                    await asyncio.sleep(0)
                # the line of a deleted log, or of its successor, is up to date as well
                log = self._logs.get(key)
                value = file.value(log) if log is not None else None
                if value is not None:
                    draft.offsets[key] = value
            if self._is_wanted(file, draft):
                await in_thread(lambda: file.write(draft))
        finally:
            file.end(draft)

    def save_now(self, *names: str, starts: Mapping[TopicPartition, int] = NO_STARTS) -> None:
        """Like `save`, but blocks the caller: for a stop, and for values that must be on disk at
        once. `starts` are the log starts of logs that are not opened yet.
        """
        for file in self._wanted(names or VALUES):
            draft = file.begin()
            try:
                self._keep_unopened(file, draft)
                for key, log in self._logs.items():
                    value = file.value(log)
                    if value is not None:
                        draft.offsets[key] = value
                if file.value is _log_start:
                    draft.offsets.update(starts)
                if self._is_wanted(file, draft):
                    file.write(draft)
            finally:
                file.end(draft)

    def _keep_unopened(self, file: _OffsetFile, draft: _Draft) -> None:
        if self.is_loading:
            draft.offsets.update((key, offset) for key, offset in file.lines.items() if key not in self._logs)
        else:
            draft.offsets.update((key, file.lines[key]) for key in self.closed if key in file.lines)


def probe(disk: Disk, path: str) -> None:
    """StorageError unless the directory is there and can be opened."""
    with storage_errors("opening", path):
        disk.close(disk.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
