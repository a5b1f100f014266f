"""Segments that a log has given up: their files are renamed at once and go at the end of file.delete.delay.ms.

Readers that were about to open them get that time; after a crash they are removed at the next start. Owned by a log; the
shell calls `run` now and then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from broker.log.errors import storage_errors
from broker.log.segment import SNAPSHOT_SUFFIX, Segment, file_name
from broker.log.segments import Segments
from runtime.disk import Disk


class PendingRemovals:
    """Paths with the time from which they may go."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._waiting: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, segments: Iterable[Segment], due_ms: int) -> None:
        """Give these up; their files go from `due_ms` on."""
        for segment in segments:
            self._waiting.extend((due_ms, path) for path in segment.rename_for_removal())

    def add_snapshots(self, base_offsets: Iterable[int], due_ms: int) -> None:
        """Producers' snapshots at these offsets go as well: nobody asks for producers where no segment begins."""
        names = (file_name(base_offset, SNAPSHOT_SUFFIX) for base_offset in base_offsets)
        self._waiting.extend((due_ms, f"{self._directory}/{name}") for name in names)

    def expire(self, segments: Segments, count: int, due_ms: int) -> None:
        """Take the oldest segments off the list and give them up."""
        expired = segments.remove_first(count)
        self.add(expired, due_ms)
        self.add_snapshots((segment.base_offset for segment in expired), due_ms)

    def replace(self, segments: Segments, old: list[Segment], new: list[Segment], due_ms: int) -> None:
        """Put compacted segments in the place of the originals, which are given up."""
        segments.replace(old, new)
        self.add(old, due_ms)
        merged = {segment.base_offset for segment in old} - {segment.base_offset for segment in new}
        self.add_snapshots(merged, due_ms)

    def run(self, now_ms: int) -> int:
        """Remove what is due; how many files."""
        due = [path for due_ms, path in self._waiting if due_ms <= now_ms]
        self._waiting = [waiting for waiting in self._waiting if waiting[0] > now_ms]
        for path in due:
            with storage_errors("removing", path), contextlib.suppress(FileNotFoundError):
                self._disk.unlink(path)
        return len(due)
