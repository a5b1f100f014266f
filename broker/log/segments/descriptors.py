"""Descriptors of segment files: opened when needed, shared by counting, closed after a long time
without use.

A broker with thousands of partitions has more segments than descriptors. A `SharedFile` is open
while it has a user (a slice that is being sent, a flush, unflushed bytes) and idle afterwards; a
`DescriptorCache` keeps a bounded number of idle ones and closes the least recently used. A file
that was deleted or renamed stays readable for its holders.

Callers: broker/log/segments/segment.py, broker/log/segments/log_slice.py.
"""

from __future__ import annotations

import os
import resource
import threading
from collections import OrderedDict
from typing import Final

from broker.log.errors import storage_errors
from runtime.disk import Disk

IDLE_DESCRIPTORS: Final = 1024
"""The number of unused descriptors that stay open."""


def idle_descriptors() -> int:
    """`IDLE_DESCRIPTORS`, or a quarter of the descriptors that this process may open when that is
    less.
    """
    # a quarter: unflushed logs may hold half, and connections need what is left
    return min(IDLE_DESCRIPTORS, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4)


def unflushed_logs_max() -> int:
    """The number of logs that may keep a descriptor open for unflushed data: half of the
    descriptors that this process may open.
    """
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2


class DescriptorCache:
    """Idle files, the least recently used first. Shared by all logs of a process; safe between
    threads.
    """

    def __init__(self, disk: Disk, *, idle_max: int | None = None) -> None:
        self.disk = disk
        self.lock = threading.Lock()
        self._idle: OrderedDict[SharedFile, None] = OrderedDict()
        self._idle_max = idle_descriptors() if idle_max is None else idle_max

    def put(self, file: SharedFile) -> int | None:
        """Record that `file` is idle; return the descriptor that must be closed for it, if any.
        Called under the lock.
        """
        self._idle[file] = None
        if len(self._idle) <= self._idle_max:
            return None
        oldest, _ = self._idle.popitem(last=False)
        return oldest.take_descriptor()

    def remove(self, file: SharedFile) -> None:
        """Record that `file` is in use again or closed. Called under the lock."""
        self._idle.pop(file, None)


class SharedFile:
    """One file and its descriptor, open while held. `path` follows renames."""

    __slots__ = ("_cache", "_descriptor", "_holders", "_is_retired", "path")

    def __init__(self, path: str, cache: DescriptorCache) -> None:
        self.path = path
        self._cache = cache
        self._descriptor = -1
        self._holders = 0
        self._is_retired = False

    def acquire(self) -> int:
        """The open descriptor; each call needs one `release`."""
        with self._cache.lock:
            if self._descriptor < 0:
                with storage_errors("opening", self.path):
                    self._descriptor = self._cache.disk.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC)
            elif self._holders == 0:
                self._cache.remove(self)
            self._holders += 1
            return self._descriptor

    def release(self) -> None:
        """Give it back; it may be closed now or later."""
        with self._cache.lock:
            self._holders -= 1
            if self._holders:
                return
            # a retired file is closed at once: no later reader can ask for its name
            closing = self.take_descriptor() if self._is_retired else self._cache.put(self)
        # outside the lock: closing the last descriptor of a deleted file frees its blocks, which
        # takes long
        self._close(closing)

    def retire(self) -> None:
        """The file will not be used by the log again: close it when its last holder releases it."""
        with self._cache.lock:
            self._is_retired = True
            if self._holders:
                return
            self._cache.remove(self)
            closing = self.take_descriptor()
        self._close(closing)

    def take_descriptor(self) -> int | None:
        """The descriptor, which the caller now has to close; None when the file is closed. Called
        under the lock.
        """
        descriptor, self._descriptor = self._descriptor, -1
        return descriptor if descriptor >= 0 else None

    def _close(self, descriptor: int | None) -> None:
        if descriptor is not None:
            self._cache.disk.close(descriptor)
