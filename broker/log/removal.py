"""Files that are renamed already and wait for the end of file.delete.delay.ms.

Readers that were about to open them get that time; after a crash they are removed at the next start. Owned by a log; the
shell calls `run` now and then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from broker.log.errors import storage_errors
from runtime.disk import Disk


class PendingRemovals:
    """Paths with the time from which they may go."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._waiting: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, paths: Iterable[str], due_ms: int) -> None:
        """Remove these from `due_ms` on."""
        self._waiting.extend((due_ms, path) for path in paths)

    def run(self, now_ms: int) -> int:
        """Remove what is due; how many files."""
        due = [path for due_ms, path in self._waiting if due_ms <= now_ms]
        self._waiting = [waiting for waiting in self._waiting if waiting[0] > now_ms]
        for path in due:
            with storage_errors("removing", path), contextlib.suppress(FileNotFoundError):
                self._disk.unlink(path)
        return len(due)
