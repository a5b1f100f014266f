"""A disk that notes the thread of each operation that may take long, and can make the operation
slow.
"""

from __future__ import annotations

import os
import threading
import time

from broker.log.cleaning.swapping import CLEANED_SUFFIX
from runtime.disk import RealDisk


class ThreadNotingDisk(RealDisk):
    """Real files. Made on the thread of the event loop; `on_loop` is what that thread asked for
    since.
    """

    def __init__(self, *, fsync_s: float = 0.0) -> None:
        self.on_loop: list[tuple[str, str]] = []
        self.in_threads: list[tuple[str, str]] = []
        self.gate = threading.Event()
        """While it is cleared, forcing a file to disk does not end."""
        self.gate.set()
        self.rename_gate = threading.Event()
        """While it is cleared, renaming a file that compaction wrote does not begin."""
        self.rename_gate.set()
        self._fsync_s = fsync_s
        self._loop_thread = threading.get_ident()

    def _note(self, operation: str, path: str) -> None:
        is_on_loop = threading.get_ident() == self._loop_thread
        (self.on_loop if is_on_loop else self.in_threads).append((operation, path))

    def fdatasync(self, descriptor: int) -> None:  # type: ignore[override]
        self._note("fdatasync", os.readlink(f"/proc/self/fd/{descriptor}"))
        self.gate.wait()
        time.sleep(self._fsync_s)
        os.fdatasync(descriptor)

    def fsync_directory(self, path: str) -> None:
        self._note("fsync", path)
        self.gate.wait()
        time.sleep(self._fsync_s)
        super().fsync_directory(path)

    def rename(self, source: str, target: str) -> None:  # type: ignore[override]
        self._note("rename", source)
        if source.endswith(CLEANED_SUFFIX):
            self.rename_gate.wait()
        os.replace(source, target)

    def unlink(self, path: str) -> None:  # type: ignore[override]
        self._note("unlink", path)
        os.unlink(path)

    def remove_directory(self, path: str) -> None:  # type: ignore[override]
        self._note("remove", path)
        os.rmdir(path)
