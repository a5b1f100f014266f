"""A disk for tests: real files, failures on demand, and crashes that lose what was not fsynced.

`fail_next` makes the next matching operation raise; `space_left_bytes` plays a full disk, with
short writes as real ones do. `crash(chance)` puts the directory into a state that a power cut could
have left: durable names and contents stay, and an arbitrary part of everything later, in pieces of
512 bytes. Contents are compared by file identity (inode), so renames carry them along. For small
files: content is kept in memory.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from runtime.disk import Buffer, DirectoryEntry, RealDisk

SECTOR_BYTES = 512


@dataclass
class _Failure:
    operation: str
    matches: Callable[[str], bool]
    errno: int
    written_bytes: int


@dataclass
class FaultyDisk:
    """Implements runtime.disk.Disk under `root`, which exists and is empty when this is made."""

    root: str
    space_left_bytes: int | None = None
    operations: list[tuple[str, str]] = field(default_factory=list)
    before_operation: Callable[[str, str], None] | None = None

    def __post_init__(self) -> None:
        self._real = RealDisk()
        self._failures: list[_Failure] = []
        self._paths: dict[int, str] = {}
        self._durable_content: dict[int, bytes] = {}
        self._durable_names: dict[str, int] = {}
        self._pinned: dict[int, int] = {}

    # -- faults ------------------------------------------------------------------------------------

    def fail_next(self, operation: str, suffix: str = "", *, code: int = errno.EIO, written_bytes: int = 0) -> None:
        """The next `operation` on a path that ends in `suffix` fails, after writing `written_bytes`
        if it is a write.
        """
        self._failures.append(_Failure(operation, lambda path: path.endswith(suffix), code, written_bytes))

    def _note(self, operation: str, path: str) -> _Failure | None:
        self.operations.append((operation, path))
        if self.before_operation is not None:
            self.before_operation(operation, path)
        for failure in self._failures:
            if failure.operation == operation and failure.matches(path):
                self._failures.remove(failure)
                return failure
        return None

    def _raise_if_told(self, operation: str, path: str) -> None:
        failure = self._note(operation, path)
        if failure is not None:
            raise OSError(failure.errno, os.strerror(failure.errno), path)

    # -- Disk --------------------------------------------------------------------------------------

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        self._raise_if_told("open", path)
        descriptor = os.open(path, flags, mode)
        self._paths[descriptor] = path
        inode = os.fstat(descriptor).st_ino
        if inode not in self._pinned:
            # an inode number must not be given to another file while this run lasts
            self._pinned[inode] = os.open(f"/proc/self/fd/{descriptor}", os.O_RDONLY)
        return descriptor

    def close(self, descriptor: int) -> None:
        self._paths.pop(descriptor, None)
        os.close(descriptor)

    def pwritev(self, descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        path = self._paths[descriptor]
        failure = self._note("write", path)
        content = b"".join(buffers)
        allowed = len(content)
        if failure is not None:
            os.pwrite(descriptor, content[: failure.written_bytes], position)
            raise OSError(failure.errno, os.strerror(failure.errno), path)
        if self.space_left_bytes is not None:
            grown = max(position + len(content) - os.fstat(descriptor).st_size, 0)
            allowed = len(content) - max(grown - self.space_left_bytes, 0)
            if allowed <= 0 < len(content):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
            self.space_left_bytes -= min(grown, self.space_left_bytes)
        return os.pwrite(descriptor, content[:allowed], position)

    def pread(self, descriptor: int, length: int, position: int) -> bytes:
        self._raise_if_told("read", self._paths[descriptor])
        return os.pread(descriptor, length, position)

    def preadv(self, descriptor: int, buffers: Sequence[bytearray | memoryview], position: int) -> int:
        self._raise_if_told("read", self._paths[descriptor])
        return os.preadv(descriptor, buffers, position)

    def truncate(self, descriptor: int, length: int) -> None:
        self._raise_if_told("truncate", self._paths[descriptor])
        freed = os.fstat(descriptor).st_size - length
        os.ftruncate(descriptor, length)
        if self.space_left_bytes is not None:
            self.space_left_bytes += max(freed, 0)

    def size(self, descriptor: int) -> int:
        return os.fstat(descriptor).st_size

    def fdatasync(self, descriptor: int) -> None:
        self._raise_if_told("fdatasync", self._paths[descriptor])
        status = os.fstat(descriptor)
        self._durable_content[status.st_ino] = os.pread(self._pinned[status.st_ino], status.st_size, 0)

    def fsync_directory(self, path: str) -> None:
        self._raise_if_told("fsync_directory", path)
        for name in [name for name in self._durable_names if os.path.dirname(name) == path]:
            del self._durable_names[name]
        for entry in os.scandir(path):
            self._durable_names[entry.path] = entry.inode()

    def rename(self, source: str, target: str) -> None:
        self._raise_if_told("rename", source)
        os.replace(source, target)

    def link(self, source: str, target: str) -> None:
        self._raise_if_told("link", target)
        os.link(source, target)

    def unlink(self, path: str) -> None:
        self._raise_if_told("unlink", path)
        os.unlink(path)

    def make_directory(self, path: str) -> None:
        self._raise_if_told("make_directory", path)
        os.mkdir(path)

    def remove_directory(self, path: str) -> None:
        self._raise_if_told("remove_directory", path)
        os.rmdir(path)

    def entries(self, path: str, prefix: str | tuple[str, ...] = "") -> list[DirectoryEntry]:
        self._raise_if_told("entries", path)
        return self._real.entries(path, prefix)

    def free_bytes(self, path: str) -> int:
        return self.space_left_bytes if self.space_left_bytes is not None else 1 << 40

    def capacity_bytes(self, path: str) -> int:
        return 1 << 40

    # -- crash -------------------------------------------------------------------------------------

    def crash(self, chance: random.Random) -> None:
        """Cut the power: afterwards `root` holds what a disk could hold. Every descriptor from
        before is invalid.
        """
        current = {
            os.path.join(folder, name): os.stat(os.path.join(folder, name)).st_ino
            for folder, _, names in os.walk(self.root)
            for name in names
        }
        contents = {inode: self._content_after_crash(inode, chance) for inode in self._pinned}
        survivors = {}
        for path in sorted({*current, *self._durable_names}):
            before, now = self._durable_names.get(path), current.get(path)
            inode = now if before == now or chance.random() < 0.5 else before
            if inode is not None and inode in contents:
                survivors[path] = contents[inode]
        folders = [folder for folder, _, _ in os.walk(self.root)]
        for path in current:
            os.unlink(path)
        for folder in folders:
            os.makedirs(folder, exist_ok=True)
        for path, content in survivors.items():
            if os.path.isdir(os.path.dirname(path)):
                with open(path, "wb") as file:
                    file.write(content)
        for descriptor in self._pinned.values():
            os.close(descriptor)
        self._pinned.clear()
        # the files that are there after the cut are on the disk
        self._durable_names = {path: os.stat(path).st_ino for path in survivors if os.path.exists(path)}
        self._pinned = {inode: os.open(path, os.O_RDONLY) for path, inode in self._durable_names.items()}
        self._durable_content = {inode: survivors[path] for path, inode in self._durable_names.items()}

    def _content_after_crash(self, inode: int, chance: random.Random) -> bytes:
        durable = self._durable_content.get(inode, b"")
        descriptor = self._pinned.get(inode)
        if descriptor is None:
            return durable
        written = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
        if written == durable:
            return durable
        size = chance.choice([len(durable), len(written), chance.randint(0, max(len(written), len(durable)))])
        size = max(size, min(len(durable), len(written)))
        result = bytearray(size)
        for start in range(0, size, SECTOR_BYTES):
            old, new = durable[start : start + SECTOR_BYTES], written[start : start + SECTOR_BYTES]
            # appended bytes leave the durable part of their sector as it was, whichever version
            # survives
            piece = old if chance.random() < 0.3 else new
            piece = piece[: size - start]
            result[start : start + len(piece)] = piece
        return bytes(result)

    def clear(self) -> None:
        """Remove everything and let go of all files."""
        for descriptor in self._pinned.values():
            os.close(descriptor)
        self._pinned.clear()
        shutil.rmtree(self.root, ignore_errors=True)
