"""The ends of logs, and the pieces that workers read of them."""

from __future__ import annotations

from itertools import chain

from hypothesis import given
from hypothesis import strategies as st

from spark_jobs.logs.core.splits import SPLIT_COST_OFFSETS, LogEnds, Split, is_reached, pieces, shared_out

KEY = ("t", 0)


def ends(end: int) -> dict[tuple[str, int], LogEnds]:
    return {KEY: LogEnds(start_offset=0, end_offset=end)}


def test_the_target_has_reached_the_source_when_every_log_has() -> None:
    assert is_reached(ends(100), ends(100))
    assert not is_reached(ends(100), {})
    assert is_reached(ends(0), {})


def test_pieces_join_and_only_the_first_one_has_the_batch_before_its_start() -> None:
    found = list(pieces("a", KEY, first=5, until=26, length=10))
    assert [(piece.first_offset, piece.until_offset, piece.is_first) for piece in found] == [
        (5, 15, True),
        (15, 25, False),
        (25, 26, False),
    ]
    assert list(pieces("a", KEY, first=5, until=5, length=10)) == []


@given(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 5_000), st.integers(1, 5)), max_size=60),
    st.integers(1, 20),
)
def test_each_split_is_in_one_group_of_its_site_and_there_are_about_as_many_groups_as_tasks(
    logs: list[tuple[str, int, int]], tasks: int
) -> None:
    found = [
        piece
        for number, (site, length, count) in enumerate(logs)
        for piece in pieces(site, ("t", number), first=0, until=length * count, length=length)
    ]
    groups = shared_out(found, tasks=tasks)
    assert all(len({split.site for split in group}) == 1 for group in groups)
    for site in "ab":
        assert [one for one in chain(*groups) if one.site == site] == [one for one in found if one.site == site]
    assert len(groups) <= tasks + 1  # one group of each site may be smaller
    longest = max((split.until_offset - split.first_offset for split in found), default=0)
    share = sum(map(work, found)) / tasks
    assert all(sum(map(work, group)) < share + longest + SPLIT_COST_OFFSETS + 1 for group in groups)


def test_thousands_of_small_logs_are_read_in_a_few_tasks() -> None:
    found = [
        piece
        for number in range(2_000)
        for site in "ab"
        for piece in pieces(site, ("t", number), first=0, until=10, length=10)
    ]
    assert [len(group) for group in shared_out(found, tasks=8)] == [500] * 8


def work(split: Split) -> int:
    return split.until_offset - split.first_offset + SPLIT_COST_OFFSETS
