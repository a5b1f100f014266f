"""Flushes a log to disk without blocking the event loop: one fsync covers every append made before
it.

`GroupFlush.flush` runs the fsyncs in a thread. A caller during a flush waits for the next one,
which then covers all waiting callers. When it is done the recovery point moves: everything below it
survives a crash of the machine. After a failed fsync the kernel may have dropped the bytes it could
not write, so writes since the last flush may be lost: from then on the log refuses all operations.

Caller: broker/log/partition_log.py.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from broker.log.directories.folder import Folder
from broker.log.errors import StorageError, storage_errors
from broker.log.segments.segment import Segment
from runtime.disk import Disk, write_file
from runtime.supervision import to_its_end


class FlushWork(Struct, frozen=True, kw_only=True):
    """The data that one flush makes durable; `truncations` shows whether the log was truncated
    while it ran.
    """

    directory: str
    end_offset: int
    truncations: int
    active: list[tuple[Segment, int]]
    rolled: list[tuple[Segment, int]]
    small_files: list[str]
    epochs: tuple[str, bytes] | None
    epochs_version: int
    has_new_names: bool
    unflushed_since_ms: int | None
    folder: Folder
    settle: Callable[[], None]
    is_new_log: bool = False
    is_name_left: bool = False
    """The caller makes the name of a new log durable, once for all logs that it closes."""

    def run(self, disk: Disk) -> None:
        """The fsyncs; runs in a thread, touches only its own descriptors and files."""
        # a dropped segment that still had its name would be restored by a crash, below the new
        # recovery point
        self.settle()
        # epochs and names follow the batches: after a crash in between, none of them refers to a
        # lost record
        for segment, descriptor in (*self.rolled, *self.active):
            with storage_errors("flushing", segment.path):
                disk.fdatasync(descriptor)
        # of the active segment too: if it is rolled at the new recovery point, no recovery makes
        # its transaction index anew
        for segment, _ in (*self.rolled, *self.active):
            _flush_path(disk, segment.transactions.path)
        for segment, _ in self.rolled:
            for path in (segment.offset_index.path, segment.time_index.path):
                _flush_path(disk, path)
        for path in self.small_files:
            _flush_path(disk, path)
        are_names_durable = False
        if self.epochs is not None:
            with self.folder.held() as is_here, storage_errors("writing", self.epochs[0]):
                if is_here:
                    # with the epochs' own name, all new names in the directory become durable
                    write_file(disk, self.epochs[0], self.epochs[1], is_durable=True)
                    are_names_durable = True
        if self.has_new_names and not are_names_durable:
            with storage_errors("flushing", self.directory):
                disk.fsync_directory(self.directory)
        # a new log's own name lies in the directory above
        if self.is_new_log and not self.is_name_left:
            with storage_errors("flushing", self.directory):
                disk.fsync_directory(os.path.dirname(self.directory))

    def release(self) -> None:
        """Release the descriptors."""
        for segment, _ in (*self.rolled, *self.active):
            segment.file.release()


def _flush_path(disk: Disk, path: str) -> None:
    with storage_errors("flushing", path):
        try:
            descriptor = disk.open(path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            # deleted by retention, or never written
            return
        try:
            disk.fdatasync(descriptor)
        finally:
            disk.close(descriptor)


NoteFlush = Callable[[float], None]
"""Called with the duration of a flush, in milliseconds."""


def note_nothing(_elapsed_ms: float) -> None:
    """Ignore the time of a flush: for logs whose flushes are not measured."""


class GroupFlush:
    """One flush at a time; all waiting callers share it."""

    def __init__(
        self,
        disk: Disk,
        prepare: Callable[[], FlushWork],
        finish: Callable[[FlushWork], None],
        fail: Callable[[FlushWork, StorageError], None],
        note_flush: NoteFlush,
    ) -> None:
        self._disk = disk
        self._prepare = prepare
        self._finish = finish
        self._fail = fail
        self._note_flush = note_flush
        self._running: asyncio.Task[None] | None = None

    async def flush(self, is_done: Callable[[], bool]) -> None:
        """Flush until `is_done`. Raises StorageError when the disk fails."""
        while not is_done():
            if self._running is None or self._running.done():
                self._running = asyncio.create_task(self._run())
                self._running.add_done_callback(_mark_retrieved)
            # a stop closes the log next, which flushes too: never two at a time
            await to_its_end(self._running)

    async def _run(self) -> None:
        work = self._prepare()
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        try:
            await loop.run_in_executor(None, work.run, self._disk)
        except StorageError as failure:
            self._fail(work, failure)
            raise
        finally:
            work.release()
        self._note_flush((loop.time() - began_s) * 1000)
        self._finish(work)

    def flush_now(self, *, is_name_left: bool = False) -> None:
        """The same, holding the caller: for closing. With `is_name_left`, the caller makes the name
        of a new log durable.
        """
        work = replace(self._prepare(), is_name_left=is_name_left)
        try:
            work.run(self._disk)
        except StorageError as failure:
            self._fail(work, failure)
            raise
        finally:
            work.release()
        self._finish(work)


def _mark_retrieved(task: asyncio.Task[None]) -> None:
    """The log stores the failure; a cancelled waiter need not receive it."""
    if not task.cancelled():
        task.exception()
