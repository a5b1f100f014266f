"""The ranges of two logs that are compared, and their division: nothing twice, nothing left out,
and no alarm for newer records.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.logs.core.splits import LogEnds
from spark_jobs.reconciling.core.extents import (
    RANGES_PER_PARTITION_MAX,
    Extent,
    bounded,
    expired,
    extents,
    range_size,
    splits,
)

KEY = ("t", 0)


def ends(start: int, end: int) -> dict[tuple[str, int], LogEnds]:
    return {KEY: LogEnds(start_offset=start, end_offset=end)}


def only(found: list[Extent]) -> Extent:
    (extent,) = found
    return extent


def test_records_that_the_source_takes_in_meanwhile_are_not_compared() -> None:
    extent = only(extents(ends(0, 100), ends(0, 130), ends(0, 150)))
    assert (extent.source_until, extent.target_until) == (100, 100)


def test_records_of_the_target_beyond_the_sources_newest_end_are_read_whole() -> None:
    extent = only(extents(ends(0, 100), ends(0, 180), ends(0, 150)))
    assert (extent.source_until, extent.target_until) == (150, 180)


def test_a_target_that_lags_is_read_to_its_end() -> None:
    extent = only(extents(ends(0, 100), ends(0, 60), ends(0, 150)))
    assert (extent.source_until, extent.target_until, extent.source.end_offset) == (100, 60, 100)


def test_a_log_that_starts_later_is_explained_and_an_empty_one_is_not_taken_for_it() -> None:
    found = extents(ends(10, 100), ends(40, 100), ends(10, 100))
    assert only(found).first_offset == 40
    (reason,) = expired(found, source_site="a", target_site="b")
    assert (reason.first_offset, reason.last_offset, reason.site) == (10, 39, "b")
    absent = extents(ends(10, 100), {}, ends(10, 100))
    assert only(absent).first_offset == 10
    assert expired(absent, source_site="a", target_site="b") == []


def test_a_partition_that_the_target_alone_has_is_compared_with_nothing() -> None:
    extent = only(extents({}, ends(0, 20), {}))
    assert (extent.source_until, extent.target_until) == (0, 20)


@given(st.integers(0, 10_000), st.integers(0, 500_000), st.integers(0, 500_000), st.integers(1, 16))
def test_splits_cover_each_site_once(start: int, source_length: int, target_length: int, cores: int) -> None:
    extent = only(
        extents(
            ends(start, start + source_length), ends(start, start + target_length), ends(start, start + source_length)
        )
    )
    pieces = splits([extent], source_site="a", target_site="b", cores=cores)
    for site, until in (("a", extent.source_until), ("b", extent.target_until)):
        own = [piece for piece in pieces if piece.site == site]
        covered = [(piece.first_offset, piece.until_offset) for piece in own]
        assert [first for first, _ in covered] == [extent.first_offset, *(end for _, end in covered[:-1])][: len(own)]
        assert (covered[-1][1] if covered else until) == until or until <= extent.first_offset
        assert [piece.is_first for piece in own] == [index == 0 for index in range(len(own))]


@given(st.integers(0, 10**10))
def test_no_partition_has_more_ranges_than_a_person_can_look_at(length: int) -> None:
    found = extents(ends(0, length), ends(0, length), ends(0, length))
    assert length <= range_size(found, 0) * RANGES_PER_PARTITION_MAX
    assert range_size(found, 777) == 777


def test_a_bound_ends_a_log_early_but_never_before_its_start() -> None:
    found = bounded({("t", 0): LogEnds(start_offset=5, end_offset=90), ("t", 1): LogEnds(end_offset=9)}, {("t", 0): 40})
    assert (found["t", 0].end_offset, found["t", 1].end_offset) == (40, 9)
    assert bounded(ends(50, 90), {KEY: 40})[KEY].end_offset == 50


@given(end=st.integers(0, 100), mirrored=st.integers(0, 200), later=st.integers(0, 50), bound=st.integers(0, 200))
def test_under_a_bound_nothing_beyond_it_is_compared(end: int, mirrored: int, later: int, bound: int) -> None:
    bounds = {KEY: bound}
    extent = only(extents(*(bounded(ends(0, one), bounds) for one in (end, mirrored, end + later))))
    assert max(extent.source_until, extent.target_until) <= bound
