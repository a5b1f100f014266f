"""Clones a log of a running broker into another directory of the same file system, without a write
to any of its files.

Closed segments are shared by hard links, which costs no space and no time. The segment in which the
clone ends is copied up to a counted batch, because the running broker appends to its file in place.
Indexes and the small files are copied. `core/clone_plan.py` decides which is which.

The broker continues to run: retention may remove segments and compaction may replace them. If that
happens during cloning, the clone is started again.

Caller: `antipode rehearse` (cli/recovery/rehearsing).
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Mapping
from typing import Final, NamedTuple

from msgspec import Struct

from broker.log.core.clone_plan import plan_clone
from broker.log.directories import checkpoints
from broker.log.errors import StorageError, storage_errors
from broker.log.segments.batch_scan import BatchScan
from broker.log.segments.segment_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_name,
    numbered_offset,
)
from broker.log.segments.sparse_index import OFFSET_ENTRY
from runtime.disk import RealDisk
from wire.protocol.ids import TopicPartition

ATTEMPTS_MAX: Final = 5
_COPY_BYTES: Final = 16 * 1024 * 1024
_SMALL_FILES: Final = (checkpoints.LEADER_EPOCHS, checkpoints.PARTITION_METADATA, checkpoints.THINNED)
_OF_SEGMENTS: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
# errors of file systems and kernels that do not support the call
_NO_COPY_BY_RANGE: Final = (errno.EINVAL, errno.ENOSYS, errno.EXDEV, errno.EOPNOTSUPP)
_READ_ONLY: Final = os.O_RDONLY | os.O_CLOEXEC


class SharedSegment(NamedTuple):
    """A file that has a second name in the clone, with its state at that time."""

    path: str
    inode: int
    size_bytes: int
    modified_ns: int

    def change(self) -> str:
        """The change of the file's content since the clone; empty without a change."""
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return ""  # retention removed it: the clone's name keeps the content
        if found.st_ino != self.inode:
            return ""  # compaction replaced it by another file
        if (found.st_size, found.st_mtime_ns) == (self.size_bytes, self.modified_ns):
            return ""
        return f"{self.path} had {self.size_bytes} bytes and has {found.st_size}, or was written to"


class ClonedLog(Struct, frozen=True, kw_only=True):
    """One clone. `recovery_offset`: when the clone is opened, its log is read from here on."""

    recovery_offset: int
    shared: tuple[SharedSegment, ...]
    copied_bytes: int

    @property
    def shared_bytes(self) -> int:
        """Size of the shared files, which take no space."""
        return sum(one.size_bytes for one in self.shared)


class _LogChanged(Exception):
    """The broker has replaced files that were being cloned."""


def clone_log(source: str, target: str, *, end_offset: int | None) -> ClonedLog:
    """Clone the partition directory `source` as the new directory `target`, up to `end_offset`, or
    with the whole content of its last segment. StorageError.
    """
    for _ in range(ATTEMPTS_MAX):
        try:
            with storage_errors("cloning", source):
                os.makedirs(target)
                return _clone(source, target, end_offset)
        except _LogChanged:
            shutil.rmtree(target)
    raise StorageError("cloning", source, f"its segments changed {ATTEMPTS_MAX} times while they were cloned")


def cloning_bytes(source: str, *, end_offset: int | None) -> tuple[int, int]:
    """The bytes that a clone would share and would copy, at most. Raises StorageError."""
    with storage_errors("reading", source):
        bases = _base_offsets(source)
        plan = plan_clone(bases, end_offset)
        sizes = {base: os.path.getsize(f"{source}/{file_name(base, LOG_SUFFIX)}") for base in bases}
    return sum(sizes[base] for base in plan.linked), sizes[plan.copied]


def _base_offsets(directory: str) -> list[int]:
    numbered = (numbered_offset(name, LOG_SUFFIX) for name in os.listdir(directory))
    return sorted(offset for offset in numbered if offset is not None)


def _clone(source: str, target: str, end_offset: int | None) -> ClonedLog:
    # hard links first: a file that compaction replaces afterwards keeps its content under the
    # clone's name
    try:
        plan = plan_clone(_base_offsets(source), end_offset)
        shared = [_share(source, target, base) for base in plan.linked]
        copied_bytes = _copy_bounded(source, target, plan.copied, end_offset)
        copied_bytes += sum(_copy_small(source, target, name) for name in _small_files(source, plan.copied))
    except (FileNotFoundError, ValueError) as error:
        raise _LogChanged from error
    # checked after the copy: a segment that was replaced in between is not the one in the epochs
    # file
    if any(_inode(one.path) not in (one.inode, None) for one in shared):
        raise _LogChanged
    return ClonedLog(recovery_offset=plan.copied, shared=tuple(shared), copied_bytes=copied_bytes)


def _share(source: str, target: str, base: int) -> SharedSegment:
    name = file_name(base, LOG_SUFFIX)
    # closed segments never change, so the clone shares the file and needs no space for it
    os.link(f"{source}/{name}", f"{target}/{name}")
    found = os.stat(f"{target}/{name}")
    # copied, not linked: a recovery of the clone writes to the index files
    for suffix in _OF_SEGMENTS:
        with contextlib.suppress(FileNotFoundError):  # small segments have no index
            _copy_small(source, target, file_name(base, suffix))
    return SharedSegment(f"{source}/{name}", found.st_ino, found.st_size, found.st_mtime_ns)


def _copy_small(source: str, target: str, name: str) -> int:
    shutil.copyfile(f"{source}/{name}", f"{target}/{name}")
    return os.path.getsize(f"{target}/{name}")


def _small_files(source: str, copied: int) -> list[str]:
    """Copy the producer snapshots below the segment that is read anew, the leader epochs and the
    topic's id.
    """
    snapshots = [
        name
        for name in os.listdir(source)
        if (offset := numbered_offset(name, SNAPSHOT_SUFFIX)) is not None and offset <= copied
    ]
    return [*snapshots, *(name for name in _SMALL_FILES if os.path.exists(f"{source}/{name}"))]


def _copy_bounded(source: str, target: str, base: int, end_offset: int | None) -> int:
    """Copy the segment up to the end of the clone and not beyond: its file may grow during the
    copy.
    """
    path = f"{source}/{file_name(base, LOG_SUFFIX)}"
    reading = os.open(path, _READ_ONLY)
    try:
        length = os.fstat(reading).st_size
        if end_offset is not None:
            length = _end_position(reading, path, base, end_offset, length)
        writing = os.open(
            # exclusive: an existing file would mean that two clones use the directory
            f"{target}/{file_name(base, LOG_SUFFIX)}",
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC,
        )
        try:
            done = 0
            while done < length:
                copied = _copy_some(reading, writing, done, min(_COPY_BYTES, length - done))
                if copied == 0:
                    raise _LogChanged  # it was truncated meanwhile
                done += copied
        finally:
            os.close(writing)
    finally:
        os.close(reading)
    return length


def _copy_some(reading: int, writing: int, position: int, size_bytes: int) -> int:
    """Copy by reference if the file system supports it, else within the kernel."""
    try:
        return os.copy_file_range(reading, writing, size_bytes, position, position)
    except OSError as error:
        # some file systems and kernels lack the call: sendfile copies within the kernel as well
        if error.errno not in _NO_COPY_BY_RANGE:
            raise
    os.lseek(writing, position, os.SEEK_SET)
    return os.sendfile(writing, reading, position, size_bytes)


def _end_position(descriptor: int, path: str, base: int, end_offset: int, size_bytes: int) -> int:
    """Return the position behind the last batch below `end_offset`, which the broker has reported:
    the batches up to there are whole.
    """
    if end_offset <= base:
        return 0
    position = _indexed_position(path, base, end_offset)
    for start, header in BatchScan(RealDisk(), descriptor, path, position, size_bytes):
        if header.base_offset >= end_offset:
            break
        position = start + header.size_bytes
        if header.next_offset >= end_offset:
            break
    return position


def _indexed_position(path: str, base: int, end_offset: int) -> int:
    """The start of the last batch below the offset that the index file names."""
    try:
        with open(path.removesuffix(LOG_SUFFIX) + INDEX_SUFFIX, "rb") as index:
            content = index.read()
    except FileNotFoundError:
        return 0
    # the broker may be writing the last entry
    whole = content[: len(content) // OFFSET_ENTRY.size * OFFSET_ENTRY.size]
    below = [position for offset, position in OFFSET_ENTRY.iter_unpack(whole) if base + offset < end_offset]
    return below[-1] if below else 0


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino
    except FileNotFoundError:
        return None


def write_checkpoints(directory: str, values: Mapping[str, Mapping[TopicPartition, int]]) -> None:
    """The offset checkpoints of a log directory of clones, by file name. StorageError."""
    disk = RealDisk()
    for name, offsets in values.items():
        checkpoints.write_offsets(disk, f"{directory}/{name}", offsets)
