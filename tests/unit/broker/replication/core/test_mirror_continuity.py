"""Mirrored batches against the log that they are appended to."""

from __future__ import annotations

import pytest

from broker.replication.core.mirror_continuity import Continuity, Meeting, first_difference, meet
from wire.batches.record_batch import BatchHeader

DELETE_HORIZON = 0x40


def header(
    base_offset: int, count: int = 10, *, epoch: int = 0, crc: int = 1, kept: int | None = None, attributes: int = 0
) -> BatchHeader:
    kept = count if kept is None else kept
    return BatchHeader(base_offset, 100, epoch, 2, crc, attributes, count - 1, 0, 0, -1, -1, -1, kept)


CASES = [
    ([header(20)], 20, Meeting(Continuity.CONTINUES)),
    ([header(25)], 20, Meeting(Continuity.CONTINUES)),
    ([header(30)], 30, Meeting(Continuity.GAP)),
    ([header(0), header(10), header(20)], 0, Meeting(Continuity.CONTINUES, 2)),
    ([header(15)], 15, Meeting(Continuity.TRUNCATED_THROUGH)),
    ([header(15)], 20, Meeting(Continuity.DIVERGES)),
    ([header(0), header(10), header(20)], 20, Meeting(Continuity.CONTINUES, 2)),
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
    return first_difference(sent, stored, log_start_offset=start, is_compacted=compacted) is None


def test_batches_that_are_there_are_recognised_by_offsets_epoch_and_checksum() -> None:
    assert same([header(0), header(10)], [header(0), header(10)])
    assert not same([header(0, crc=2)], [header(0, crc=1)])
    assert not same([header(0, epoch=1)], [header(0, epoch=0)])
    assert not same([header(0, count=9)], [header(0)])
    assert not same([header(0)], [header(5)])


def test_batches_below_the_log_start_are_not_compared() -> None:
    assert same([header(0), header(10)], [header(10)], start=10)


REWRITTEN = [header(10, crc=2, kept=3), header(10, crc=2, kept=0), header(10, crc=2, attributes=DELETE_HORIZON)]


@pytest.mark.parametrize("rewritten", REWRITTEN)
@pytest.mark.parametrize("is_compacted", [False, True])
def test_compaction_may_have_rewritten_what_is_sent_again(rewritten: BatchHeader, is_compacted: bool) -> None:
    """This also holds for a topic whose compaction was turned off. Either site may have compacted
    first.
    """
    assert same([header(0), header(10)], [header(0), rewritten], compacted=is_compacted)
    assert same([rewritten], [header(10)], compacted=is_compacted)
    assert not same([rewritten._replace(partition_leader_epoch=1)], [header(10)], compacted=is_compacted)
    assert not same([rewritten], [header(10, count=9)], compacted=is_compacted)


def test_compaction_drops_batches_and_changes_no_other() -> None:
    assert same([header(0), header(10)], [header(10)], compacted=True)
    assert not same([header(10, crc=1)], [header(10, crc=2)], compacted=True)
