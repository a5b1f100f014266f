"""Replacing segments by a compacted one so that a crash at any moment leaves either the old or the new ones.

Kafka's protocol: the new files are written as `.cleaned`, made durable, renamed to `.swap` (the log file last: from then on
the new segment is the truth), the old segments are renamed `.deleted`, `.swap` is renamed to the final name. At a start a
`.cleaned` file is dropped with everything beside it, a `.swap` log is finished.

Callers: broker/log/cleaner.py, broker/log/loading.py.
"""

from __future__ import annotations

import contextlib
from typing import Final

from broker.log.segment import DELETED_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES
from runtime.disk import Disk

CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"


def finish_swaps(disk: Disk, directory: str) -> list[str]:
    """Complete or undo replacements that a crash interrupted; one sentence for each."""
    names = {entry.name for entry in disk.entries(directory)}
    unfinished = {name.split(".")[0] for name in names if name.endswith(CLEANED_SUFFIX)}
    swapped = sorted(name for name in names if name.endswith(LOG_SUFFIX + SWAP_SUFFIX))
    notes = []
    for name in swapped:
        stem = name.split(".")[0]
        if stem + LOG_SUFFIX + CLEANED_SUFFIX in names:
            continue
        notes.append(f"an interrupted compaction of {directory}/{stem} is finished")
        _set_aside_replaced(disk, directory, names, stem)
        for suffix in SEGMENT_SUFFIXES:
            if stem + suffix + SWAP_SUFFIX in names:
                disk.rename(f"{directory}/{stem}{suffix}{SWAP_SUFFIX}", f"{directory}/{stem}{suffix}")
    for name in names:
        is_undone = name.endswith(SWAP_SUFFIX) and name.split(".")[0] in unfinished
        if name.endswith(CLEANED_SUFFIX) or is_undone:
            with contextlib.suppress(FileNotFoundError):
                disk.unlink(f"{directory}/{name}")
    if notes:
        disk.fsync_directory(directory)
    return notes


def _set_aside_replaced(disk: Disk, directory: str, names: set[str], stem: str) -> None:
    """The swap replaces the segment of its own name; others it merged were set aside before its rename."""
    for suffix in SEGMENT_SUFFIXES:
        if stem + suffix in names:
            disk.rename(f"{directory}/{stem}{suffix}", f"{directory}/{stem}{suffix}{DELETED_SUFFIX}")
