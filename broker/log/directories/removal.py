"""Segments that a log has given up: their files are renamed soon and go at the end of
file.delete.delay.ms.

Readers that were about to open them get that time; after a crash they are removed at the next
start, or given up again where they have their old names. The loop decides what goes (`expire`,
`replace`); the disk work is `put_aside`, which a thread does, or the loop where the names are
wanted at once (`add_now`). Owned by a log.
"""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable

from broker.log.directories.folder import Folder
from broker.log.errors import storage_errors
from broker.log.segments.segment import Segment
from broker.log.segments.segment_list import Segments
from broker.log.segments.segment_names import SNAPSHOT_SUFFIX, file_name
from runtime.disk import Disk


class PendingRemovals:
    """Paths with the time from which they may go."""

    def __init__(self, disk: Disk, directory: str, folder: Folder, *, sync_names: Callable[[], None]) -> None:
        self.note_due: Callable[[int], None] = lambda _: None
        """Called with the time from which files may be deleted."""
        self._disk = disk
        self._directory = directory
        self._folder = folder
        self._sync_names = sync_names
        self._waiting: list[tuple[int, str]] = []
        self._unnamed: deque[Segment] = deque()
        self._lock = threading.Lock()
        self._dropped_files: deque[str] = deque()
        self._drops = 0
        self._settled_drops = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def has_names_to_change(self) -> bool:
        """True if segments that were given up still have their names."""
        return bool(self._unnamed)

    def put_aside(self) -> None:
        """Rename what was given up; may run in a thread."""
        with self._folder.held() as is_here:
            if not (is_here and self._unnamed):
                return
            # were a new segment's name lost in a crash after this, the log would have no end left
            self._sync_names()
            self._rename_all()

    # -- truncation --------------------------------------------------------------------------------

    def drop(self, dropped: list[Segment]) -> None:
        """Give up segments that were taken off the list for good; `settle` must follow before
        anything is appended.
        """
        if dropped:
            self._add(dropped, 0)
            self._drops += 1

    def drop_file(self, path: str) -> None:
        """The same for one file."""
        self._dropped_files.append(path)
        self._drops += 1

    @property
    def needs_settling(self) -> bool:
        """True if a crash could bring back dropped data."""
        return self._drops != self._settled_drops

    def settle(self) -> None:
        """See that what was dropped stays away: a segment that a crash brought back could join onto
        batches that were appended since.

        May run in a thread; the second of two at a time waits for the first.
        """
        if not self.needs_settling:
            return
        with self._folder.held() as is_here:
            if not is_here:
                return
            # read before the work: what is dropped meanwhile needs another `settle`
            drops = self._drops
            self._rename_all()
            while self._dropped_files:
                remove_files(self._disk, [self._dropped_files[0]])
                # removed from the list after the disk: a failure leaves it for the next try
                self._dropped_files.popleft()
            with storage_errors("flushing", self._directory):
                self._disk.fsync_directory(self._directory)
            self._settled_drops = drops

    # -- giving up ---------------------------------------------------------------------------------

    def add_now(self, segments: Iterable[Segment], due_ms: int) -> None:
        """Give these up and rename their files before anything else happens: others may get their
        names.
        """
        self._add(segments, due_ms)
        self._rename_all()

    def _add(self, segments: Iterable[Segment], due_ms: int) -> None:
        for segment in segments:
            self._waiting.extend((due_ms, path) for path in segment.paths_after_removal())
            # given up before it is renamed: no reader opens a name that is about to change
            segment.give_up()
            self._unnamed.append(segment)
        self.note_due(due_ms)

    def _rename_all(self) -> None:
        """Rename what was given up, oldest first; may run in a thread."""
        # two threads, or the loop and a thread, may be here: each segment is renamed once
        with self._lock:
            while self._unnamed:
                self._unnamed[0].rename_for_removal()
                self._unnamed.popleft()

    def add_snapshots(self, base_offsets: Iterable[int], due_ms: int) -> None:
        """Producers' snapshots at these offsets go as well: producers are never read where no
        segment begins.
        """
        names = (file_name(base_offset, SNAPSHOT_SUFFIX) for base_offset in base_offsets)
        self._waiting.extend((due_ms, f"{self._directory}/{name}") for name in names)
        self.note_due(due_ms)

    def expire(self, segments: Segments, count: int, due_ms: int) -> None:
        """Take the oldest segments off the list and give them up; `put_aside` must follow."""
        expired = segments.remove_first(count)
        self._add(expired, due_ms)
        self.add_snapshots((segment.base_offset for segment in expired), due_ms)

    def replace(self, segments: Segments, old: list[Segment], new: list[Segment], due_ms: int) -> None:
        """Put compacted segments in the place of the originals, which are given up; `put_aside`
        must follow.
        """
        segments.replace(old, new)
        self._add(old, due_ms)
        merged = {segment.base_offset for segment in old} - {segment.base_offset for segment in new}
        self.add_snapshots(merged, due_ms)

    def take_due(self, now_ms: int) -> list[str]:
        """The files that may go now; the caller removes them."""
        due = [path for due_ms, path in self._waiting if due_ms <= now_ms]
        self._waiting = [waiting for waiting in self._waiting if waiting[0] > now_ms]
        return due

    def remove(self, paths: Iterable[str]) -> None:
        """Remove these files, unless the directory is another log's by now; may run in a thread."""
        with self._folder.held() as is_here:
            if is_here:
                remove_files(self._disk, paths)


def remove_files(disk: Disk, paths: Iterable[str]) -> None:
    """Remove those of these files that are there."""
    for path in paths:
        with storage_errors("removing", path), contextlib.suppress(FileNotFoundError):
            disk.unlink(path)
