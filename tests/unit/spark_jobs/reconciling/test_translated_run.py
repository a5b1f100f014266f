"""A partition of a translate link whose records retention deletes while both ends are compared."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

from spark_jobs.reconciling import translated_run
from spark_jobs.reconciling.core.translated_logs import OffsetSet, PlacedRecord, Transactions, TranslatedLog


class ExpiringEnd:
    """An end whose log begins one record later after each of the first `expiries` comparisons."""

    def __init__(self, offsets: range, *, expiries: int = 0) -> None:
        self.ends = SimpleNamespace(start_offset=offsets.start, end_offset=offsets.stop)
        self.transactions, self.has_times, self.reads = Transactions(OffsetSet(), OffsetSet()), True, 0
        self._expiries = expiries

    def read_outline(self) -> None:
        self.reads += 1

    def has_expired(self) -> bool:
        if self.reads > self._expiries:
            return False
        self.ends.start_offset += 1
        return True

    def records(self) -> Iterator[PlacedRecord]:
        for offset in range(self.ends.start_offset, self.ends.end_offset):
            yield PlacedRecord(offset, None, b"%d" % offset, 0, -1, False)


def judged(here: Any, there: Any) -> tuple[bool, bool]:
    log = TranslatedLog(topic="t", partition=0, runs=(), own_producers=frozenset(), is_compacted=False)
    found, has_expired = translated_run._judged(here, there, log)
    return bool(found.faults), has_expired


def test_records_that_expire_meanwhile_are_compared_from_the_new_start() -> None:
    here, there = ExpiringEnd(range(9, 20), expiries=1), ExpiringEnd(range(10, 20))
    assert judged(here, there) == (False, False)
    assert here.reads == 2


def test_a_log_that_expires_all_the_time_is_compared_a_bounded_number_of_times() -> None:
    here, there = ExpiringEnd(range(20), expiries=99), ExpiringEnd(range(10, 20))
    assert judged(here, there) == (True, True)
    assert here.reads == translated_run.ATTEMPTS_MAX


def test_equal_ends_are_compared_once() -> None:
    here, there = ExpiringEnd(range(20), expiries=99), ExpiringEnd(range(20))
    assert judged(here, there) == (False, False)
    assert here.reads == 1
