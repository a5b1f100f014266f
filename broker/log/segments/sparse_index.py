"""A sparse index file: pairs of growing numbers, Kafka's `.index` and `.timeindex`.

`.index` entries are (relative offset, byte position) of 4 bytes each, `.timeindex` entries
(timestamp of 8 bytes, relative offset of 4), big-endian. Both columns grow, so either can be
searched. New entries stay in memory until a page of them exists, or until the segment is flushed,
rolled or closed. After a crash the index of every segment above the recovery point is rebuilt from
the log, so nothing depends on them. No descriptor stays open and nothing is mapped: a lookup in the
file costs a few small reads (about 15 µs), and readers that read forward or near the end never need
one.

Callers: broker/log/segments/segment.py.
"""

from __future__ import annotations

import contextlib
import os
from bisect import bisect_right
from struct import Struct
from typing import Final

from broker.log.errors import StorageError, storage_errors
from runtime.disk import Disk, write_all

OFFSET_ENTRY: Final = Struct(">ii")
TIME_ENTRY: Final = Struct(">qi")

_WAITING_ENTRIES_MAX: Final = 512  # a page of 4 KiB
_BLOCK_ENTRIES: Final = 512  # one read of 4 or 6 KiB instead of nine small ones


class SparseIndex:
    """One index file; of its `count` entries the newest may not be in the file yet.

    `entries_in_file` is None if the file is missing or invalid.
    """

    def __init__(self, path: str, layout: Struct, disk: Disk, *, entries_in_file: int | None = None) -> None:
        self.path = path
        self._layout = layout
        self._disk = disk
        self._in_file = entries_in_file or 0
        self._has_file = entries_in_file is not None
        self._waiting: tuple[list[int], list[int]] = ([], [])
        self._last: tuple[int, int] | None = None

    @property
    def count(self) -> int:
        """Number of entries."""
        return self._in_file + len(self._waiting[0])

    @property
    def is_in_memory(self) -> bool:
        """True if the file holds no entry."""
        return self._in_file == 0

    @property
    def size_bytes(self) -> int:
        """Size of the file once all entries are in it."""
        return self.count * self._layout.size

    @property
    def last(self) -> tuple[int, int] | None:
        """The newest entry."""
        if self._last is None and self._in_file:
            self._last = self._read(self._in_file - 1, 1)[0]
        return self._last

    def append(self, first: int, second: int) -> None:
        """Add an entry above the last one."""
        firsts, seconds = self._waiting
        firsts.append(first)
        seconds.append(second)
        self._last = (first, second)
        if len(firsts) >= _WAITING_ENTRIES_MAX:
            # entries can wait: the next append, roll or flush fails if the disk refuses them
            with contextlib.suppress(StorageError):
                self.write()

    def floor(self, value: int, *, column: int) -> tuple[int, int] | None:
        """The last entry whose `column` (0 or 1) is at most `value`."""
        waiting = self._waiting[column]
        # the newest entries are in memory, and most lookups are for them
        if waiting and waiting[0] <= value:
            index = bisect_right(waiting, value) - 1
            return self._waiting[0][index], self._waiting[1][index]
        return self._floor_in_file(value, column) if self._in_file else None

    def _floor_in_file(self, value: int, column: int) -> tuple[int, int] | None:
        layout, disk = self._layout, self._disk
        with storage_errors("reading", self.path):
            descriptor = disk.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                low, high = 0, self._in_file
                # single reads narrow the range, then one block: fewer system calls than a search to
                # the end
                while high - low > _BLOCK_ENTRIES:
                    middle = (low + high) // 2
                    entry = layout.unpack(disk.pread(descriptor, layout.size, middle * layout.size))
                    low, high = (middle, high) if entry[column] <= value else (low, middle)
                block = disk.pread(descriptor, (high - low) * layout.size, low * layout.size)
            finally:
                disk.close(descriptor)
        entries = list(layout.iter_unpack(block[: len(block) // layout.size * layout.size]))
        index = bisect_right(entries, value, key=lambda entry: int(entry[column])) - 1
        return (entries[index][0], entries[index][1]) if index >= 0 else None

    def entries(self) -> list[tuple[int, int]]:
        """All entries: for checks and tests."""
        return [*self._read(0, self._in_file), *zip(*self._waiting, strict=True)]

    def _read(self, start: int, count: int) -> list[tuple[int, int]]:
        if count == 0:
            return []
        size = self._layout.size
        with storage_errors("reading", self.path):
            descriptor = self._disk.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                block = self._disk.pread(descriptor, count * size, start * size)
            finally:
                self._disk.close(descriptor)
        return [(entry[0], entry[1]) for entry in self._layout.iter_unpack(block[: len(block) // size * size])]

    def write(self, *, is_durable: bool = False) -> None:
        """Write waiting entries to the file, which is created if necessary."""
        # also without entries if the file is missing: Kafka's tools expect the file of a closed
        # segment
        waiting = list(zip(*self._waiting, strict=True))
        if self._has_file and not waiting and not is_durable:
            return
        with storage_errors("writing", self.path):
            descriptor = self._disk.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
            try:
                if waiting:
                    content = b"".join(self._layout.pack(first, second) for first, second in waiting)
                    write_all(self._disk, descriptor, [content], self._in_file * self._layout.size)
                if is_durable:
                    self._disk.fdatasync(descriptor)
            finally:
                self._disk.close(descriptor)
        self._has_file = True
        self._in_file += len(waiting)
        self._waiting = ([], [])

    def truncate(self, value: int, *, column: int) -> None:
        """Drop every entry whose `column` is at or above `value`."""
        self._keep([entry for entry in self.entries() if entry[column] < value])

    def clear(self) -> None:
        """Drop every entry."""
        self._keep([])

    def _keep(self, entries: list[tuple[int, int]]) -> None:
        with storage_errors("truncating", self.path), contextlib.suppress(FileNotFoundError):
            descriptor = self._disk.open(self.path, os.O_RDWR | os.O_CLOEXEC)
            try:
                self._disk.truncate(descriptor, 0)
            finally:
                self._disk.close(descriptor)
        # a crash before the entries are rewritten leaves an empty index: lookups then scan from the
        # start, with the same result
        self._in_file = 0
        self._waiting = ([first for first, _ in entries], [second for _, second in entries])
        self._last = entries[-1] if entries else None
        if entries:
            self.write()
