"""The file systems of archives: what an archive asks of a directory, and the directory of an
address.

`file:///dir` is a directory of this machine (or one that all machines mount),
`hdfs://host:port/dir` and `hdfs://nameservice/dir` one of HDFS, `s3a://bucket/dir` (also `s3:`) a
prefix in a bucket.
Driver and workers must reach the same directory. Each module is imported when an address needs it.
"""

from __future__ import annotations

from typing import Any, Protocol
from urllib.parse import urlsplit

from runtime.process import OperationalFailure


class Writer(Protocol):
    """A file that is written from front to end."""

    def write(self, data: Any, /) -> Any:
        """Append the bytes."""
        ...

    def close(self) -> None:
        """End the file."""
        ...


class Directory(Protocol):
    """A directory on a file system. Paths are relative to it and use slashes; folders are made as
    they are needed. All methods raise OSError.
    """

    def check(self) -> None:
        """Raise the reason why no file can be found here, if there is one: `sizes` may find
        nothing in a bucket that is not there. A directory that is not there yet is no reason.
        """
        ...

    def sizes(self, folder: str) -> dict[str, int]:
        """The size in bytes of each file in a folder and its folders; empty without the folder."""
        ...

    def size(self, path: str) -> int | None:
        """Size of a file in bytes; None when it is not there."""
        ...

    def open_writer(self, path: str) -> Writer:
        """A new file, which readers may see before it is complete."""
        ...

    def open_reader(self, path: str) -> Any:
        """The file as a readable, seekable file object and context manager."""
        ...

    def replace(self, path: str, target: str) -> None:
        """Give a complete file another name, also when a file has that name. Readers of the new
        name see the older file or the whole new one.
        """
        ...

    def put(self, path: str, data: bytes) -> None:
        """Write a small file, or replace it, in one step."""
        ...

    def create(self, path: str, data: bytes) -> None:
        """Write a small file in one step. Raises FileExistsError when a file has this name: of
        several processes that create it, one succeeds.
        """
        ...

    def remove(self, path: str) -> None:
        """Delete a file. Raises FileNotFoundError without it."""
        ...


def directory_at(address: str) -> Directory:
    """The directory of an address. Raises OperationalFailure when the address means none."""
    parts = urlsplit(address)
    try:
        if parts.scheme in ("", "file") and not parts.netloc and parts.path.startswith("/"):
            from spark_jobs.archiving.local_directory import LocalDirectory

            return LocalDirectory.at(address)
        if parts.scheme == "hdfs" and parts.path.startswith("/"):
            from spark_jobs.archiving.hdfs_directory import HdfsDirectory

            return HdfsDirectory.at(address)
        if parts.scheme in ("s3", "s3a") and parts.hostname:
            from spark_jobs.archiving.s3_directory import S3Directory

            return S3Directory.at(address)
    except (OSError, ValueError) as error:
        raise OperationalFailure(f"the archive {address} cannot be used: {error}") from error
    raise OperationalFailure(
        f"{address!r} is no directory of an archive; accepted: file:///dir, hdfs://host:port/dir, s3a://bucket/dir"
    )
