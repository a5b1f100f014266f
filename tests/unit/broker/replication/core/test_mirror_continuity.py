"""How mirrored batches meet a log."""

from __future__ import annotations

import pytest

from broker.replication.core.mirror_continuity import Continuity, Meeting, is_same_history, meet
from wire.batches.record_batch import BatchHeader


def header(base_offset: int, count: int = 10, *, epoch: int = 0, crc: int = 1) -> BatchHeader:
    return BatchHeader(base_offset, 100, epoch, 2, crc, 0, count - 1, 0, 0, -1, -1, -1, count)


CASES = [
    ([header(20)], 20, Meeting(Continuity.CONTINUES)),
    ([header(25)], 20, Meeting(Continuity.CONTINUES)),
    ([header(30)], 30, Meeting(Continuity.GAP)),
    ([header(0), header(10), header(20)], 0, Meeting(Continuity.CONTINUES, 2)),
    ([header(15)], 15, Meeting(Continuity.TRUNCATED_THROUGH)),
    ([header(10)], 10, Meeting(Continuity.CONTINUES, 1)),
    ([], 20, Meeting(Continuity.CONTINUES)),
    ([], 21, Meeting(Continuity.GAP)),
]


@pytest.mark.parametrize(("batches", "expected_end", "meeting"), CASES)
def test_batches_meet_a_log_that_ends_at_20(batches: list[BatchHeader], expected_end: int, meeting: Meeting) -> None:
    assert meet(batches, expected_log_end_offset=expected_end, log_end_offset=20, latest_epoch=0) == meeting


def test_new_batches_of_an_older_epoch_diverge() -> None:
    met = meet([header(20, epoch=3)], expected_log_end_offset=20, log_end_offset=20, latest_epoch=4)
    assert met.continuity is Continuity.DIVERGES


def same(sent: list[BatchHeader], stored: list[BatchHeader], *, start: int = 0, compacted: bool = False) -> bool:
    return is_same_history(sent, stored, log_start_offset=start, is_compacted=compacted)


def test_batches_that_are_there_are_recognised_by_offsets_epoch_and_checksum() -> None:
    assert same([header(0), header(10)], [header(0), header(10)])
    assert not same([header(0, crc=2)], [header(0, crc=1)])
    assert not same([header(0, epoch=1)], [header(0, epoch=0)])
    assert not same([header(0, count=9)], [header(0)])
    assert not same([header(0)], [header(5)])


def test_batches_below_the_log_start_are_not_compared() -> None:
    assert same([header(0), header(10)], [header(10)], start=10)


def test_compaction_may_have_rewritten_what_is_sent_again() -> None:
    assert same([header(0), header(10, crc=1)], [header(10, crc=2)], compacted=True)
    assert not same([header(10, epoch=1)], [header(10, epoch=0)], compacted=True)
