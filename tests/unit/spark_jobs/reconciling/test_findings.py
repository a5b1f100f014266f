"""Interval arithmetic against a naive twin on sets, and the classification of differences."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.reconciling.core.findings import (
    Finding,
    FindingKind,
    OffsetRange,
    classify,
    difference,
    intersection,
    merged,
    without_expired,
)

ranges = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 8)).map(
        lambda pair: OffsetRange(first=pair[0], last=pair[0] + pair[1])
    ),
    max_size=8,
)


def _offsets(found: list[OffsetRange]) -> set[int]:
    return {offset for one in found for offset in range(one.first, one.last + 1)}


def _is_canonical(found: list[OffsetRange]) -> bool:
    return all(left.last + 1 < right.first for left, right in itertools.pairwise(found))


@given(ranges)
def test_merging_keeps_the_offsets_and_leaves_gaps_between_ranges(left: list[OffsetRange]) -> None:
    assert _offsets(merged(left)) == _offsets(left)
    assert _is_canonical(merged(left))


@given(ranges, ranges)
def test_intersection_and_difference_agree_with_sets(left: list[OffsetRange], right: list[OffsetRange]) -> None:
    assert _offsets(intersection(left, right)) == _offsets(left) & _offsets(right)
    assert _offsets(difference(left, right)) == _offsets(left) - _offsets(right)


@given(ranges, ranges)
def test_findings_are_disjoint_and_cover_exactly_what_differs(
    left: list[OffsetRange], right: list[OffsetRange]
) -> None:
    findings = classify(topic="t", partition=0, only_source=left, only_target=right)
    covered = [offset for found in findings for offset in range(found.first_offset, found.last_offset + 1)]
    assert len(covered) == len(set(covered))
    assert set(covered) == _offsets(left) | _offsets(right)


def test_a_tail_that_only_the_source_has_is_missing() -> None:
    (found,) = classify(topic="t", partition=3, only_source=[OffsetRange(first=90, last=99)], only_target=[])
    assert found == Finding(topic="t", partition=3, kind=FindingKind.MISSING, first_offset=90, last_offset=99)
    assert found.offsets == 10


def test_two_tails_written_after_a_failover_are_diverged_where_both_reach_and_extra_beyond() -> None:
    findings = classify(
        topic="t",
        partition=0,
        only_source=[OffsetRange(first=100, last=109)],
        only_target=[OffsetRange(first=100, last=149)],
    )
    assert [(found.kind, found.first_offset, found.last_offset) for found in findings] == [
        (FindingKind.DIVERGED, 100, 109),
        (FindingKind.EXTRA, 110, 149),
    ]


def test_a_range_that_ends_before_it_begins_is_refused() -> None:
    with pytest.raises(ValueError, match="ends at 1 before it begins at 2"):
        OffsetRange(first=2, last=1)


def test_records_that_the_lacking_site_let_expire_meanwhile_are_explained_and_others_are_not() -> None:
    found = Finding(topic="t", partition=0, kind=FindingKind.MISSING, first_offset=10, last_offset=29)
    left, reasons = without_expired(found, start_offset=20, site="b")
    assert [(one.first_offset, one.last_offset) for one in left] == [(20, 29)]
    assert [(one.first_offset, one.last_offset, one.site) for one in reasons] == [(10, 19, "b")]
    assert without_expired(found, start_offset=30, site="b")[0] == []
    assert without_expired(found, start_offset=10, site="b") == ([found], [])
