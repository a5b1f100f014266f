"""The partitions that are shown, and Kafka's grammar of a manual assignment."""

from __future__ import annotations

import pytest

from cli.shared.topic_filters import PartitionFilter, PartitionState, UnusableAssignment, parse_assignment

WHOLE = PartitionState("t", 0, 1, (1, 2, 3), (1, 2, 3))
SHRUNK = PartitionState("t", 1, 1, (1, 2, 3), (1, 2))
ALONE = PartitionState("t", 2, 1, (1, 2, 3), (1,))
LEADERLESS = PartitionState("t", 3, -1, (1, 2, 3), (3,))
ALL = (WHOLE, SHRUNK, ALONE, LEADERLESS)


@pytest.mark.parametrize(
    ("asked", "shown"),
    [
        (PartitionFilter(is_under_replicated=True), [1, 2, 3]),
        (PartitionFilter(is_unavailable=True), [3]),
        (PartitionFilter(is_at_min_isr=True), [1]),
        (PartitionFilter(is_under_min_isr=True), [2, 3]),
        (PartitionFilter(is_unavailable=True, is_at_min_isr=True), [1, 3]),
        (PartitionFilter(), []),
    ],
)
def test_partitions_are_shown_by_their_state(asked: PartitionFilter, shown: list[int]) -> None:
    configs = {"min.insync.replicas": "2"}
    assert [one.partition for one in ALL if asked.shows(one, configs)] == shown


def test_a_partition_without_a_leader_is_under_its_minimum_as_in_kafkas_tool() -> None:
    assert PartitionFilter(is_under_min_isr=True).shows(LEADERLESS, {"min.insync.replicas": "1"})


def test_an_assignment_is_read_as_kafkas_tools_write_it() -> None:
    assert parse_assignment("1:2,2:1") == [[1, 2], [2, 1]]
    assert parse_assignment("0:1:2,0:1:2,2:1:0") == [[0, 1, 2], [0, 1, 2], [2, 1, 0]]
    assert parse_assignment("7") == [[7]]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("1:2,", "node ids"),
        ("1:x", "node ids"),
        ("1:1", "partition 0 names a broker twice"),
        ("1:2,3", "partition 1 has 1 replicas where partition 0 has 2"),
        ("-1:2", "below 0"),
    ],
)
def test_a_text_that_is_no_assignment_is_refused_with_what_is_accepted(text: str, words: str) -> None:
    with pytest.raises(UnusableAssignment, match=words):
        parse_assignment(text)
