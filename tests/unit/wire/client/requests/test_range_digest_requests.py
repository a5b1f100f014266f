"""Queries are divided into requests that a broker answers."""

from __future__ import annotations

from wire.client.requests.range_digest_requests import RANGES_MAX, RangeQuery, requests_of
from wire.protocol.messages.range_digest_messages import (
    DIGESTS_MAX,
    HEADER_OFFSETS_MAX,
    HEADER_RANGES_MAX,
    HEADERS,
    PARTITIONS_MAX,
)


def test_every_query_is_in_one_request_and_none_is_too_large() -> None:
    queries = [RangeQuery("t", index, 0, 64 * index, HEADERS if index % 3 else 0) for index in range(1_000)]
    requests = requests_of(queries)
    assert sorted(query for asked in requests for query in asked) == sorted(queries)
    for asked in requests:
        headers = [query for query in asked if query.span == HEADERS]
        assert len(headers) <= HEADER_RANGES_MAX
        assert sum(query.end_offset - query.first_offset for query in headers) <= HEADER_OFFSETS_MAX
        assert not headers or len(headers) == len(asked)
        assert len(asked) <= RANGES_MAX <= PARTITIONS_MAX


def test_nothing_asked_is_no_request() -> None:
    assert requests_of([]) == []


def test_a_request_of_first_levels_stays_below_the_digests_of_an_answer() -> None:
    from dr.proof.core.descent import NODES_ASKED_MAX

    assert NODES_ASKED_MAX * RANGES_MAX <= DIGESTS_MAX
