"""The disk door: the few file operations that durable state needs, as a Protocol over plain
descriptors.

Two implementations: `RealDisk` here, whose methods are the `os` functions themselves, and one in
tests/support that fails on demand and simulates a crash (what was never fsynced is lost or torn).
Descriptors are real in both, so that `os.sendfile` works on them. Errors are `OSError`; the caller
names the file and decides what an error means.

Callers: broker/log; anything else that must survive a crash.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol

Buffer = bytes | bytearray | memoryview

IOV_MAX: Final = 1024
"""The maximum number of buffers of one `pwritev` (Linux)."""


class DirectoryEntry(NamedTuple):
    """One name in a directory."""

    name: str
    is_directory: bool
    size_bytes: int
    modified_ms: int


class Disk(Protocol):
    """File operations on descriptors and paths. Positions and lengths are bytes."""

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        """A descriptor, as `os.open`."""
        ...

    def close(self, descriptor: int) -> None:
        """Close it."""
        ...

    def pwritev(self, descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        """Write the pieces one after another from `position`; the number of bytes written may fall
        short.
        """
        ...

    def pread(self, descriptor: int, length: int, position: int) -> bytes:
        """Up to `length` bytes; fewer only at the end of the file."""
        ...

    def preadv(self, descriptor: int, buffers: Sequence[bytearray | memoryview], position: int) -> int:
        """Fill the buffers; the number of bytes read."""
        ...

    def truncate(self, descriptor: int, length: int) -> None:
        """Shorten or extend the file to `length`."""
        ...

    def size(self, descriptor: int) -> int:
        """Size of the file."""
        ...

    def fdatasync(self, descriptor: int) -> None:
        """Make the file's content durable."""
        ...

    def fsync_directory(self, path: str) -> None:
        """Make names created, renamed and removed in the directory durable."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename, replacing `target`, atomically."""
        ...

    def link(self, source: str, target: str) -> None:
        """Give a file a second name, which does not exist yet."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a file."""
        ...

    def make_directory(self, path: str) -> None:
        """Create a directory; its parent exists."""
        ...

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        ...

    def entries(self, path: str, prefix: str | tuple[str, ...] = "") -> list[DirectoryEntry]:
        """The entries of the directory whose names begin with the prefix (or one of them), in no
        order.
        """
        ...

    def free_bytes(self, path: str) -> int:
        """Space left for us on the file system of `path`."""
        ...

    def capacity_bytes(self, path: str) -> int:
        """Size of the file system of `path`."""
        ...


class RealDisk:
    """The operating system's files."""

    close = staticmethod(os.close)
    pwritev = staticmethod(os.pwritev)
    pread = staticmethod(os.pread)
    preadv = staticmethod(os.preadv)
    truncate = staticmethod(os.ftruncate)
    fdatasync = staticmethod(os.fdatasync)
    rename = staticmethod(os.replace)
    link = staticmethod(os.link)
    unlink = staticmethod(os.unlink)
    make_directory = staticmethod(os.mkdir)
    remove_directory = staticmethod(os.rmdir)

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        """A descriptor, as `os.open`; new files are not executable."""
        return os.open(path, flags, mode)

    def size(self, descriptor: int) -> int:
        """Size of the file."""
        return os.fstat(descriptor).st_size

    def fsync_directory(self, path: str) -> None:
        """Make names created, renamed and removed in the directory durable."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def entries(self, path: str, prefix: str | tuple[str, ...] = "") -> list[DirectoryEntry]:
        """The entries of the directory whose names begin with the prefix (or one of them), in no
        order.
        """
        found = []
        with os.scandir(path) as names:
            for name in names:
                if not name.name.startswith(prefix):
                    continue
                # another process may remove the file between the listing and `stat`
                with contextlib.suppress(FileNotFoundError):
                    status = name.stat()
                    found.append(
                        DirectoryEntry(name.name, name.is_dir(), status.st_size, status.st_mtime_ns // 1_000_000)
                    )
        return found

    def free_bytes(self, path: str) -> int:
        """Space left for us on the file system of `path`."""
        status = os.statvfs(path)
        return status.f_bavail * status.f_frsize

    def capacity_bytes(self, path: str) -> int:
        """Size of the file system of `path`."""
        status = os.statvfs(path)
        return status.f_blocks * status.f_frsize


def write_all(disk: Disk, descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
    """Write all bytes of `buffers` from `position`, with as many calls as needed; returns their
    number.
    """
    written = 0
    for start in range(0, len(buffers), IOV_MAX):
        pieces = buffers[start : start + IOV_MAX] if len(buffers) > IOV_MAX else buffers
        length = sum(map(len, pieces))
        done = disk.pwritev(descriptor, pieces, position + written)
        # a short write is rare (a full disk, a signal): only then are the pieces joined
        while done < length:
            rest = memoryview(b"".join(pieces))[done:]
            done += disk.pwritev(descriptor, [rest], position + written + done)
        written += length
    return written


def read_file(disk: Disk, path: str) -> bytes:
    """The whole content of a small file."""
    descriptor = disk.open(path, os.O_RDONLY)
    try:
        return disk.pread(descriptor, disk.size(descriptor), 0)
    finally:
        disk.close(descriptor)


def write_file(disk: Disk, path: str, content: bytes, *, is_durable: bool) -> None:
    """Replace a small file by rename, so that readers find either the old content or the new one.

    With `is_durable` both content and name have reached the disk on return.
    """
    # always the same name, so that the next write replaces a file that a crash has left
    temporary = path + ".tmp"
    descriptor = disk.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        write_all(disk, descriptor, [content], 0)
        if is_durable:
            # before the rename: after a crash, the name must never refer to content that was not
            # written
            disk.fdatasync(descriptor)
    finally:
        disk.close(descriptor)
    disk.rename(temporary, path)
    if is_durable:
        # the rename is durable only when the directory is
        disk.fsync_directory(os.path.dirname(path))


def write_over(disk: Disk, path: str, content: bytes) -> None:
    """Overwrite a small file in place. A crash may leave a part of the old or the new content, so
    the file needs a checksum.
    """
    descriptor = disk.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        write_all(disk, descriptor, [content], 0)
    finally:
        disk.close(descriptor)
