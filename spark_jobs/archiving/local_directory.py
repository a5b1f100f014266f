"""A directory of this machine, or one that several machines mount. Files are on the disk before
they get their name, so that a manifest never survives the files that it names.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from spark_jobs.archiving.core.manifest import UNFINISHED_SUFFIX


class LocalDirectory:
    """See `directories.Directory`."""

    def __init__(self, root: Path) -> None:
        self._root = root

    @classmethod
    def at(cls, address: str) -> LocalDirectory:
        """The directory of `file:///dir` or `/dir`."""
        return cls(Path(unquote(urlsplit(address).path) if address.startswith("file:") else address))

    def check(self) -> None:
        """List the directory, or the nearest one above it that is there."""
        os.listdir(next(place for place in (self._root, *self._root.parents) if place.exists()))

    def sizes(self, folder: str) -> dict[str, int]:
        """Sizes by path."""
        found = {}
        for place, _, names in os.walk(self._root / folder):
            for name in names:
                path = Path(place, name)
                with suppress(FileNotFoundError):  # removed meanwhile
                    found[path.relative_to(self._root).as_posix()] = path.stat().st_size
        return found

    def size(self, path: str) -> int | None:
        """Bytes, or None."""
        target = self._root / path
        return target.stat().st_size if target.is_file() else None

    def open_writer(self, path: str) -> Any:
        """A file object."""
        return self._made(path).open("wb")

    def open_reader(self, path: str) -> Any:
        """A file object."""
        return (self._root / path).open("rb")

    def replace(self, path: str, target: str) -> None:
        """Rename."""
        source = self._root / path
        with source.open("rb+") as file:
            os.fsync(file.fileno())
        named = self._made(target)
        source.replace(named)
        _sync_folder(named.parent)

    def put(self, path: str, data: bytes) -> None:
        """Write under another name and rename."""
        unfinished = self._written_beside(path, data)
        unfinished.replace(self._root / path)

    def create(self, path: str, data: bytes) -> None:
        """Write under another name, and link it: a link never replaces a file."""
        target, unfinished = self._root / path, self._written_beside(path, data)
        try:
            os.link(unfinished, target)
        finally:
            unfinished.unlink()
        _sync_folder(target.parent)

    def remove(self, path: str) -> None:
        """Unlink."""
        (self._root / path).unlink()

    def _made(self, path: str) -> Path:
        target = self._root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

    def _written_beside(self, path: str, data: bytes) -> Path:
        unfinished = self._made(path).with_name(f"{uuid4().hex}{UNFINISHED_SUFFIX}")
        with unfinished.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        return unfinished


def _sync_folder(folder: Path) -> None:
    """Write the folder's entries to the disk."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
