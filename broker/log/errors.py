"""The errors of a log, as types.

`BatchRejected` and its kinds (core/batch_checks.py, core/producer_state.py) are refusals of what a
client sent; those here are about the disk, the files and the range of offsets.
"""

from __future__ import annotations

import errno as errno_names
from collections.abc import Iterator
from contextlib import contextmanager

# the process has reached one of its own limits; the disk is healthy
_OUR_OWN_LIMITS = (errno_names.EMFILE, errno_names.ENFILE, errno_names.ENOMEM, errno_names.ENAMETOOLONG)


class StorageError(Exception):
    """The disk refused an operation, or files contain invalid data. `path` says where."""

    def __init__(self, operation: str, path: str, reason: str) -> None:
        super().__init__(f"{operation} {path}: {reason}")
        self.operation = operation
        self.path = path
        self.reason = reason

    @property
    def is_disk_failure(self) -> bool:
        """True if the disk itself failed: the whole log directory may be damaged, and not only one
        file's content.
        """
        return isinstance(self.__cause__, OSError) and self.__cause__.errno not in _OUR_OWN_LIMITS

    @property
    def is_missing_file(self) -> bool:
        """True if a file was missing: the log was deleted meanwhile, or the directory does not
        exist.
        """
        return isinstance(self.__cause__, FileNotFoundError)


class DiskFull(StorageError):
    """No space is left: nothing was written, the log stays readable, and appendable once there is
    space again.
    """

    @property
    def is_disk_failure(self) -> bool:
        """A full disk works."""
        return False


class CorruptLog(StorageError):
    """A segment has bytes that are not a batch where a batch must be."""

    def __init__(self, path: str, position: int, reason: str) -> None:
        super().__init__("reading", path, f"at byte {position}: {reason}")
        self.position = position


class DirectoryLocked(StorageError):
    """Another process has the log directory."""

    def __init__(self, path: str) -> None:
        super().__init__("locking", path, "another process uses this log directory; stop it or choose other log.dirs")

    @property
    def is_disk_failure(self) -> bool:
        """The disk is well."""
        return False


class DirectoryOffline(StorageError):
    """The log is, or may be, in a log directory that failed."""

    def __init__(self, path: str) -> None:
        super().__init__("using", path, "the log directory is offline after a failure of its disk")


class OffsetOutOfRange(Exception):
    """An offset outside the range of the log."""

    def __init__(self, offset: int, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(f"offset {offset} is outside of the log, which holds {log_start_offset} to {log_end_offset}")
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset


_FULL = (errno_names.ENOSPC, errno_names.EDQUOT)


@contextmanager
def storage_errors(operation: str, path: str) -> Iterator[None]:
    """Turn an OSError inside into a StorageError that names the operation and the file."""
    try:
        yield
    except OSError as error:
        raise storage_error(operation, path, error) from error


def storage_error(operation: str, path: str, error: OSError) -> StorageError:
    """The typed error for an OSError."""
    kind = DiskFull if error.errno in _FULL else StorageError
    failure = kind(operation, path, error.strerror or str(error))
    # compiled code ignores the `from` of a `raise`, and `is_disk_failure` reads the cause
    failure.__cause__ = error
    return failure
