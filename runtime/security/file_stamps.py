"""Stamps of files, by which a process notices that certificates, keys or tokens were replaced."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

FileStamps = tuple[tuple[Path, int, int, int], ...]
"""Path, inode, time of change (ns) and size of each file; zeros for one that cannot be read."""


def stamps_of(files: Iterable[Path]) -> FileStamps:
    """The stamps of the files now; a replaced file has another inode."""
    found = []
    for file in files:
        try:
            facts = file.stat()
        except OSError:
            found.append((file, 0, 0, 0))
        else:
            found.append((file, facts.st_ino, facts.st_mtime_ns, facts.st_size))
    return tuple(found)
