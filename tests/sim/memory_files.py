"""The disk door in memory: the small files that a broker keeps beside its logs, above all the
quarantine. They outlive the process, and everything is durable at once.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence

from runtime.disk import Buffer, DirectoryEntry

CAPACITY_BYTES = 1 << 40


class MemoryFiles:
    """One disk (`runtime/disk.py: Disk`)."""

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self._open: dict[int, bytearray] = {}
        self._descriptors = itertools.count(1_000_000)

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        del mode
        if path not in self.files:
            if not flags & os.O_CREAT:
                raise FileNotFoundError(2, "no such file", path)
            self.files[path] = bytearray()
        if flags & os.O_TRUNC:
            self.files[path].clear()
        descriptor = next(self._descriptors)
        self._open[descriptor] = self.files[path]
        return descriptor

    def close(self, descriptor: int) -> None:
        del self._open[descriptor]

    def pwritev(self, descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        content = b"".join(buffers)
        self._open[descriptor][position : position + len(content)] = content
        return len(content)

    def pread(self, descriptor: int, length: int, position: int) -> bytes:
        return bytes(self._open[descriptor][position : position + length])

    def preadv(self, descriptor: int, buffers: Sequence[bytearray | memoryview], position: int) -> int:
        total = 0
        for buffer in buffers:
            content = self.pread(descriptor, len(buffer), position + total)
            buffer[: len(content)] = content
            total += len(content)
        return total

    def truncate(self, descriptor: int, length: int) -> None:
        content = self._open[descriptor]
        content[length:] = bytes(max(0, length - len(content)))

    def size(self, descriptor: int) -> int:
        return len(self._open[descriptor])

    def fdatasync(self, descriptor: int) -> None:
        """Everything is durable at once."""

    def fsync_directory(self, path: str) -> None:
        """Everything is durable at once."""

    def rename(self, source: str, target: str) -> None:
        self.files[target] = self.files.pop(source)

    def link(self, source: str, target: str) -> None:
        self.files[target] = self.files[source]

    def unlink(self, path: str) -> None:
        if path not in self.files:
            raise FileNotFoundError(2, "no such file", path)
        del self.files[path]

    def make_directory(self, path: str) -> None:
        """Directories need not be made here."""

    def remove_directory(self, path: str) -> None:
        """Nor removed."""

    def entries(self, path: str, prefix: str | tuple[str, ...] = "") -> list[DirectoryEntry]:
        found = [(os.path.split(name), content) for name, content in sorted(self.files.items())]
        return [
            DirectoryEntry(name, False, len(content), 0)
            for (folder, name), content in found
            if folder == path and name.startswith(prefix)
        ]

    def free_bytes(self, path: str) -> int:
        del path
        return CAPACITY_BYTES

    def capacity_bytes(self, path: str) -> int:
        del path
        return CAPACITY_BYTES
