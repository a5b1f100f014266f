"""Deletes files and directories in threads, each at its due time.

A deleted log's directory is renamed within moments (`put_aside`; until then its old name is taken,
see `put_aside_now`) and removed after file.delete.delay.ms, like the files of segments that
retention or compaction has dropped. Work is done in small pieces with a pause as long as the piece
took: so deleting a topic with thousands of partitions does not block the disk for clients. A crash
may interrupt this at any point: directories and files under their old names are found as strays or
dropped again, and renamed ones are removed at the next start.

Owner: broker/log/directories/log_store.py. Runs on the event loop; only disk operations run in
threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from broker.log.directories.folder import Folder
from broker.log.directories.removal import PendingRemovals, remove_files
from broker.log.errors import StorageError, storage_errors
from broker.log.threads import in_thread
from runtime.disk import Disk

if TYPE_CHECKING:
    from broker.log.directories.log_directory import LogDirectory

FILES_PER_PIECE: Final = 32
"""The number of files that are deleted before a pause for the disk."""
RENAMES_PER_PIECE: Final = 64

ResultT = TypeVar("ResultT")


class _PutAside:
    """A directory that must be renamed, by a thread, or by the event loop if the name is needed at
    once.
    """

    def __init__(self, directory: LogDirectory, folder: Folder, source: str, target: str, due_ms: int | None) -> None:
        self.directory = directory
        self.source = source
        self.target = target
        self.due_ms = due_ms
        self._folder = folder
        self._is_done = False

    def run(self, disk: Disk) -> None:
        """Rename it; a second call does nothing."""
        with self._folder.held():
            if self._is_done:
                return
            with storage_errors("deleting", self.source):
                disk.rename(self.source, self.target)
            self._is_done = True


class Deletions:
    """The files to delete, and when."""

    def __init__(self, disk: Disk, *, now_ms: Callable[[], int]) -> None:
        self._disk = disk
        self._now_ms = now_ms
        self._aside: dict[str, _PutAside] = {}
        self._directories: list[tuple[int, int, LogDirectory, str]] = []
        self._logs: list[tuple[int, int, PendingRemovals]] = []
        self._files: list[str] = []
        self._order = itertools.count()

    def __len__(self) -> int:
        """The number of directories that are not removed yet."""
        return len(self._aside) + len(self._directories)

    # -- what is to go -----------------------------------------------------------------------------

    def add_log_directory(
        self, directory: LogDirectory, folder: Folder, source: str, target: str, *, due_ms: int | None
    ) -> None:
        """Rename `source`, the folder of a log, soon, and remove `target` from `due_ms` on, or
        never if that is None.
        """
        self._aside[source] = _PutAside(directory, folder, source, target, due_ms)

    def add_file(self, path: str) -> None:
        """Remove this file soon, if it is there and can be removed."""
        self._files.append(path)

    def add_directory(self, directory: LogDirectory, path: str, *, due_ms: int) -> None:
        """Remove this directory from `due_ms` on; its name is not that of a partition, so no start
        loads it.
        """
        heapq.heappush(self._directories, (due_ms, next(self._order), directory, path))

    def add_files(self, removals: PendingRemovals, due_ms: int) -> None:
        """Add files of a log that may be deleted from `due_ms` on."""
        heapq.heappush(self._logs, (due_ms, next(self._order), removals))

    def forget(self, directory: LogDirectory) -> None:
        """The directory is offline: stop all work in it."""
        self._aside = {path: aside for path, aside in self._aside.items() if aside.directory is not directory}
        self._directories = [entry for entry in self._directories if entry[2] is not directory]
        heapq.heapify(self._directories)

    # -- renaming ----------------------------------------------------------------------------------

    def is_taken(self, path: str) -> bool:
        """True if a deleted log's directory still has this name."""
        return path in self._aside

    def put_aside_now(self, path: str) -> None:
        """Rename this directory, if it is still to be renamed, and block the caller."""
        if path in self._aside:
            self._aside[path].run(self._disk)
            self._note_aside([self._aside[path]])

    def put_all_aside_now(self, directory: LogDirectory) -> None:
        """Rename all waiting directories in one log directory, and block the caller: for a stop."""
        for path in [path for path, aside in self._aside.items() if aside.directory is directory]:
            self.put_aside_now(path)

    async def put_aside(self) -> None:
        """Rename all waiting directories in threads. Raises the first StorageError, after all
        others were tried.
        """
        failure: StorageError | None = None
        await self._remove_loose_files()
        waiting = deque(self._aside.values())
        while waiting:
            piece = [waiting.popleft() for _ in range(min(RENAMES_PER_PIECE, len(waiting)))]
            failures = await in_thread(partial(self._rename, piece))
            self._note_aside([aside for aside in piece if aside not in failures])
            for aside, error in failures.items():
                # a failed rename is not tried again: the directory is a stray at the next start
                self._aside.pop(aside.source, None)
                failure = failure or error
        if failure is not None:
            raise failure

    async def _remove_loose_files(self) -> None:
        while self._files:
            piece, self._files = self._files[:RENAMES_PER_PIECE], self._files[RENAMES_PER_PIECE:]
            # these files have no records of any log: a remaining one does no harm, and a failing
            # disk is noticed elsewhere
            with contextlib.suppress(StorageError):
                await in_thread(partial(remove_files, self._disk, piece))

    def _rename(self, piece: Iterable[_PutAside]) -> dict[_PutAside, StorageError]:
        failures = {}
        for aside in piece:
            # continue with the others: one bad name must not keep thousands of directories on the
            # disk
            try:
                aside.run(self._disk)
            except StorageError as error:
                failures[aside] = error
        return failures

    def _note_aside(self, piece: Iterable[_PutAside]) -> None:
        for aside in piece:
            # a name that was reused belongs to another entry
            if self._aside.get(aside.source) is aside:
                del self._aside[aside.source]
                aside.directory.note_names()
                if aside.due_ms is not None:
                    self.add_directory(aside.directory, aside.target, due_ms=aside.due_ms)

    # -- removing ----------------------------------------------------------------------------------

    async def remove_due(self) -> None:
        """Remove everything that is due. Raises the first StorageError; the rest is tried at the
        next call.
        """
        failure: StorageError | None = None
        for work in (self.put_aside, self._remove_files, self._remove_directories):
            try:
                await work()
            except StorageError as error:
                failure = failure or error
        if failure is not None:
            raise failure

    async def _remove_files(self) -> None:
        while self._logs and self._logs[0][0] <= self._now_ms():
            removals = heapq.heappop(self._logs)[2]
            # rename before removing: a crash in between leaves only `.deleted` files
            await in_thread(removals.put_aside)
            paths = removals.take_due(self._now_ms())
            for first in range(0, len(paths), FILES_PER_PIECE):
                await self._paced(partial(removals.remove, paths[first : first + FILES_PER_PIECE]))

    async def _remove_directories(self) -> None:
        while self._directories and self._directories[0][0] <= self._now_ms():
            _, _, directory, path = heapq.heappop(self._directories)
            is_gone = False
            while not is_gone:
                is_gone = await self._paced(partial(directory.remove_some, path, FILES_PER_PIECE))

    async def _paced(self, work: Callable[[], ResultT]) -> ResultT:
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        result = await in_thread(work)
        # pause as long as the work took: clients get at least half of the disk's time
        await asyncio.sleep(loop.time() - began_s)
        return result
