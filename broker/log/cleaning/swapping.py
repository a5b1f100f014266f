"""Replacing segments by a compacted one so that a crash at any moment leaves either the old or the
new ones.

Kafka's protocol: the new files are written as `.cleaned`, made durable, renamed to `.swap` (the log
file last: from then on the new segment is valid), the old segments are renamed `.deleted`, the
files get their final names, and the `.swap` names are removed (the log file's first). At a start, a
`.cleaned` file is dropped with its companion files, a `.swap` log is finished, and other `.swap`
files without such a log are dropped.

Callers: broker/log/cleaning/cleaner.py, broker/log/loading.py.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import Final

from broker.log.segments.batch_scan import BatchScan
from broker.log.segments.segment_names import DELETED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, file_name, numbered_offset
from runtime.disk import Disk

CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
LOG_FILE_LAST: Final = tuple(sorted(SEGMENT_SUFFIXES, key=lambda suffix: suffix == LOG_SUFFIX))
"""Order of renaming: the new name of the log file shows that the others are complete."""


def has_swaps(names: Iterable[str]) -> bool:
    """True if an unfinished replacement left files in the directory."""
    return any(name.endswith((CLEANED_SUFFIX, SWAP_SUFFIX)) for name in names)


def finish_swaps(disk: Disk, directory: str) -> list[str]:
    """Complete or undo replacements that a crash interrupted; return one sentence for each."""
    names = {entry.name for entry in disk.entries(directory)}
    swapped = sorted(name for name in names if name.endswith(LOG_SUFFIX + SWAP_SUFFIX))
    notes, finished = [], set()
    for name in swapped:
        stem = name.split(".")[0]
        # a crash kept both names of one rename: it was not durable yet, so the old segments are
        # still valid
        if stem + LOG_SUFFIX + CLEANED_SUFFIX in names:
            continue
        finished.add(stem)
        notes.append(f"an interrupted compaction of {directory}/{stem} is finished")
        # first: until then the final names belong to the old files
        _set_aside_replaced(disk, directory, names, stem)
        for suffix in LOG_FILE_LAST:
            if stem + suffix + SWAP_SUFFIX in names:
                disk.rename(f"{directory}/{stem}{suffix}{SWAP_SUFFIX}", f"{directory}/{stem}{suffix}")
    for name in names:
        is_undone = name.endswith(SWAP_SUFFIX) and name.split(".")[0] not in finished
        if name.endswith(CLEANED_SUFFIX) or is_undone:
            with contextlib.suppress(FileNotFoundError):
                disk.unlink(f"{directory}/{name}")
    if notes:
        disk.fsync_directory(directory)
    return notes


def _set_aside_replaced(disk: Disk, directory: str, names: set[str], stem: str) -> None:
    """Rename the segments that the swapped one replaces: those that begin within its range."""
    base_offset, end_offset = int(stem), _end_offset(disk, f"{directory}/{stem}{LOG_SUFFIX}{SWAP_SUFFIX}", int(stem))
    for name in sorted(names):
        offset = numbered_offset(name, LOG_SUFFIX)
        # those below `end_offset` alone: the next segment is not part of this replacement
        if offset is None or not (offset == base_offset or base_offset < offset < end_offset):
            continue
        for suffix in SEGMENT_SUFFIXES:
            old = file_name(offset, suffix)
            if old in names:
                disk.rename(f"{directory}/{old}", f"{directory}/{old}{DELETED_SUFFIX}")


def _end_offset(disk: Disk, path: str, base_offset: int) -> int:
    descriptor = disk.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        end = base_offset
        for _, header in BatchScan(disk, descriptor, path, 0, disk.size(descriptor)):
            end = header.next_offset
        return end
    finally:
        disk.close(descriptor)
