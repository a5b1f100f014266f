"""A read from any offset finds what a walk over the whole log finds, for any spacing of the index
and any roll of segments, also after the log was opened again.
"""

from __future__ import annotations

import shutil
import tempfile
from bisect import bisect_right
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.log.partition_log import PartitionLog
from runtime.disk import RealDisk
from tests.support.disks.log_batches import batch
from tests.support.disks.logs_on_disk import NOW_MS, abandon_opened_logs, open_log
from tests.support.examples import examples
from wire.batches.record_batch import iterate_headers


def first_found(log: PartitionLog, offset: int, max_bytes: int) -> tuple[int, int]:
    """Base offset of the first batch that a read gets, and the offset at which the next read goes
    on.
    """
    with log.read(offset, max_bytes=max_bytes) as piece:
        _, header = next(iter(iterate_headers(piece.read_bytes())))
        return header.base_offset, piece.next_offset


def check(log: PartitionLog, bases: list[int], end: int, max_bytes: int) -> None:
    for offset in range(bases[0], end):
        base, next_offset = first_found(log, offset, max_bytes)
        assert base == bases[bisect_right(bases, offset) - 1]
        assert next_offset in (*bases, end)
        assert next_offset > offset


@given(
    sizes=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 300)), min_size=1, max_size=40),
    index_interval_bytes=st.sampled_from([1, 100, 400, 4096]),
    segment_bytes=st.sampled_from([1400, 4000, 1 << 20]),
    max_bytes=st.sampled_from([1, 200, 5000]),
)
@settings(max_examples=examples(30), deadline=None)
def test_any_offset_is_found_as_by_a_walk_over_the_log(
    sizes: list[tuple[int, int]], index_interval_bytes: int, segment_bytes: int, max_bytes: int
) -> None:
    folder = Path(tempfile.mkdtemp(prefix="reading-"))
    options = {"index_interval_bytes": index_interval_bytes, "segment_bytes": segment_bytes}
    try:
        log = open_log(folder, **options)
        bases, end = [], 0
        for count, size in sizes:
            log.append_as_leader(batch([b"v" * size] * count, timestamp_ms=NOW_MS), leader_epoch=0, now_ms=NOW_MS)
            bases.append(end)
            end += count
        check(log, bases, end, max_bytes)
        log.flush()
        log.close()
        again = open_log(folder, RealDisk(), is_clean=True, recovery_point=end, **options)
        check(again, bases, end, max_bytes)
    finally:
        abandon_opened_logs()
        shutil.rmtree(folder, ignore_errors=True)
