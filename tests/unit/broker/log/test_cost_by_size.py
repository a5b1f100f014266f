"""An append and a read do no more disk operations in a larger log."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from broker.log.partition_log import PartitionLog
from runtime.disk import Buffer, RealDisk
from tests.support.disks.log_batches import batch
from tests.support.disks.logs_on_disk import NOW_MS, open_log

SMALL, LARGE = 200, 20_000
"""Batches in the two logs."""
VALUE = b"v" * 100


class CountingDisk(RealDisk):
    """Counts calls and bytes of reads and writes."""

    def __init__(self) -> None:
        self.reads = self.read_bytes = self.writes = self.written_bytes = self.opened = 0

    def open(self, path: str, flags: int, mode: int = 0o644) -> int:
        self.opened += 1
        return super().open(path, flags, mode)

    def pread(self, descriptor: int, length: int, position: int) -> bytes:
        content = RealDisk.pread(descriptor, length, position)
        self.reads += 1
        self.read_bytes += len(content)
        return content

    def preadv(self, descriptor: int, buffers: Sequence[bytearray | memoryview], position: int) -> int:
        count = RealDisk.preadv(descriptor, buffers, position)
        self.reads += 1
        self.read_bytes += count
        return count

    def pwritev(self, descriptor: int, buffers: Sequence[Buffer], position: int) -> int:
        count = RealDisk.pwritev(descriptor, buffers, position)
        self.writes += 1
        self.written_bytes += count
        return count

    def asked(self) -> tuple[int, ...]:
        """All counts so far."""
        return (self.reads, self.read_bytes, self.writes, self.written_bytes, self.opened)


def filled(folder: Path, batches: int) -> tuple[PartitionLog, CountingDisk]:
    """A log of this many batches, with about a hundred in each segment."""
    disk = CountingDisk()
    log = open_log(folder, disk, segment_bytes=70_000, index_interval_bytes=4096)
    for _ in range(batches):
        append(log)
    log.advance_high_watermark(log.log_end_offset)
    return log, disk


def append(log: PartitionLog) -> None:
    log.append_as_leader(batch([VALUE], timestamp_ms=NOW_MS + log.log_end_offset), leader_epoch=0, now_ms=NOW_MS)


def read(log: PartitionLog, offset: int) -> None:
    with log.read(offset, max_bytes=1) as piece:
        assert piece.base_offset == offset
        piece.read_bytes()


def most(disk: CountingDisk, work: Callable[[int], None], numbers: Sequence[int]) -> tuple[int, ...]:
    """The highest value of each count over all pieces of work."""
    found = []
    for number in numbers:
        before = disk.asked()
        work(number)
        found.append(tuple(after - earlier for after, earlier in zip(disk.asked(), before, strict=True)))
    return tuple(max(counts) for counts in zip(*found, strict=True))


def test_an_append_to_a_log_a_hundred_times_larger_asks_the_disk_for_the_same(tmp_path: Path) -> None:
    taken = []
    for name, batches in (("small", SMALL), ("large", LARGE)):
        log, disk = filled(tmp_path / name, batches)
        taken.append(most(disk, lambda _, log=log: append(log), range(100)))  # type: ignore[misc]
    assert taken[0] == taken[1]
    assert taken[0][:3] == (0, 0, 1)


@pytest.mark.parametrize("by", ["offset", "time"])
def test_a_read_anywhere_in_a_log_fifty_times_larger_asks_the_disk_for_no_more(tmp_path: Path, by: str) -> None:
    chance, taken = random.Random(7), []
    # both are as a reader that comes late finds them, with segments that are not written any more
    for name, batches in (("small", 600), ("large", 30_000)):
        log, disk = filled(tmp_path / name, batches)
        offsets = [chance.randrange(batches - 500) for _ in range(150)]

        def look(offset: int, log: PartitionLog = log) -> None:
            if by == "offset":
                read(log, offset)
            else:
                found = log.offset_for_timestamp(NOW_MS + offset)
                assert found is not None
                assert found.offset == offset

        taken.append(most(disk, look, offsets))
    small, large = taken
    # a sparse index leads to within 4096 bytes, for every size of the log; its last halving may
    # fall either way
    assert large[0] <= small[0] + 2
    assert large[1] <= small[1] + 2 * 4096
    assert large[2:4] == (0, 0)
