"""Files and directories on their way off the disk, in threads, each at its own time.

A deleted log's directory is renamed within moments (`put_aside`; until then its old name is taken,
see `put_aside_now`) and removed when its file.delete.delay.ms is over; so are the files of segments
that retention or compaction gave up. Work is done in small pieces with a pause as long as the piece
took: a topic of thousands of partitions does not keep the disk from clients. A crash may leave
anything of this: directories and files under their old names are found as strays or given up again,
those that were renamed are removed at the next start.

Owner: broker/log/directories/log_store.py. Runs on the event loop; only disk operations run in
threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import time
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
    """A directory to be renamed, by the first who gets to it: a thread, or the loop when the name
    is wanted again at once.
    """

    def __init__(self, directory: LogDirectory, folder: Folder, source: str, target: str, due_ms: int) -> None:
        self.directory = directory
        self.source = source
        self.target = target
        self.due_ms = due_ms
        self._folder = folder
        self._is_done = False

    def run(self, disk: Disk) -> None:
        """Rename it; nothing the second time."""
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
        """Directories that are not gone yet."""
        return len(self._aside) + len(self._directories)

    # -- what is to go -----------------------------------------------------------------------------

    def add_log_directory(
        self, directory: LogDirectory, folder: Folder, source: str, target: str, *, due_ms: int
    ) -> None:
        """Rename `source`, the folder of a log, soon, and remove `target` from `due_ms` on."""
        self._aside[source] = _PutAside(directory, folder, source, target, due_ms)

    def add_file(self, path: str) -> None:
        """Remove this file soon, if it is there and can be removed."""
        self._files.append(path)

    def add_directory(self, directory: LogDirectory, path: str, *, due_ms: int) -> None:
        """Remove this directory, which no start takes for a partition's, from `due_ms` on."""
        heapq.heappush(self._directories, (due_ms, next(self._order), directory, path))

    def add_files(self, removals: PendingRemovals, due_ms: int) -> None:
        """A log has files that may go from `due_ms` on."""
        heapq.heappush(self._logs, (due_ms, next(self._order), removals))

    def forget(self, directory: LogDirectory) -> None:
        """The directory is offline: nothing is done there any more."""
        self._aside = {path: aside for path, aside in self._aside.items() if aside.directory is not directory}
        self._directories = [entry for entry in self._directories if entry[2] is not directory]
        heapq.heapify(self._directories)

    # -- renaming ----------------------------------------------------------------------------------

    def is_taken(self, path: str) -> bool:
        """True if a deleted log's directory still has this name."""
        return path in self._aside

    def put_aside_now(self, path: str) -> None:
        """Rename this directory, if it is still to be renamed, holding the caller."""
        if path in self._aside:
            self._aside[path].run(self._disk)
            self._note_aside([self._aside[path]])

    def put_all_aside_now(self, directory: LogDirectory) -> None:
        """Rename all in one log directory that is still to be renamed, holding the caller: for a
        stop.
        """
        for path in [path for path, aside in self._aside.items() if aside.directory is directory]:
            self.put_aside_now(path)

    async def put_aside(self) -> None:
        """Rename in threads all that is to be renamed. Raises the first StorageError, after all
        others had their turn.
        """
        failure: StorageError | None = None
        await self._remove_loose_files()
        waiting = deque(self._aside.values())
        while waiting:
            piece = [waiting.popleft() for _ in range(min(RENAMES_PER_PIECE, len(waiting)))]
            failures = await in_thread(partial(self._rename, piece))
            self._note_aside([aside for aside in piece if aside not in failures])
            for aside, error in failures.items():
                # a rename that failed once is not tried again: the directory is a stray at the next
                # start
                self._aside.pop(aside.source, None)
                failure = failure or error
        if failure is not None:
            raise failure

    async def _remove_loose_files(self) -> None:
        while self._files:
            piece, self._files = self._files[:RENAMES_PER_PIECE], self._files[RENAMES_PER_PIECE:]
            # what they kept is no record of any log: one that stays harms nothing, and a disk that
            # fails is met elsewhere
            with contextlib.suppress(StorageError):
                await in_thread(partial(remove_files, self._disk, piece))

    def _rename(self, piece: Iterable[_PutAside]) -> dict[_PutAside, StorageError]:
        failures = {}
        for aside in piece:
            # the others have their turn: one bad name must not keep thousands on the disk
            try:
                aside.run(self._disk)
            except StorageError as error:
                failures[aside] = error
        return failures

    def _note_aside(self, piece: Iterable[_PutAside]) -> None:
        for aside in piece:
            # a name that was reused since belongs to another entry
            if self._aside.get(aside.source) is aside:
                del self._aside[aside.source]
                aside.directory.note_names()
                self.add_directory(aside.directory, aside.target, due_ms=aside.due_ms)

    # -- removing ----------------------------------------------------------------------------------

    async def remove_due(self) -> None:
        """Remove everything whose time has come. Raises the first StorageError; what is left of
        that kind has its turn at the next call.
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
            # names change before files go: a crash in between leaves `.deleted` ones alone
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
        began_s = time.monotonic()
        result = await in_thread(work)
        # as long a pause as the work took: clients have half of the disk at least
        await asyncio.sleep(time.monotonic() - began_s)
        return result
