"""A log directory with mutated files is opened: the log reports its losses, and the kept batches
can be read and continued.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from tests.support.disks.log_batches import batch
from tests.support.disks.logs_on_disk import NOW_MS, abandon_opened_logs, open_log, read_all

SEGMENT_BYTES = 400
_MEMORY: Final = Path("/dev/shm")
"""Linux keeps files there in memory. On a disk, creating and removing the files of a log takes ten
times as long as opening the log.
"""


def _make_folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="fuzz-log-", dir=_MEMORY if _MEMORY.is_dir() else None))


@cache
def _files() -> dict[str, bytes]:
    """The files of a sound log of several segments, with producers and two leader epochs, by
    name.
    """
    folder = _make_folder()
    try:
        log = open_log(folder, segment_bytes=SEGMENT_BYTES)
        for number in range(10):
            records = batch([b"%d" % number], producer_id=1, sequence=number, timestamp_ms=NOW_MS + number)
            log.append_as_leader(records, leader_epoch=number // 5, now_ms=NOW_MS)
        log.close()
        return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
    finally:
        abandon_opened_logs()
        shutil.rmtree(folder, ignore_errors=True)


def run(data: bytes) -> None:
    """The first byte chooses a file, the second sets how much of its beginning is kept, and the
    other bytes replace the bytes after that.
    """
    if len(data) < 2:
        return
    files = _files()
    name = sorted(files)[data[0] % len(files)]
    kept_bytes = len(files[name]) * data[1] // 255
    folder = _make_folder()
    try:
        for other, content in files.items():
            (folder / other).write_bytes(content)
        damaged = files[name][:kept_bytes] + data[2:] + files[name][kept_bytes + len(data) - 2 :]
        (folder / name).write_bytes(damaged)
        log = open_log(folder, segment_bytes=SEGMENT_BYTES)
        offsets = [header.base_offset for header in read_all(log)]
        assert offsets == sorted(offsets)
        end = log.log_end_offset
        log.append_as_leader(batch([b"next"]), leader_epoch=2**31 - 1, now_ms=NOW_MS)
        assert log.log_end_offset == end + 1
    finally:
        abandon_opened_logs()
        shutil.rmtree(folder, ignore_errors=True)


def seeds() -> Sequence[bytes]:
    """Each file, with a piece of it replaced, and what once showed a defect."""
    replaced = [
        bytes((index, kept)) + content
        for index in range(len(_files()))
        for kept in (0, 90, 255)
        for content in (b"\0" * 30, b"\xff" * 8)
    ]
    # a leader epoch of 1,313,776,128, which no checksum covers
    return [*replaced, b"\x08\xa2NN\xa2"]
