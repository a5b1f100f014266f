"""The size of one request to a controller about topics."""

from __future__ import annotations

from wire.client.requests.topic_requests import PARTITIONS_AT_ONCE, TOPICS_AT_ONCE, in_requests


def sizes(partition_counts: list[int]) -> list[int]:
    return [len(request) for request in in_requests(partition_counts, int)]


def test_requests_are_bounded_in_topics_and_in_partitions() -> None:
    assert sizes([]) == []
    assert sizes([1] * (TOPICS_AT_ONCE + 1)) == [TOPICS_AT_ONCE, 1]
    assert sizes([PARTITIONS_AT_ONCE, PARTITIONS_AT_ONCE, 5 * PARTITIONS_AT_ONCE]) == [1, 1, 1]
    assert sizes([PARTITIONS_AT_ONCE - 1, 1, 1]) == [2, 1]
