"""Surveys of fetched bytes: whole batches, skipped batches, and batches of the copy."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.link.core.partitions import BatchRun, MalformedBatches, survey
from tests.support.disks.log_batches import batch


def test_a_survey_describes_the_whole_batches() -> None:
    one = batch([b"a", b"b"], base_offset=10, leader_epoch=1, timestamp_ms=5)
    other = batch([b"c"], base_offset=15, leader_epoch=3, timestamp_ms=9)
    incomplete = batch([b"d"], base_offset=16, leader_epoch=3)[:-1]
    run = survey(memoryview(one + other + incomplete))
    assert run == BatchRun(
        first_offset=10,
        next_offset=16,
        size_bytes=len(one) + len(other),
        record_count=3,
        first_epoch=1,
        last_epoch=3,
        max_timestamp_ms=9,
    )


def test_a_survey_does_not_count_skipped_batches() -> None:
    """MirrorMaker counts the records that the target gets: no aborted records, no markers, no
    records that came from the target.
    """
    skipped, carried = batch([b"a", b"b"], base_offset=10), batch([b"c"], base_offset=12)
    run = survey(skipped + carried, skipped=frozenset({10}))
    assert run is not None
    assert (run.record_count, run.first_offset, run.next_offset) == (1, 10, 13)
    assert (run.carried_bytes, run.skipped_bytes, run.skipped_records) == (len(carried), len(skipped), 2)
    assert run.size_bytes == len(carried) + len(skipped), "all of it takes room in the queue"


def test_a_survey_counts_repeated_batches_separately() -> None:
    old, new, newer = (batch([b"a"], base_offset=offset, timestamp_ms=offset) for offset in (10, 13, 14))
    run = survey(old + new + newer, copied_below=13)
    assert run is not None
    assert (run.first_offset, run.first_new_offset, run.next_offset) == (10, 13, 15)
    assert (run.record_count, run.carried_bytes, run.size_bytes) == (2, len(new + newer), len(old + new + newer))
    run = survey(old, copied_below=11)
    assert run is not None
    assert (run.first_new_offset, run.record_count, run.carried_bytes, run.max_timestamp_ms) == (11, 0, 0, -1)


def test_a_survey_of_an_incomplete_batch_is_none() -> None:
    one = batch([b"a"])
    for size in range(len(one)):
        assert survey(one[:size]) is None


@pytest.mark.parametrize(
    ("first", "second"),
    [({"base_offset": 5}, {"base_offset": 5}), ({"leader_epoch": 2}, {"base_offset": 1, "leader_epoch": 1})],
)
def test_offsets_and_epochs_that_go_back_are_malformed(first: Mapping[str, int], second: Mapping[str, int]) -> None:
    with pytest.raises(MalformedBatches, match="at "):
        survey(batch([b"a"], **first) + batch([b"b"], **second))


@given(st.binary(max_size=300))
def test_no_bytes_break_a_survey(rubbish: bytes) -> None:
    try:
        run = survey(batch([b"a"]) + rubbish)
    except MalformedBatches:
        return
    assert run is not None
