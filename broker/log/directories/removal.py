"""Dropped segments of a log: their files are renamed soon and deleted after file.delete.delay.ms.

Readers that were about to open them get that time. After a crash the next start removes them, or
drops them again if they have their old names. The loop decides what is dropped (`expire`,
`replace`). `put_aside` does the disk work, in a thread, or on the loop if the names are needed at
once (`add_now`). Owned by a log.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable

from broker.log.directories.folder import Folder
from broker.log.errors import storage_errors
from broker.log.segments.segment import Segment
from broker.log.segments.segment_list import Segments
from broker.log.segments.segment_names import SNAPSHOT_SUFFIX, file_name
from runtime.disk import Disk


class PendingRemovals:
    """Paths with the time from which they may be deleted."""

    def __init__(self, disk: Disk, directory: str, folder: Folder, *, sync_names: Callable[[], None]) -> None:
        self.note_due: Callable[[int], None] = lambda _: None
        """Called with the time from which files may be deleted."""
        self._disk = disk
        self._directory = directory
        self._folder = folder
        self._sync_names = sync_names
        self._waiting: list[tuple[int, str]] = []
        # Lists, which are empty almost always: an empty deque takes 760 bytes, in each log.
        self._unnamed: list[Segment] = []
        self._lock = threading.Lock()
        self._dropped_files: list[str] = []
        self._drops = 0
        self._settled_drops = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def has_names_to_change(self) -> bool:
        """True if dropped segments still have their names."""
        return bool(self._unnamed)

    def put_aside(self) -> None:
        """Rename dropped files, durably; may run in a thread."""
        with self._folder.held() as is_here:
            if not (is_here and self._unnamed):
                return
            # if a crash after this lost a new segment's name, the log would have no end
            self._sync_names()
            self._rename_all()
            # a segment that was never flushed and is below the recovery point by now would come
            # back torn, and no start checks it
            with storage_errors("flushing", self._directory):
                self._disk.fsync_directory(self._directory)

    # -- truncation --------------------------------------------------------------------------------

    def drop(self, dropped: list[Segment]) -> None:
        """Drop segments that were permanently removed from the list; call `settle` before the next
        append.
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
        """True if a crash could restore dropped data."""
        return self._drops != self._settled_drops

    def settle(self) -> None:
        """Make sure that dropped segments stay dropped: a segment that a crash restored could join
        batches that were appended since.

        May run in a thread; the second of two at a time waits for the first.
        """
        if not self.needs_settling:
            return
        with self._folder.held() as is_here:
            if not is_here:
                return
            # read before the work: segments dropped in between need another `settle`
            drops = self._drops
            self._rename_all()
            while self._dropped_files:
                remove_files(self._disk, [self._dropped_files[0]])
                # removed from the list after the disk: a failure leaves it for the next attempt
                self._dropped_files.pop(0)
            with storage_errors("flushing", self._directory):
                self._disk.fsync_directory(self._directory)
            self._settled_drops = drops

    # -- giving up ---------------------------------------------------------------------------------

    def add_now(self, segments: Iterable[Segment], due_ms: int) -> None:
        """Drop these segments and rename their files before anything else happens: other segments
        may get their names.
        """
        self._add(segments, due_ms)
        self._rename_all()

    def _add(self, segments: Iterable[Segment], due_ms: int) -> None:
        for segment in segments:
            self._waiting.extend((due_ms, path) for path in segment.paths_after_removal())
            # dropped before the rename: no reader opens a name that is about to change
            segment.give_up()
            self._unnamed.append(segment)
        self.note_due(due_ms)

    def _rename_all(self) -> None:
        """Rename the files of segments that were given up, oldest first; may run in a thread."""
        # two threads, or the loop and a thread, may be here: each segment is renamed once
        with self._lock:
            while self._unnamed:
                self._unnamed[0].rename_for_removal()
                self._unnamed.pop(0)

    def add_snapshots(self, base_offsets: Iterable[int], due_ms: int) -> None:
        """Drop producers' snapshots at these offsets too: producers are never read where no segment
        begins.
        """
        names = (file_name(base_offset, SNAPSHOT_SUFFIX) for base_offset in base_offsets)
        self._waiting.extend((due_ms, f"{self._directory}/{name}") for name in names)
        self.note_due(due_ms)

    def expire(self, segments: Segments, count: int, due_ms: int) -> None:
        """Remove the oldest segments from the list and drop them; call `put_aside` afterwards."""
        expired = segments.remove_first(count)
        self._add(expired, due_ms)
        self.add_snapshots((segment.base_offset for segment in expired), due_ms)

    def replace(self, segments: Segments, old: list[Segment], new: list[Segment], due_ms: int) -> None:
        """Replace the originals, which are dropped, by compacted segments; call `put_aside`
        afterwards.
        """
        segments.replace(old, new)
        self._add(old, due_ms)
        merged = {segment.base_offset for segment in old} - {segment.base_offset for segment in new}
        self.add_snapshots(merged, due_ms)

    def take_due(self, now_ms: int) -> list[str]:
        """The files that may be deleted now; the caller removes them."""
        due = [path for due_ms, path in self._waiting if due_ms <= now_ms]
        self._waiting = [waiting for waiting in self._waiting if waiting[0] > now_ms]
        return due

    def remove(self, paths: Iterable[str]) -> None:
        """Remove these files, unless the directory belongs to another log by now; may run in a
        thread.
        """
        with self._folder.held() as is_here:
            if is_here:
                remove_files(self._disk, paths)


def remove_files(disk: Disk, paths: Iterable[str]) -> None:
    """Remove those of these files that exist."""
    for path in paths:
        with storage_errors("removing", path), contextlib.suppress(FileNotFoundError):
            disk.unlink(path)
