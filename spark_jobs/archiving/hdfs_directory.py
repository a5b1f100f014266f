"""A directory of HDFS, through a client of its protocol that needs neither Java nor libhdfs.

The client reads `core-site.xml` and `hdfs-site.xml` in HADOOP_CONF_DIR (nameservices, Kerberos),
and acts as HADOOP_USER_NAME or the user of the process.
"""

from __future__ import annotations

import io
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit
from uuid import uuid4
from xml.etree import ElementTree as ET

from hdfs_native import Client

from runtime.addresses import HostPort
from spark_jobs.archiving.core.manifest import UNFINISHED_SUFFIX
from spark_jobs.archiving.name_nodes import name_nodes

CONNECT_TIMEOUT_S: Final = 5.0


class HdfsDirectory:
    """See `directories.Directory`. HDFS renames a file in one step, with or without replacement."""

    def __init__(self, client: Client, root: str) -> None:
        self._client = client
        self._root = root.rstrip("/")

    @classmethod
    def at(cls, address: str) -> HdfsDirectory:
        """The directory of `hdfs://host:port/dir`; `hdfs:///dir` is one of `fs.defaultFS`.
        ValueError for an address without a name node.
        """
        parts = urlsplit(address)
        check_name_node(name_nodes(parts.netloc, hadoop_settings()))
        with _short_errors():
            return cls(Client(f"hdfs://{parts.netloc}" if parts.netloc else None), unquote(parts.path))

    def check(self) -> None:
        """Ask for the root of the file system."""
        with _short_errors():
            self._client.get_file_info("/")

    def sizes(self, folder: str) -> dict[str, int]:
        """Sizes by path."""
        found: dict[str, int] = {}
        with suppress(FileNotFoundError), _short_errors():
            for status in self._client.list_status(f"{self._root}/{folder}", recursive=True):
                if not status.isdir:
                    found[status.path.removeprefix(f"{self._root}/")] = status.length
        return found

    def size(self, path: str) -> int | None:
        """Bytes, or None."""
        with suppress(FileNotFoundError), _short_errors():
            status = self._client.get_file_info(f"{self._root}/{path}")
            return None if status.isdir else int(status.length)
        return None

    def open_writer(self, path: str) -> Any:
        """A file object."""
        self._make_folder(path)
        with _short_errors():
            return _Writer(self._client.create(f"{self._root}/{path}"))

    def open_reader(self, path: str) -> Any:
        """A file object."""
        with _short_errors():
            return _Reader(self._client.read(f"{self._root}/{path}"))

    def replace(self, path: str, target: str) -> None:
        """Rename with replacement."""
        self._make_folder(target)
        with _short_errors():
            self._client.rename(f"{self._root}/{path}", f"{self._root}/{target}", overwrite=True)

    def put(self, path: str, data: bytes) -> None:
        """Write under another name and rename with replacement."""
        self._write_and_rename(path, data, overwrite=True)

    def create(self, path: str, data: bytes) -> None:
        """Write under another name and rename, which the name node refuses if there is a file."""
        self._write_and_rename(path, data, overwrite=False)

    def remove(self, path: str) -> None:
        """Delete, without the trash."""
        with _short_errors():
            if not self._client.delete(f"{self._root}/{path}"):
                raise FileNotFoundError(f"{path} is not there")

    def _make_folder(self, path: str) -> None:
        with _short_errors():
            self._client.mkdirs(f"{self._root}/{path}".rpartition("/")[0], create_parent=True)

    def _write_and_rename(self, path: str, data: bytes, *, overwrite: bool) -> None:
        unfinished = f"{path}.{uuid4().hex}{UNFINISHED_SUFFIX}"
        writer = self.open_writer(unfinished)
        writer.write(data)
        writer.close()
        try:
            with _short_errors():
                self._client.rename(f"{self._root}/{unfinished}", f"{self._root}/{path}", overwrite=overwrite)
        except OSError:
            self.remove(unfinished)
            raise


def hadoop_settings() -> dict[str, str]:
    """The settings in the files that the client reads; empty without files. ValueError for a file
    that is no XML.
    """
    home = os.environ.get("HADOOP_HOME")
    place = os.environ.get("HADOOP_CONF_DIR") or (f"{home}/etc/hadoop" if home else "")
    found: dict[str, str] = {}
    for name in ("core-site.xml", "hdfs-site.xml"):
        file = Path(place, name)
        if place and file.is_file():
            try:
                entries = list(ET.parse(file).iter("property"))  # noqa: S314 - a file of the operator
            except ET.ParseError as error:
                raise ValueError(f"{file} cannot be read: {error}") from error
            for entry in entries:
                found[(entry.findtext("name") or "").strip()] = (entry.findtext("value") or "").strip()
    return found


def check_name_node(addresses: Sequence[HostPort]) -> None:
    """Raise OSError if none of them accepts a connection: the client itself would try for
    minutes.
    """
    problems = []
    for address in addresses:
        try:
            socket.create_connection(address, CONNECT_TIMEOUT_S).close()
        except OSError as error:
            problems.append(f"{address}: {error}")
        else:
            return
    raise OSError(
        f"no name node answers ({'; '.join(problems)}): is it running, and is this its dfs.namenode.rpc-address?"
    )


class _Writer:
    """A file that is written."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, data: Any) -> None:
        with _short_errors():
            self._file.write(data)

    def close(self) -> None:
        with _short_errors():
            self._file.close()


class _Reader(io.RawIOBase):
    """A file that is read; it holds no connection between two calls."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._file.tell())

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._file.seek(offset, whence)
        return self.tell()

    def read(self, size: int = -1) -> bytes:
        with _short_errors():
            return bytes(self._file.read(size))


@contextmanager
def _short_errors() -> Iterator[None]:
    """Raise OSError for all errors of the client, without the stack of the name node."""
    try:
        yield
    except OSError as error:
        raise type(error)(_first_line(error)) from error
    except RuntimeError as error:
        raise OSError(_first_line(error)) from error


def _first_line(error: Exception) -> str:
    """The stack begins in a new line, or after an escaped one."""
    return str(error).partition("\n")[0].partition("\\n")[0]
