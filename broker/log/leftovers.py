"""Files in a log's directory that no segment needs: what a crash left of deletions and compactions,
and what it brought back.

A segment below the log's start may have come back without its bytes: retention gave it up before a
flush, and a loss of power undid its renaming. It is removed unread.

Caller: broker/log/loading.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from broker.log.cleaning.swapping import finish_swaps, has_swaps
from broker.log.errors import storage_errors
from broker.log.segments.segment_names import (
    DELETED_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    file_name,
    numbered_offset,
)
from runtime.disk import DirectoryEntry, Disk

_LEFTOVER_SUFFIXES: Final = (DELETED_SUFFIX, ".cleaned", ".tmp")


def settle_files(disk: Disk, directory: str, *, log_start_offset: int, notes: list[str]) -> dict[str, DirectoryEntry]:
    """Finish compactions and deletions; return the remaining files, and add a note for each
    compaction.
    """
    with storage_errors("opening", directory):
        entries = {entry.name: entry for entry in disk.entries(directory)}
        if has_swaps(entries):
            notes.extend(finish_swaps(disk, directory))
            entries = {entry.name: entry for entry in disk.entries(directory)}
        _remove(disk, directory, entries, [name for name in entries if name.endswith(_LEFTOVER_SUFFIXES)])
        _remove(disk, directory, entries, _below(entries, log_start_offset))
        _remove(disk, directory, entries, [name for name in entries if _is_orphan(name, entries)])
    return entries


def _remove(disk: Disk, directory: str, entries: dict[str, DirectoryEntry], names: Iterable[str]) -> None:
    for name in names:
        disk.unlink(f"{directory}/{name}")
        del entries[name]


def _below(entries: dict[str, DirectoryEntry], log_start_offset: int) -> list[str]:
    """The log files of segments that end at or below the log's start."""
    numbered = (numbered_offset(name, LOG_SUFFIX) for name in entries)
    bases = sorted(offset for offset in numbered if offset is not None)
    return [file_name(base, LOG_SUFFIX) for base, following in pairwise(bases) if following <= log_start_offset]


def _is_orphan(name: str, entries: dict[str, DirectoryEntry]) -> bool:
    """True for an index whose log file is gone, removed in the middle of a deletion."""
    for suffix in SEGMENT_SUFFIXES:
        offset = numbered_offset(name, suffix)
        if offset is not None:
            return file_name(offset, LOG_SUFFIX) not in entries
    return False
