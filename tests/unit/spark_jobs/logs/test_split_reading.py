"""Which batches a read of a split gives out, for answers that end anywhere: against a log in memory
that answers as a broker does.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import pytest

from spark_jobs.logs.core.split_reading import SplitReading
from spark_jobs.logs.core.splits import Split
from tests.support.disks.log_batches import batch
from wire.batches.record_batch import read_header

RECORDS: Final = 10
FETCHES_MAX: Final = 100


def numbered(number: int) -> bytes:
    """The batch at offsets `10 * number` to `10 * number + 9`; each has its own size."""
    value = b"x" * (10 + number)
    return batch([(None, value)] * RECORDS, base_offset=number * RECORDS)


def answer(log: Sequence[bytes], offset: int, max_bytes: int, *, is_last_found: bool) -> memoryview:
    """Bytes from the first batch on that reaches the offset, whole only as far as they fit; the
    first one in any case. With `is_last_found` the index names the last of equal batches.
    """
    reaching = [at for at, one in enumerate(log) if read_header(one).last_offset >= offset]
    if not reaching:
        return memoryview(b"")
    first = reaching[0]
    if is_last_found and read_header(log[first]).last_offset == offset:
        first = max(at for at, one in enumerate(log) if one == log[first])
    size = max(max_bytes, len(log[first]))
    return memoryview(b"".join(log[first:])[:size])


def read(
    log: Sequence[bytes], first: int, until: int, *, fetch_bytes: int, keeps_repeated: bool = True, is_last_found: bool
) -> list[int]:
    """The base offsets that a read of the split gives out."""
    split = Split(site="a", topic="t", partition=0, first_offset=first, until_offset=until, is_first=first == 0)
    reading = SplitReading(split, fetch_bytes=fetch_bytes, keeps_repeated=keeps_repeated)
    found: list[int] = []
    for _ in range(FETCHES_MAX):
        fetch = reading.next_fetch()
        if fetch is None:
            return found
        data = answer(log, *fetch, is_last_found=is_last_found)
        found += [header.base_offset for _, header in reading.batches(fetch, data)]
    raise AssertionError(f"the read does not end: {found}")


WHOLE: Final = [numbered(number) for number in range(6)]
SIZE: Final = len(WHOLE[0])


@pytest.mark.parametrize("is_last_found", [False, True])
@pytest.mark.parametrize("fetch_bytes", [1, SIZE + 1, 2 * SIZE + 30, 3 * SIZE + 50, 4 * SIZE + 70, 100 * SIZE])
@pytest.mark.parametrize("copies", [1, 2, 3])
@pytest.mark.parametrize("twice", [1, 2, 5])
def test_each_batch_is_read_as_often_as_the_log_has_it(
    fetch_bytes: int, twice: int, copies: int, is_last_found: bool
) -> None:
    log = [*WHOLE[:twice], *[WHOLE[twice]] * copies, *WHOLE[twice + 1 :]]
    held = [read_header(one).base_offset for one in log]
    for edges in ([0, 60], [0, 20, 60], [0, 25, 60], [0, 30, 60], [0, 10, 20, 30, 40, 50, 60]):
        found = [
            offset
            for first, until in pairwise(edges)
            for offset in read(log, first, until, fetch_bytes=fetch_bytes, is_last_found=is_last_found)
        ]
        assert found == held, edges


@pytest.mark.parametrize("fetch_bytes", [1, 2 * SIZE + 30, 100 * SIZE])
def test_a_reader_that_keeps_no_repetitions_gets_each_batch_once(fetch_bytes: int) -> None:
    log = [*WHOLE[:3], *[WHOLE[2]] * 2, *WHOLE[3:]]
    found = read(log, 0, 60, fetch_bytes=fetch_bytes, keeps_repeated=False, is_last_found=False)
    assert found == [0, 10, 20, 30, 40, 50]


def test_an_offset_that_was_deleted_meanwhile_is_passed_over() -> None:
    split = Split(site="a", topic="t", partition=0, first_offset=0, until_offset=60, is_first=True)
    reading = SplitReading(split, fetch_bytes=1, keeps_repeated=True)
    fetch = reading.next_fetch()
    assert fetch is not None
    list(reading.batches(fetch, answer(WHOLE, *fetch, is_last_found=False)))
    reading.skip_to(30)
    fetch = reading.next_fetch()
    assert fetch is not None
    assert fetch.offset == 30
